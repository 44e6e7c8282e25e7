"""KERPLE: a learned, conditionally positive definite kernel of the distance, subtracted from the scores; two scalars a head.

    kind='log':    b_h = -p_h ln(1 + a_h |i - j|)
    kind='power':  b_h = -a_h |i - j|^(p_h),   p_h <= 2

Chi, Fan, Ramadge, Rudnicky, 2022, arXiv:2205.09921. Each layer of the authors' code has its own scalars; here one set serves all layers,
as T5's table does. At initialisation p ~ U(0, 2) and a ~ U(0, 1); both are kept at .01 or more, as in that code.
"""

import jax
import jax.numpy as jnp

from pe_jax.encodings.base import Encoding, Traits
from pe_jax.errors import ConfigError

SMALLEST = 0.01


def bias(p_H, a_H, distance, kind='log'):
  """The bias of each head, float32, shape (H, *distance.shape)."""
  distance = jnp.abs(jnp.asarray(distance)).astype(jnp.float32)[None]
  p, a = (jnp.maximum(x, SMALLEST).reshape((-1,) + (1,) * (distance.ndim - 1)) for x in (p_H, a_H))
  if kind == 'log':
    return -p * jnp.log1p(a * distance)
  # At distance 0 the power is 0 for every p, and its logarithm in the gradient is kept away from.
  return jnp.where(distance > 0, -a * jnp.maximum(distance, 1.0) ** jnp.minimum(p, 2.0), 0.0)


def encoding(dims, *, kind='log'):
  """The record."""
  if kind not in ('log', 'power'):
    raise ConfigError(f"encoding: kerple's kind is 'log' or 'power', not {kind!r}")

  def init(key):
    p_key, a_key = jax.random.split(key)
    shape = (dims.num_heads,)
    return {'p': jax.random.uniform(p_key, shape, jnp.float32, 0.0, 2.0), 'a': jax.random.uniform(a_key, shape, jnp.float32)}

  return Encoding(
    init=init,
    prepare=lambda params, where: (params['p'], params['a']),
    distance_bias=lambda tables, distance: bias(*tables, distance, kind),
    traits=Traits(relative=True),
  )
