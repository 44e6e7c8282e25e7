"""Arcee: Llama with a plain MLP, which is what pe_jax.config.default() trains with RoPE."""

import functools

from pe_jax.weights import positions
from pe_jax.weights.families import llama
from pe_jax.weights.family import ACTIVATIONS, Family

FAMILY = Family(
  'arcee', 'ArceeForCausalLM', functools.partial(llama.entries, gated=False),
  keys=(*llama.keys(epsilon=1e-5, activations=ACTIVATIONS, activation='relu2'), llama.BIASES, llama.MLP_BIAS),
  shape=llama.SHAPE, positions=positions.rotary, more_keys=llama.whole_heads,
)  # fmt: skip
