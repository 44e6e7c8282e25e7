"""GPT-J: attention and MLP beside each other behind one norm; the first rotary_dim numbers of a head turn in neighbouring pairs."""

from pe_jax.weights import positions
from pe_jax.weights.entries import embedding, head, linear, norm
from pe_jax.weights.family import ACTIVATIONS, Family, Key


def entries(m):
  """The whole model."""
  yield embedding('transformer.wte')
  for n in range(m.num_layers):
    theirs, ours = f'transformer.h.{n}', f'block_{n}'
    yield from norm(f'{theirs}.ln_1', f'{ours}/attention_norm', m.norm_bias)
    for short, name in (('q', 'query'), ('k', 'key'), ('v', 'value')):
      yield from linear(f'{theirs}.attn.{short}_proj', f'{ours}/attention/{name}', m.qkv_bias)
    yield from linear(f'{theirs}.attn.out_proj', f'{ours}/attention/out', m.attention_out_bias)
    yield from linear(f'{theirs}.mlp.fc_in', f'{ours}/mlp/up', m.mlp_bias)
    yield from linear(f'{theirs}.mlp.fc_out', f'{ours}/mlp/down', m.mlp_bias)
  yield from norm('transformer.ln_f', 'final_norm', m.norm_bias)
  yield from head('lm_head', m)


FAMILY = Family(
  'gptj', 'GPTJForCausalLM', entries,
  keys=(
    Key('layer_norm_epsilon', 'norm_epsilon', 1e-5), Key('n_inner', 'mlp_dim', 0),
    Key('activation_function', 'mlp', 'gelu_new', ACTIVATIONS),
    Key('tie_word_embeddings', 'tie_head', False),
  ),
  facts={'norm': 'layer', 'norm_bias': True, 'mlp_bias': True, 'head_bias': True, 'parallel_block': True, 'shared_block_norm': True},
  shape={'vocab_size': 'vocab_size', 'embed_dim': 'n_embd', 'num_layers': 'n_layer', 'num_heads': 'n_head'},
  positions=positions.in_pairs, prefix='transformer.', left_out=('.attn.bias', '.attn.masked_bias'),
)  # fmt: skip
