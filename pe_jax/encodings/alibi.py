"""ALiBi: a linear penalty on distance, one slope per head.

    b_h(i, j) = -m_h |i - j|,   m_h = 2^(-8h/H),   h = 1 .. H

Press, Smith, Lewis, 2021, arXiv:2108.12409. Added after the scaling by 1/sqrt(d). Head counts that are no power of two follow the
authors' code: the slopes of the power of two below, then every other slope of the power of two above. The bias is made from integer
distances in float32; slope x key index gives the same softmax only in exact arithmetic and loses most of recency in bfloat16.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pe_jax.encodings.base import Encoding, Traits
from pe_jax.errors import ConfigError


def slopes(num_heads: int) -> np.ndarray:
  """m_1 .. m_H, float32, in the order of the authors' code."""
  power = 2 ** int(np.log2(num_heads))
  of_power = 2.0 ** (-8 * np.arange(1, power + 1) / power)
  of_double = 2.0 ** (-8 * np.arange(1, 2 * power + 1) / (2 * power))
  return np.concatenate([of_power, of_double[::2][: num_heads - power]]).astype(np.float32)


_slopes = slopes  # the encoding's field has the same name


def bias(slope_H: ArrayLike, distance: ArrayLike) -> jax.Array:
  """-m_h |distance|, float32, shape (H, *distance.shape)."""
  distance = jnp.abs(jnp.asarray(distance)).astype(jnp.float32)[None]
  return -jnp.asarray(slope_H, jnp.float32).reshape((-1,) + (1,) * (distance.ndim - 1)) * distance


def encoding(dims, *, slopes=()):
  """The record. `slopes` replaces the authors' choice, one number per head."""
  slope_H = np.asarray(slopes or _slopes(dims.num_heads), np.float32)
  if slope_H.shape != (dims.num_heads,):
    raise ConfigError(f'encoding: alibi got {slope_H.size} slopes for {dims.num_heads} heads (give one per head)')
  if not (np.isfinite(slope_H) & (slope_H >= 0)).all():
    raise ConfigError('encoding: alibi slopes must be finite and not negative (a negative one would favour far tokens)')
  return Encoding(
    distance_bias=lambda tables, distance: bias(slope_H, distance),
    traits=Traits(relative=True),
  )
