"""SmolLM 3: Llama without any position in every fourth layer, or in the layers that no_rope_layers marks with 0."""

from pe_jax.weights import positions
from pe_jax.weights.families import llama
from pe_jax.weights.family import Family

FAMILY = Family(
  'smollm3', 'SmolLM3ForCausalLM', llama.entries,
  keys=(*llama.keys(tied=True), llama.BIASES, llama.MLP_BIAS), shape=llama.SHAPE, positions=positions.some_layers,
)  # fmt: skip
