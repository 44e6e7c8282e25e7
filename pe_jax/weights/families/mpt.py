"""MPT: ALiBi, norms and projections without shifts; queries, keys and values lie one after the other."""

from pe_jax.weights import positions
from pe_jax.weights.entries import BLOCKS, embedding, fused, head, linear, norm
from pe_jax.weights.family import Family, Key


def entries(m):
  """The whole model."""
  yield embedding('transformer.wte')
  for n in range(m.num_layers):
    theirs, ours = f'transformer.blocks.{n}', f'block_{n}'
    yield from norm(f'{theirs}.norm_1', f'{ours}/attention_norm', False)
    yield from norm(f'{theirs}.norm_2', f'{ours}/mlp_norm', False)
    yield from fused(f'{theirs}.attn.Wqkv', ours, m, BLOCKS)
    yield from linear(f'{theirs}.attn.out_proj', f'{ours}/attention/out', False)
    yield from linear(f'{theirs}.ffn.up_proj', f'{ours}/mlp/up', False)
    yield from linear(f'{theirs}.ffn.down_proj', f'{ours}/mlp/down', False)
  yield from norm('transformer.norm_f', 'final_norm', False)
  yield from head('lm_head', m)


FAMILY = Family(
  'mpt', 'MptForCausalLM', entries,
  keys=(Key('layer_norm_epsilon', 'norm_epsilon', 1e-5), Key('tie_word_embeddings', 'tie_head', True)),
  facts={'norm': 'layer', 'mlp': 'gelu_exact', 'mlp_dim': 0},
  only={
    'expansion_ratio': 4, 'no_bias': True, 'logit_scale': None, 'attn_config.clip_qkv': None, 'attn_config.softmax_scale': None,
    'attn_config.qk_ln': False, 'attn_config.prefix_lm': False, 'attn_config.attn_type': 'multihead_attention',
  },
  shape={'vocab_size': 'vocab_size', 'embed_dim': 'd_model', 'num_layers': 'n_layers', 'num_heads': 'n_heads'},
  positions=positions.alibi_of_mpt, prefix='transformer.',
)  # fmt: skip
