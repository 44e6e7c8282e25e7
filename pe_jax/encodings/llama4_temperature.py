"""Llama 4's temperature: scores grow with the logarithm of the query's position, in steps of `floor_scale` tokens.

    s_ij x (1 + attn_scale ln(floor((i + 1) / floor_scale) + 1))

Meta, 2025, used in the layers without RoPE: layers(rope, rope, rope, llama4_temperature(nope)). Exactly 1 below floor_scale - 1.
"""

import jax.numpy as jnp

from pe_jax.encodings import stack
from pe_jax.encodings.base import Encoding
from pe_jax.errors import ConfigError


def encoding(dims, inner='nope', *, attn_scale=0.1, floor_scale=8192):
  """The record. `floor_scale`: tokens."""
  if floor_scale < 1:
    raise ConfigError(f'encoding: llama4_temperature: floor_scale={floor_scale} must be at least 1')

  def scale(tables, where):
    del tables
    step_BT = (where.i_BT + 1) // floor_scale
    return 1.0 + attn_scale * jnp.log1p(step_BT.astype(jnp.float32))[:, None, :, None]

  return stack.several('llama4_temperature', [inner(dims), Encoding(scale=scale)], dims.num_layers)
