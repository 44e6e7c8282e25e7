"""Self-Extend: RoPE inside a window, positions grouped by whole-number division beyond it.

    a score is taken at distance i - j below the window and floor(i/group) - floor(j/group) + window - floor(window/group) from there on

Jin et al., 2024, arXiv:2401.01325. Only distances that occurred in training are used if
(length - window) / group + window stays below the training length; nothing is trained. The same parameters as RoPE's. Grouping makes the
far distance depend on where in its group a position stands, so a common shift by no multiple of `group` changes it.
"""

import dataclasses

from pe_jax.encodings import phases, rope
from pe_jax.encodings.rerope import two_readings
from pe_jax.errors import ConfigError

INHERITED = rope.INHERITED


def encoding(dims, *, group=4, window=0, base=10_000.0, fraction=1.0, layout='half'):
  """The record. `window`: 0 is half the training length."""
  window = window or max(dims.train_length // 2, 1)
  if group < 1:
    raise ConfigError(f'encoding: group={group} must be at least 1')

  def far(position, is_query, frequency_F):
    return phases.cos_sin(position // group + (window - window // group if is_query else 0), frequency_F)

  enc = two_readings(dims, base, fraction, layout, window, far)
  return dataclasses.replace(enc, traits=dataclasses.replace(enc.traits, relative=group == 1))
