"""BLOOM: ALiBi, and a norm right after the embedding."""

from pe_jax.weights import positions
from pe_jax.weights.entries import GROUPS, embedding, fused, head, linear, norm
from pe_jax.weights.family import Family, Key


def entries(m):
  """The whole model."""
  yield embedding('transformer.word_embeddings')
  yield from norm('transformer.word_embeddings_layernorm', 'embed_norm', m.norm_bias)
  for n in range(m.num_layers):
    theirs, ours = f'transformer.h.{n}', f'block_{n}'
    yield from norm(f'{theirs}.input_layernorm', f'{ours}/attention_norm', m.norm_bias)
    yield from norm(f'{theirs}.post_attention_layernorm', f'{ours}/mlp_norm', m.norm_bias)
    yield from fused(f'{theirs}.self_attention.query_key_value', ours, m, GROUPS)
    yield from linear(f'{theirs}.self_attention.dense', f'{ours}/attention/out', m.attention_out_bias)
    yield from linear(f'{theirs}.mlp.dense_h_to_4h', f'{ours}/mlp/up', m.mlp_bias)
    yield from linear(f'{theirs}.mlp.dense_4h_to_h', f'{ours}/mlp/down', m.mlp_bias)
  yield from norm('transformer.ln_f', 'final_norm', m.norm_bias)
  yield from head('lm_head', m)


FAMILY = Family(
  'bloom', 'BloomForCausalLM', entries,
  keys=(Key('layer_norm_epsilon', 'norm_epsilon', 1e-5), Key('tie_word_embeddings', 'tie_head', True)),
  facts={
    'norm': 'layer', 'norm_bias': True, 'qkv_bias': True, 'attention_out_bias': True, 'mlp_bias': True, 'embed_norm': True, 'mlp': 'gelu',
    'mlp_dim': 0,
  },
  only={'apply_residual_connection_post_layernorm': False},
  shape={'vocab_size': 'vocab_size', 'embed_dim': 'hidden_size', 'num_layers': 'n_layer', 'num_heads': 'n_head'},
  positions=positions.alibi, prefix='transformer.',
)  # fmt: skip
