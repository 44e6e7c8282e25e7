"""Stick-breaking attention: each key, from the nearest back, takes a share of what the nearer ones have left.

    A_ij = sigma(z_ij) prod_{j < l < i} (1 - sigma(z_il)),   j < i

Tan et al., 2024, arXiv:2410.17980. There is no other notion of position: recency comes from the order of breaking. As in the authors'
code a token does not attend to itself, and what remains of the stick is not given to anybody, so rows sum to less than 1.
"""

import jax
import jax.numpy as jnp

from pe_jax.encodings.base import Encoding, Traits


def weights(s_BHTS, visible):
  """The shares, float32. Keys stand in the order of their positions; hidden ones take nothing."""
  # ln(1 - sigma(z)) = -softplus(z); the shares left by all nearer keys are a sum of these from the right.
  left = jnp.where(visible, jax.nn.softplus(s_BHTS), 0.0)
  nearer = jax.lax.cumsum(left, axis=3, reverse=True) - left
  return jnp.where(visible, jnp.exp(jax.nn.log_sigmoid(s_BHTS) - nearer), 0.0)


def encoding(dims):
  """The record."""
  del dims
  return Encoding(
    visible=lambda tables, where: (where.distance_BTS() > 0)[:, None],
    normalise=lambda tables, s, visible: weights(s, visible),
    traits=Traits(relative=True),
  )
