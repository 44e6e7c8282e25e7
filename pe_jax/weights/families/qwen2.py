"""Qwen 2 and 2.5: Llama with biases on queries, keys and values, and on nothing else."""

from pe_jax.weights import positions
from pe_jax.weights.families import llama
from pe_jax.weights.family import Family

FAMILY = Family(
  'qwen2', 'Qwen2ForCausalLM', llama.entries, keys=llama.keys(), facts={'qkv_bias': True}, shape=llama.SHAPE, positions=positions.rotary
)
