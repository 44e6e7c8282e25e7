"""Qwen 3: Llama with queries and keys normed over each head before they are turned; a head need not be width / heads."""

from pe_jax.weights import positions
from pe_jax.weights.families import llama
from pe_jax.weights.family import Family

FAMILY = Family(
  'qwen3', 'Qwen3ForCausalLM', llama.entries,
  keys=(*llama.keys(), llama.BIASES), facts={'qk_norm': 'head'}, shape=llama.SHAPE, positions=positions.rotary,
)  # fmt: skip
