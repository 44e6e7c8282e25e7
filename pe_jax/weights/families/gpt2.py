"""GPT-2: a learned table of positions added to the embedding; biases everywhere; projections stored untransposed."""

from pe_jax.weights import positions
from pe_jax.weights.entries import BLOCKS, Entry, embedding, fused, head, norm, untransposed
from pe_jax.weights.family import ACTIVATIONS, Family, Key


def entries(m):
  """The whole model."""
  yield embedding('transformer.wte')
  yield Entry('transformer.wpe.weight', ('encoding/table',))
  for n in range(m.num_layers):
    theirs, ours = f'transformer.h.{n}', f'block_{n}'
    yield from norm(f'{theirs}.ln_1', f'{ours}/attention_norm', m.norm_bias)
    yield from norm(f'{theirs}.ln_2', f'{ours}/mlp_norm', m.norm_bias)
    yield from fused(f'{theirs}.attn.c_attn', ours, m, BLOCKS, transposed=False)
    yield from untransposed(f'{theirs}.attn.c_proj', f'{ours}/attention/out', m.attention_out_bias)
    yield from untransposed(f'{theirs}.mlp.c_fc', f'{ours}/mlp/up', m.mlp_bias)
    yield from untransposed(f'{theirs}.mlp.c_proj', f'{ours}/mlp/down', m.mlp_bias)
  yield from norm('transformer.ln_f', 'final_norm', m.norm_bias)
  yield from head('lm_head', m)


FAMILY = Family(
  'gpt2', 'GPT2LMHeadModel', entries,
  keys=(
    Key('layer_norm_epsilon', 'norm_epsilon', 1e-5), Key('n_inner', 'mlp_dim', 0),
    Key('activation_function', 'mlp', 'gelu_new', ACTIVATIONS),
    Key('tie_word_embeddings', 'tie_head', True),
  ),
  facts={'norm': 'layer', 'norm_bias': True, 'qkv_bias': True, 'attention_out_bias': True, 'mlp_bias': True},
  only={'scale_attn_weights': True, 'scale_attn_by_inverse_layer_idx': False, 'add_cross_attention': False},
  shape={'vocab_size': 'vocab_size', 'embed_dim': 'n_embd', 'num_layers': 'n_layer', 'num_heads': 'n_head'},
  positions=positions.learned, prefix='transformer.', left_out=('.attn.bias', '.attn.masked_bias'),
)  # fmt: skip
