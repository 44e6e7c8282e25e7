"""Llama 1 to 3, SmolLM2 and all that say they are: norms of mean squares before gated layers, RoPE in halves, grouped keys.

The names and keys here are those of its many relatives too.
"""

from pe_jax.errors import ConfigError
from pe_jax.weights import positions
from pe_jax.weights.entries import embedding, head, linear, norm
from pe_jax.weights.family import GATES, Family, Key

BIASES = Key('attention_bias', 'qkv_bias attention_out_bias', False)
MLP_BIAS = Key('mlp_bias', 'mlp_bias', False)
SHAPE = {
  'vocab_size': 'vocab_size', 'embed_dim': 'hidden_size', 'num_layers': 'num_hidden_layers', 'num_heads': 'num_attention_heads',
  'num_kv_heads': 'num_key_value_heads', 'head_dim': 'head_dim',
}  # fmt: skip


def keys(epsilon=1e-6, tied=False, activations=GATES, activation='silu'):
  """What the relatives share: norm epsilon, widths, activation, tied heads."""
  return (
    Key('rms_norm_eps', 'norm_epsilon', epsilon),
    Key('intermediate_size', 'mlp_dim'),
    Key('hidden_act', 'mlp', activation, activations),
    Key('tie_word_embeddings', 'tie_head', tied),
  )


def entries(m, norms=('input_layernorm', 'post_attention_layernorm'), gated=True):
  """The whole model. `norms`: names of the attention's norm and the MLP's."""
  yield embedding('model.embed_tokens')
  for n in range(m.num_layers):
    theirs, ours = f'model.layers.{n}', f'block_{n}'
    yield from norm(f'{theirs}.{norms[0]}', f'{ours}/attention_norm', m.norm_bias)
    yield from norm(f'{theirs}.{norms[1]}', f'{ours}/mlp_norm', m.norm_bias)
    for short, name in (('q', 'query'), ('k', 'key'), ('v', 'value')):
      yield from linear(f'{theirs}.self_attn.{short}_proj', f'{ours}/attention/{name}', m.qkv_bias)
      if m.qk_norm != 'none' and short != 'v':
        yield from norm(f'{theirs}.self_attn.{short}_norm', f'{ours}/attention/{name}_norm', False)
    yield from linear(f'{theirs}.self_attn.o_proj', f'{ours}/attention/out', m.attention_out_bias)
    for name in ('gate', 'up', 'down') if gated else ('up', 'down'):
      yield from linear(f'{theirs}.mlp.{name}_proj', f'{ours}/mlp/{name}', m.mlp_bias)
  yield from norm('model.norm', 'final_norm', m.norm_bias)
  yield from head('lm_head', m)


def whole_heads(fields):
  """No keys; refuses what the config classes of transformers refuse, whatever head_dim says."""
  width, heads = fields['embed_dim'], fields['num_heads']
  if width % heads:
    raise ConfigError(f'model.num_heads: {heads} heads do not divide a width of {width}, which it must')
  return {}


FAMILY = Family(
  'llama', 'LlamaForCausalLM', entries, keys=(*keys(), BIASES, MLP_BIAS), shape=SHAPE, positions=positions.rotary, more_keys=whole_heads
)
