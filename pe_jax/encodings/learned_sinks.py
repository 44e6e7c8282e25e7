"""Learned sinks: one more number a head in the denominator of the softmax, where attention can go that belongs to no token.

    A_ij = exp(s_ij) / (exp(sink_h) + sum_l exp(s_il))

As in gpt-oss (OpenAI, 2025, arXiv:2508.10925), a number for each layer and head; with all of them 0 it is the softmax-off-by-one. It has no
position in it and usually stands beside something that has: stack(rope, learned_sinks). Sinks made of first tokens are `sinks`.
"""

import jax.numpy as jnp

from pe_jax.encodings.base import Encoding, Traits
from pe_jax.encodings.combine import each_layer


def weights(sink_H, s_BHTS, visible):
  """The weights of tokens, float32; a row sums to less than 1, and to 0 where nothing is visible."""
  sink = sink_H[None, :, None, None]
  peak = jnp.maximum(jnp.max(s_BHTS, axis=-1, keepdims=True, where=visible, initial=-1e30), sink)
  weight = jnp.where(visible, jnp.exp(jnp.where(visible, s_BHTS - peak, 0.0)), 0.0)
  return weight / (jnp.exp(sink - peak) + jnp.sum(weight, axis=-1, keepdims=True))


def encoding(dims):
  """The record."""
  record = Encoding(
    init=lambda key: {'sink': jnp.zeros(dims.num_heads)},
    prepare=lambda params, where: params['sink'],
    normalise=weights,
    traits=Traits(relative=True),
  )
  return each_layer(record, dims.num_layers)
