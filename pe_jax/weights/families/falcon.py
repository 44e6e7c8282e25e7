"""Falcon: one key-value head (7B), groups of them (40B) or as many as queries (RW); beside or after each other; RoPE or ALiBi (RW).

Its ALiBi is added before scores are divided by the square root of a head's width, which hf_models puts into the slopes.
"""

from pe_jax.errors import ConfigError
from pe_jax.weights import positions
from pe_jax.weights.entries import GROUPS, embedding, fused, head, linear, norm
from pe_jax.weights.family import ACTIVATIONS, Family, Key


def entries(m):
  """The whole model."""
  two = m.parallel_block and not m.shared_block_norm
  first, second = ('ln_attn', 'ln_mlp') if two else ('input_layernorm', 'post_attention_layernorm')
  yield embedding('transformer.word_embeddings')
  for n in range(m.num_layers):
    theirs, ours = f'transformer.h.{n}', f'block_{n}'
    yield from norm(f'{theirs}.{first}', f'{ours}/attention_norm', m.norm_bias)
    if not m.shared_block_norm:
      yield from norm(f'{theirs}.{second}', f'{ours}/mlp_norm', m.norm_bias)
    yield from fused(f'{theirs}.self_attention.query_key_value', ours, m, GROUPS)
    yield from linear(f'{theirs}.self_attention.dense', f'{ours}/attention/out', m.attention_out_bias)
    yield from linear(f'{theirs}.mlp.dense_h_to_4h', f'{ours}/mlp/up', m.mlp_bias)
    yield from linear(f'{theirs}.mlp.dense_4h_to_h', f'{ours}/mlp/down', m.mlp_bias)
  yield from norm('transformer.ln_f', 'final_norm', m.norm_bias)
  yield from head('lm_head', m)


def more(given):
  """Which of the three shapes of block it is."""
  new, parallel = bool(given.get('new_decoder_architecture')), given.get('parallel_attn', True) is not False
  norms = given.get('num_ln_in_parallel_attn') or (2 if new else 1)
  if norms not in (1, 2) or (norms == 2 and not new) or (new and not parallel):
    raise ConfigError(
      f'config.json: num_ln_in_parallel_attn={norms} with new_decoder_architecture={new} and parallel_attn={parallel} is no block of Falcon'
    )
  return {'parallel_block': parallel, 'shared_block_norm': parallel and norms == 1}


def more_keys(fields):
  """The inverse of `more`, with the heads."""
  two = fields['parallel_block'] and not fields['shared_block_norm']
  own = fields['num_kv_heads'] == fields['num_heads']
  new = two or (fields['num_kv_heads'] > 1 and not own)
  keys = {'new_decoder_architecture': new, 'parallel_attn': fields['parallel_block'], 'multi_query': not new and not own}
  return {**keys, 'num_ln_in_parallel_attn': 2 if two else 1, 'num_kv_heads': fields['num_kv_heads']}


FAMILY = Family(
  'falcon', 'FalconForCausalLM', entries,
  keys=(
    Key('layer_norm_epsilon', 'norm_epsilon', 1e-5), Key('ffn_hidden_size', 'mlp_dim', 0), Key('activation', 'mlp', 'gelu', ACTIVATIONS),
    Key('tie_word_embeddings', 'tie_head', True), Key('bias', 'qkv_bias attention_out_bias mlp_bias', False),
  ),
  facts={'norm': 'layer', 'norm_bias': True},
  more=more, more_keys=more_keys,
  shape={'vocab_size': 'vocab_size', 'embed_dim': 'hidden_size', 'num_layers': 'num_hidden_layers', 'num_heads': 'num_attention_heads'},
  positions=positions.alibi_or_rotary, prefix='transformer.',
)  # fmt: skip
