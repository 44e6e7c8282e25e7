"""PoPE: what a dimension says is its size, where it stands is its angle, and the two do not mix.

    score = sum_c mu(q_c) mu(k_c) cos((i - j) theta_c - delta_c) / sqrt(K),   mu = softplus,   theta_c = base^(-c/K),   c = 0 .. K - 1

Gopalakrishnan et al., 2025, arXiv:2509.10534. RoPE's pairs have an angle of their own already, which depends on content; here every
dimension is one such pair with only a size, so there are K frequencies and queries and keys grow to 2K. delta, learned for each layer and
key head, is kept in [-2 pi, 0] and starts at 0.
"""

import jax
import jax.numpy as jnp
import numpy as np

from pe_jax.encodings import phases
from pe_jax.encodings.base import Encoding, Traits
from pe_jax.encodings.combine import each_layer
from pe_jax.errors import ConfigError


def frequencies(head_dim, base=10_000.0):
  """theta, float64 (K,), fastest first: radians per position."""
  if not base > 1:
    raise ConfigError(f'encoding: base={base} must be above 1 (10000 is usual)')
  return float(base) ** (-np.arange(head_dim) / head_dim)


def polar(x_BTHK, cos, sin):
  """Sizes at angles as pairs of coordinates, (B, T, H, 2K), in x's dtype; computed in float32. cos and sin broadcast to x."""
  size = jax.nn.softplus(x_BTHK.astype(jnp.float32))
  return jnp.concatenate([size * cos, size * sin], axis=-1).astype(x_BTHK.dtype)


def encoding(dims, *, base=10_000.0):
  """The record."""
  frequency_F = frequencies(dims.head_dim, base)

  def rotate(tables, q_BTHK, k_BSGK):
    delta_GK, (cos_q, sin_q), (cos_k, sin_k) = tables
    delta = jnp.clip(delta_GK, -2 * np.pi, 0.0)[None, None]
    cos_d, sin_d, cos_k, sin_k = jnp.cos(delta), jnp.sin(delta), cos_k[:, :, None], sin_k[:, :, None]
    k = polar(k_BSGK, cos_k * cos_d - sin_k * sin_d, sin_k * cos_d + cos_k * sin_d)
    return polar(q_BTHK, cos_q[:, :, None], sin_q[:, :, None]), k

  record = Encoding(
    init=lambda key: {'delta': jnp.zeros((dims.num_kv_heads, dims.head_dim), jnp.float32)},
    prepare=lambda params, where: (params['delta'], phases.cos_sin(where.i_BT, frequency_F), phases.cos_sin(where.j_BS, frequency_F)),
    rotate=rotate,
    traits=Traits(relative=True, cache='raw'),
  )
  return each_layer(record, dims.num_layers)
