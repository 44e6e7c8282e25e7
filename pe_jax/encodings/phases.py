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

from pe_jax.kept import kept


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
  if isinstance(frequency_F, np.ndarray):
    return cos_sin_of_words(*_with_words(position, frequency_F))
  return kept(_waves)(angle(position, frequency_F))


def angle(position: ArrayLike, frequency_F: ArrayLike) -> jax.Array:
  """position x frequency in radians, float32, shape (*position.shape, F); less its whole turns where frequencies are a host array."""
  if isinstance(frequency_F, np.ndarray):
    return turn(*_with_words(position, frequency_F)) * np.float32(2 * np.pi)
  position = jnp.asarray(position)[..., None]
  return position.astype(jnp.float32) * jnp.expand_dims(jnp.asarray(frequency_F, jnp.float32), tuple(range(position.ndim - 1)))


def _with_words(position, frequency_F):
  position = jnp.asarray(position)[..., None]
  return position, *(np.expand_dims(w, tuple(range(position.ndim - 1))) for w in words(frequency_F))


def cos_sin_of_words(position, high, low):
  """`cos_sin` for words that differ from token to token; shapes broadcast."""
  return kept(_waves)(turn(position, high, low) * np.float32(2 * np.pi))


def _waves(angle):
  return jnp.cos(angle), jnp.sin(angle)
