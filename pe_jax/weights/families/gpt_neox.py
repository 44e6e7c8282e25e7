"""GPT-NeoX and Pythia: attention and MLP beside each other, each with a norm of its own; a part of each head turns, in halves."""

from pe_jax.weights import positions
from pe_jax.weights.entries import GROUPS, embedding, fused, head, linear, norm
from pe_jax.weights.families import llama
from pe_jax.weights.family import ACTIVATIONS, Family, Key


def entries(m):
  """The whole model."""
  yield embedding('gpt_neox.embed_in')
  for n in range(m.num_layers):
    theirs, ours = f'gpt_neox.layers.{n}', f'block_{n}'
    yield from norm(f'{theirs}.input_layernorm', f'{ours}/attention_norm', m.norm_bias)
    yield from norm(f'{theirs}.post_attention_layernorm', f'{ours}/mlp_norm', m.norm_bias)
    yield from fused(f'{theirs}.attention.query_key_value', ours, m, GROUPS)
    yield from linear(f'{theirs}.attention.dense', f'{ours}/attention/out', m.attention_out_bias)
    yield from linear(f'{theirs}.mlp.dense_h_to_4h', f'{ours}/mlp/up', m.mlp_bias)
    yield from linear(f'{theirs}.mlp.dense_4h_to_h', f'{ours}/mlp/down', m.mlp_bias)
  yield from norm('gpt_neox.final_layer_norm', 'final_norm', m.norm_bias)
  yield from head('embed_out', m)


FAMILY = Family(
  'gpt_neox', 'GPTNeoXForCausalLM', entries,
  keys=(
    Key('layer_norm_eps', 'norm_epsilon', 1e-5), Key('intermediate_size', 'mlp_dim'), Key('hidden_act', 'mlp', 'gelu', ACTIVATIONS),
    Key('tie_word_embeddings', 'tie_head', False), Key('use_parallel_residual', 'parallel_block', True),
    Key('attention_bias', 'qkv_bias attention_out_bias', True),
  ),
  facts={'norm': 'layer', 'norm_bias': True, 'mlp_bias': True},
  shape={ours: theirs for ours, theirs in llama.SHAPE.items() if ours not in ('num_kv_heads', 'head_dim')},
  positions=positions.partly_rotary, prefix='gpt_neox.', aliases={'lm_head.weight': 'embed_out.weight'},
  left_out=('.attention.bias', '.attention.masked_bias', '.rotary_emb.inv_freq'),
)  # fmt: skip
