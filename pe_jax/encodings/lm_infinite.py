"""LM-Infinite: a query sees the first few tokens of its document and a window, at distances no larger than the window.

    visible: j < first or i - j < window;   a score is taken at distance min(i - j, window)

Han et al., 2023, arXiv:2308.16137. Nothing is trained; with a window of the training length L only the distance L itself is new (training
has 0 .. L - 1). What lies between the first tokens and the window is not used at all, so a flat loss here is no sign of long-range use.
"""

import dataclasses

import jax.numpy as jnp

from pe_jax.encodings import phases, rope
from pe_jax.encodings.rerope import two_readings
from pe_jax.errors import ConfigError

INHERITED = rope.INHERITED


def first_and_window(first, window):
  """The mask, (tables, where) -> bool (B, 1, T, S)."""

  def visible(tables, where):
    del tables
    return ((where.j_BS < first)[:, None, :] | (where.distance_BTS() < window))[:, None]

  return visible


def check(first, window):
  """Refuses counts that leave a query without keys."""
  if first < 0 or window < 1:
    raise ConfigError(f'encoding: first={first} must be at least 0 and window={window} at least 1')


def encoding(dims, *, first=4, window=0, base=10_000.0, fraction=1.0, layout='half'):
  """The record. `window`: 0 is the training length."""
  window = window or dims.train_length
  check(first, window)

  def far(position, is_query, frequency_F):
    return phases.cos_sin(jnp.full_like(position, window if is_query else 0), frequency_F)

  enc = two_readings(dims, base, fraction, layout, window, far)
  traits = dataclasses.replace(enc.traits, relative=False)
  return dataclasses.replace(enc, visible=first_and_window(first, window), traits=traits)
