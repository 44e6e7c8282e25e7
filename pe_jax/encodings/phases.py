"""Exact phases: cos and sin of position x frequency, to 1e-6 of float64 for every integer position below 2^31.

A float32 product position x frequency has an error that grows with the position: 1.5e-4 radians at 4095, 4e-2 at 2^20. Here a frequency
is kept as turns per position in 64-bit fixed point, as two 32-bit words made in float64 on the host,

    f / 2 pi  mod 1  =  high / 2^32 + low / 2^64,

and the phase is an integer product. Whole turns overflow away exactly, which is what is wanted of them, and what is left is a fraction of
a turn in 32 bits. No matrix unit takes part (those round to bfloat16 or TF32), so every backend gives the same phase.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike


def words(frequency):
  """(high, low) uint32 words of the turns per position of float64 host frequencies in radians per position."""
  turns = np.asarray(frequency, np.float64) / (2 * np.pi)
  scaled = np.ldexp(turns - np.floor(turns), 32)
  high = np.floor(scaled)
  low = np.floor(np.ldexp(scaled - high, 32))
  return high.astype(np.uint32), low.astype(np.uint32)


def turn(position, high, low):
  """The fraction of a turn of position x frequency, float32 in [-1/2, 1/2). Shapes broadcast; position is a non-negative integer."""
  p = jnp.asarray(position).astype(jnp.uint32)
  # The upper word of p x low, from 16-bit halves. Left out: what only the lowest partial product would carry, at most 2^-31 of a turn.
  p1, p0, low1, low0 = p >> 16, p & 0xFFFF, low >> 16, low & 0xFFFF
  carry = p1 * low1 + ((p1 * low0) >> 16) + ((p0 * low1) >> 16)
  fraction = jax.lax.bitcast_convert_type(p * high + carry, jnp.int32)
  return fraction.astype(jnp.float32) * np.float32(2.0**-32)


def cos_sin(position: ArrayLike, frequency_F: ArrayLike) -> tuple[jax.Array, jax.Array]:
  """cos and sin of position x frequency, float32, shape (*position.shape, F).

  A host array of frequencies (NumPy, float64) takes the exact integer path; a traced one is multiplied in float32 and has its error.
  """
  position = jnp.asarray(position)[..., None]
  if isinstance(frequency_F, np.ndarray):
    high, low = (w.reshape((1,) * (position.ndim - 1) + w.shape) for w in words(frequency_F))
    return cos_sin_of_words(position, high, low)
  frequency = jnp.asarray(frequency_F, jnp.float32)
  angle = position.astype(jnp.float32) * frequency.reshape((1,) * (position.ndim - 1) + frequency.shape)
  return jnp.cos(angle), jnp.sin(angle)


def cos_sin_of_words(position, high, low):
  """`cos_sin` for words that differ from token to token; shapes broadcast."""
  angle = turn(position, high, low) * np.float32(2 * np.pi)
  return jnp.cos(angle), jnp.sin(angle)
