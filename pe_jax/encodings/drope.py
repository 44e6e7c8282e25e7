"""DroPE: train with positions, drop all of them for the last steps, and read longer text without any.

    before the last share of the steps: the inner encoding;   from there on, and at evaluation: none, scores x (1 + c ln s), s = max(1, n/L)

Gelberg et al., 2025, arXiv:2512.12167. Positions help a model to learn and hinder it beyond the training length L; a short recalibration
without them suffices. n is the length of the query's document, so within L nothing is scaled. c = .412 is what the authors found for
models trained from scratch (.103 for one of their released ones); `last` = .125 drops at 7/8 of the steps.
"""

import dataclasses
import math

import jax.numpy as jnp

from pe_jax.encodings.base import Encoding, Traits
from pe_jax.encodings.combine import refuse
from pe_jax.errors import ConfigError


def encoding(dims, inner='rope', *, last=0.125, c=0.412):
  """The record. `last`: the share of training steps without positions. `c`: how scores grow beyond the training length."""
  first = inner(dims)
  refuse(first, 'drope', 'embed', 'positions', 'schedule')
  if not 0 < last < 1:
    raise ConfigError(f'encoding: drope: last={last} must be between 0 and 1 (a share of the training steps)')
  if not (c >= 0 and math.isfinite(c)):
    raise ConfigError(f'encoding: drope: c={c} must be at least 0')

  def scale(tables, where):
    del tables
    ratio_BT = where.qlen_BT.astype(jnp.float32) / dims.train_length
    return 1.0 + c * jnp.log(jnp.maximum(ratio_BT, 1.0))[:, None, :, None]

  without = Encoding(init=first.init, scale=scale if c else None, traits=Traits(relative=True, length_dependent=c > 0))
  return dataclasses.replace(without, schedule=((0.0, first), (1.0 - last, without)))
