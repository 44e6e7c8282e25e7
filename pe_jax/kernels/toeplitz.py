"""A bias by distance inside a kernel: the Toeplitz matrix of the values that a block of queries and keys can meet, and its gradient.

Both are made of rotations of whole rows in registers, which every generation of TPUs can do.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu


@jax.custom_vjp
def toeplitz(values_1X, i_1T, j_S1):
  """out[s, t] = values[t - s + size - 1] for a block of `size` x `size`, from 2 x size values by rising distance."""
  del j_S1
  size = i_1T.shape[1]
  rows = _singly(size)
  wide = jnp.concatenate([pltpu.roll(values_1X, size + 1 + s, 1) for s in range(rows)])
  while rows < size:
    wide, rows = jnp.concatenate([wide, pltpu.roll(wide, rows, 1)]), 2 * rows
  return wide[:, :size]


def _singly(size):
  """How many rows are turned one by one; from there on they double, in whole registers of 8 rows."""
  while size % 16 == 0:
    size //= 2
  return size


def _toeplitz_backward(size, d_ST):
  """Sums along diagonals: the same turns back, half of the rows added to the other half each time."""
  wide, rows = jnp.concatenate([d_ST, jnp.zeros_like(d_ST)], axis=1), size
  while rows > _singly(size):
    rows //= 2
    wide = wide[:rows] + pltpu.roll(wide[rows:], 2 * size - rows, 1)
  return sum(pltpu.roll(wide[s : s + 1], size - 1 - s, 1) for s in range(rows)), None, None


toeplitz.defvjp(lambda values, i, j: (toeplitz(values, i, j), i.shape[1]), _toeplitz_backward)
