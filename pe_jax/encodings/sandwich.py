"""Sandwich: the inner product of two sinusoidal embeddings as a bias, weaker for each further head.

    b_h(i, j) = (sum_n cos(|i - j| / 10000^(2n/width)) - width/2) / (8h/H),   n = 0 .. width/2 - 1,   h = 1 .. H

Chi, Fan, Rudnicky, Ramadge, 2022, arXiv:2212.10356. The sum is <p_i, p_j> for rows of a sinusoidal table of `width` (128 in the paper);
taking width/2 away makes it 0 at distance 0 and cancels in the softmax.
"""

import jax.numpy as jnp
import numpy as np

from pe_jax.encodings import phases, sinusoidal
from pe_jax.encodings.base import Encoding, Traits


def bias(num_heads, distance, width=128):
  """The bias of each head, float32, shape (H, *distance.shape)."""
  cos = jnp.cos(phases.angle(jnp.abs(jnp.asarray(distance)), sinusoidal.frequencies(width)))
  strength_H = (8 * np.arange(1, num_heads + 1) / num_heads).astype(np.float32)
  return jnp.sum(cos - 1.0, axis=-1)[None] / strength_H.reshape((-1,) + (1,) * (cos.ndim - 1))


def encoding(dims, *, width=128):
  """The record."""
  sinusoidal.frequencies(width)
  return Encoding(
    distance_bias=lambda tables, distance: bias(dims.num_heads, distance, width),
    traits=Traits(relative=True),
  )
