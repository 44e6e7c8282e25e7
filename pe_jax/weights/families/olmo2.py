"""OLMo 2: norms after attention and MLP, x + norm(f(x)), and queries and keys normed over all heads at once."""

import functools

from pe_jax.weights import positions
from pe_jax.weights.families import llama
from pe_jax.weights.family import Family

FAMILY = Family(
  'olmo2', 'Olmo2ForCausalLM',
  functools.partial(llama.entries, norms=('post_attention_layernorm', 'post_feedforward_layernorm')),
  keys=(*llama.keys(epsilon=1e-5), llama.BIASES), facts={'qk_norm': 'full', 'norm_place': 'after'}, shape=llama.SHAPE,
  positions=positions.rotary,
)  # fmt: skip
