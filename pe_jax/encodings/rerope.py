"""ReRoPE: RoPE inside a window, one and the same distance beyond it.

    a score is taken at distance min(i - j, window)

Su Jianlin, 2023 (bojone/rerope). No distance above `window` ever occurs, so with a window below the training length none is untrained.
Queries and keys are turned twice and kept side by side: once by their positions, once so that they stand `window` apart; of the two scores
one is kept. The same parameters as RoPE's.
"""

import jax.numpy as jnp

from pe_jax.encodings import phases, rope
from pe_jax.encodings.base import Encoding, Traits, scores
from pe_jax.errors import ConfigError


def two_readings(dims, base, fraction, layout, window, far):
  """A record that reads RoPE at the true distance below `window` and at another one from there on.

  `far(position, is_query, frequency_F)` gives the (cos, sin) with which distant queries and keys are turned.
  """
  if not window >= 1:
    raise ConfigError(f'encoding: window={window} must be at least 1')
  frequency_F = rope.checked_frequencies(dims.head_dim, base, fraction, layout)

  def prepare(params, where):
    del params
    near = [phases.cos_sin(where.i_BT, frequency_F), phases.cos_sin(where.j_BS, frequency_F)]
    return near, [far(where.i_BT, True, frequency_F), far(where.j_BS, False, frequency_F)]

  def rotate(tables, q, k):
    (near_q, near_k), (far_q, far_k) = tables
    both_q = jnp.concatenate([rope.turn(q, *near_q, layout), rope.turn(q, *far_q, layout)], axis=-1)
    return both_q, jnp.concatenate([rope.turn(k, *near_k, layout), rope.turn(k, *far_k, layout)], axis=-1)

  def score(tables, q, k, where):
    del tables
    (near_q, far_q), (near_k, far_k) = jnp.split(q, 2, axis=-1), jnp.split(k, 2, axis=-1)
    return jnp.where((where.distance_BTS() < window)[:, None], scores(near_q, near_k), scores(far_q, far_k))

  return Encoding(prepare=prepare, rotate=rotate, score=score, traits=Traits(relative=True, cache='raw'))


INHERITED = rope.INHERITED


def encoding(dims, *, window=0, base=10_000.0, fraction=1.0, layout='half'):
  """The record. `window`: 0 is half the training length."""
  window = window or max(dims.train_length // 2, 1)

  def far(position, is_query, frequency_F):
    return phases.cos_sin(jnp.full_like(position, window if is_query else 0), frequency_F)

  return two_readings(dims, base, fraction, layout, window, far)
