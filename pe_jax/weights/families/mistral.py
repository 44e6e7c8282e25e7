"""Mistral: Llama whose queries may see a window alone. No biases."""

from pe_jax.weights import positions
from pe_jax.weights.families import llama
from pe_jax.weights.family import Family

FAMILY = Family('mistral', 'MistralForCausalLM', llama.entries, keys=llama.keys(), shape=llama.SHAPE, positions=positions.windowed)
