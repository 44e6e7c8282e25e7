"""The model types whose position mechanism is known: how to read it from a config.json, and what transformers takes for what is not there.

A reader is a function of an `hf_config._Config`.
"""

import dataclasses
import math

from pe_jax import hf_rope
from pe_jax.encodings.grammar import Spec
from pe_jax.errors import ConfigError

FULL, SLIDING = 'full_attention', 'sliding_attention'


def _rotary(c):
  """A model whose queries and keys are turned."""
  kinds, notes = _kinds_of_layers(c), []
  specs, lengths = {}, []
  for kind in dict.fromkeys(kinds):
    where, fields = _rope_fields(c, kind)
    specs[kind], length = hf_rope.encoding(fields, where, longest=c.length(), head_dim=c.head_dim(), notes=notes)
    lengths += [length] if length else []
  layers = [specs[kind] if turns else Spec('nope') for kind, turns in zip(kinds, _turning(c, len(kinds)))]
  windows = [c.get('sliding_window') if kind == SLIDING else None for kind in kinds]
  declaration = c.declaration(layers, windows, [*notes, *_remarks(c)])
  return dataclasses.replace(declaration, train_length=min(lengths, default=declaration.max_length))


def _kinds_of_layers(c):
  """full_attention or sliding_attention for each layer: as written, or else by the model type's rule."""
  depth, kinds, every, first = (c.number('layers'), *(c.get(k) for k in ('layer_types', 'sliding_window_pattern', 'max_window_layers')))
  if c.get('sliding_window') is None or c.get('use_sliding_window') is False:
    return [FULL] * depth
  if kinds is None and every is None and first is None:
    raise ConfigError(f'config.json: sliding_window={c.get("sliding_window")} without layer_types: which layers have it is not known')
  if kinds is None:
    slides = [(n + 1) % every != 0 if every else n >= first for n in range(depth)]
    kinds = [SLIDING if x else FULL for x in slides]
  for kind in kinds:
    if kind not in (FULL, SLIDING):
      raise ConfigError(f'config.json: layer_types: {kind!r} is not known (known: {FULL}, {SLIDING})')
  if len(kinds) != depth:
    raise ConfigError(f'config.json: layer_types: {len(kinds)} entries for {depth} layers')
  return kinds


def _rope_fields(c, kind):
  """(name in messages, {key: value}) of the rope fields for one kind of layers."""
  local = kind == SLIDING and 'rope_local_base_freq' in c.defaults  # Gemma 3: these layers have a base of their own and no scaling
  where, new = _rope_parameters(c, kind)
  old = {} if local else _object(c.given, 'rope_scaling')
  if not new and not old:
    new = c.defaults.get('rope_parameters', {})
  said = [(f'{where}.{key}', key, value) for key, value in new.items()]
  said += [(f'rope_scaling.{key}', key, value) for key, value in old.items()]
  beside = _beside(c, local, _rope_type(c, hf_rope.merged(said)))
  fields = hf_rope.merged([*said, *((key, name, c.given.get(key)) for name, key in beside.items())])
  for name, key in beside.items():
    if c.defaults.get(key) is not None:
      fields.setdefault(name, c.defaults[key])
  # A base or share under the other model types' name counts for nothing there, so it may only say the same.
  fields = hf_rope.merged(
    [(beside.get(name, name), name, value) for name, value in fields.items()]
    + [(name, name, c.given.get(name)) for name in beside if not local]
  )
  kind, share = _rope_type(c, fields), fields.get('partial_rotary_factor', 1)
  if share != 1 and kind != 'proportional' and beside['partial_rotary_factor'] not in c.defaults:
    raise ConfigError(f'config.json: partial_rotary_factor={share!r} has no effect with model_type={c.kind!r}, which turns whole heads')
  return where if new or not old else 'rope_scaling', {**fields, 'rope_type': kind}


def _rope_parameters(c, kind):
  """(name in messages, fields): the new spelling, flat or one set for each kind of layer."""
  new, each = _object(c.given, 'rope_parameters'), 'rope_local_base_freq' in c.defaults
  nested = [key for key in new if key in (FULL, SLIDING)]
  if not nested and not (each and new):
    return 'rope_parameters', new
  for key in new:
    if key not in nested:
      raise ConfigError(f"config.json: rope_parameters: the key '{key}' is not known (known: {FULL}, {SLIDING})")
  if kind not in new and not each:
    raise ConfigError(f'config.json: rope_parameters: {kind} is missing')
  return f'rope_parameters.{kind}', _object(new, kind)


def _beside(c, local, rope_type):
  """{what it is: the key beside the rope fields that says it}, by model type."""
  neox = 'rotary_pct' in c.defaults
  keys = {
    'rope_theta': 'rope_local_base_freq' if local else 'rotary_emb_base' if neox else 'rope_theta',
    'partial_rotary_factor': 'rotary_pct' if neox else 'partial_rotary_factor',
  }
  return {**keys, hf_rope.ORIGINAL: hf_rope.ORIGINAL} if hf_rope.ORIGINAL in hf_rope.KEYS.get(rope_type, ()) else keys


def _rope_type(c, fields):
  kind = fields.get('rope_type', 'default')
  return 'longrope' if c.kind == 'phi3' and kind in ('su', 'yarn') else kind  # older names of it in this model type


def _object(config, key):
  value = config.get(key) or {}
  if not isinstance(value, dict):
    raise ConfigError(f'config.json: {key}: an object is wanted, not {value!r}')
  return value


def _turning(c, depth):
  """1 for each layer that has the encoding, 0 for each without any."""
  every, turning = c.get('no_rope_layer_interval'), c.get('no_rope_layers')
  turning = turning or [int(not every or (n + 1) % every != 0) for n in range(depth)]
  if len(turning) != depth:
    raise ConfigError(f'config.json: no_rope_layers: {len(turning)} entries for {depth} layers')
  return turning


def _remarks(c):
  """What changes scores beside position."""
  if c.kind == 'gpt_oss':
    yield "a learned number a head stands in the softmax's denominator"
  if c.get('attn_logit_softcapping'):
    yield f'scores are capped softly at {c.get("attn_logit_softcapping"):g}'
  scalar = c.get('query_pre_attn_scalar')
  if scalar and scalar != c.head_dim():
    yield f'scores are divided by sqrt({scalar:g}), not by sqrt(head_dim)'


def _gptj(c):
  width, head = c.get('rotary_dim'), c.head_dim()
  if type(width) is not int or not 0 < width <= head:
    raise ConfigError(f'config.json: rotary_dim={width!r} must be in 1..{head}, the width of a head')
  fields = {'partial_rotary_factor': width / head}
  return c.declaration(hf_rope.encoding(fields, 'rotary_dim', longest=c.length(), head_dim=head, notes=[], layout='interleaved')[0])


def _learned(c):
  notes = ['position p reads row p + 2 of the stored table, which has two rows more'] if c.kind == 'opt' else []
  return c.declaration(Spec('learned', (('max_length', c.number('length')),)), notes=notes)


def _alibi(c):
  attention = _object(c.given, 'attn_config')
  if attention.get('alibi', True) is not True or attention.get('rope'):
    raise ConfigError('config.json: attn_config: without alibi, the position mechanism is not known')
  most = attention.get('alibi_bias_max')
  most = 8 if most is None else most
  if type(most) not in (int, float) or not most > 0:
    raise ConfigError(f'config.json: attn_config: alibi_bias_max={most!r} is no number above 0')
  steeper = most / 8
  return c.declaration(_slopes(c.number('heads'), lambda slope: slope**steeper) if steeper != 1 else Spec('alibi'))


def _falcon(c):
  heads = c.number('heads')
  own = c.get('new_decoder_architecture') or not c.get('multi_query')
  shape = {'num_kv_heads': c.number('kv_heads', heads) if own else 1}
  if not c.get('alibi'):
    return dataclasses.replace(_rotary(c), **shape)
  width = c.head_dim()
  notes = [f'its bias is added before scores are divided by sqrt({width}), so slopes are as much smaller; it rounds them to bfloat16']
  return c.declaration(_slopes(heads, lambda slope: slope / math.sqrt(width)), notes=notes, **shape)


def _slopes(heads, change):
  """ALiBi with its slopes changed."""
  from pe_jax.encodings import alibi  # here, so that most files are read without importing jax

  return Spec('alibi', (('slopes', tuple(float(f'{change(float(x)):.8g}') for x in alibi.slopes(heads))),))


def _t5(c):
  fields = {'num_buckets': c.get('relative_attention_num_buckets'), 'max_distance': c.get('relative_attention_max_distance')}
  given = tuple((key, value) for key, value in fields.items() if value != {'num_buckets': 32, 'max_distance': 128}[key])
  notes = ['scores are not divided by sqrt(head_dim)', 'this is the decoder; its encoder has bidirectional=True']
  depth = c.get('num_decoder_layers') or c.number('layers')
  return c.declaration([Spec('t5', given)] * depth, notes=notes)


INSIDE = {'gemma3': 'gemma3_text'}  # models with a language model inside
# model_type: (reader, what transformers 5.24 takes for keys that a file leaves out). Where layer_types does not say which layers have the
# window: all but each n-th with sliding_window_pattern=n, else those from max_window_layers on.
MODELS = {
  'llama': (_rotary, {}),
  'mistral': (_rotary, {'num_key_value_heads': 8, 'sliding_window': 4096, 'max_window_layers': 0}),
  'mixtral': (_rotary, {'num_key_value_heads': 8, 'max_window_layers': 0, 'rope_theta': 1e6}),
  'qwen2': (_rotary, {'num_key_value_heads': 32, 'use_sliding_window': False, 'sliding_window': 4096, 'max_window_layers': 28}),
  'qwen3': (
    _rotary,
    {'num_key_value_heads': 32, 'use_sliding_window': False, 'sliding_window': 4096, 'max_window_layers': 28, 'head_dim': 128},
  ),
  'olmo2': (_rotary, {}),
  'arcee': (_rotary, {}),
  'smollm3': (_rotary, {'rope_theta': 2e6, 'num_key_value_heads': 4, 'no_rope_layer_interval': 4, 'use_sliding_window': False}),
  'phi': (_rotary, {'partial_rotary_factor': 0.5}),
  'phi3': (_rotary, {'partial_rotary_factor': 1.0, hf_rope.ORIGINAL: 4096, 'max_window_layers': 0}),
  'gemma': (_rotary, {'head_dim': 256, 'num_key_value_heads': 16}),
  'gemma2': (
    _rotary,
    {
      'head_dim': 256, 'num_key_value_heads': 4, 'sliding_window': 4096, 'sliding_window_pattern': 2, 'attn_logit_softcapping': 50.0,
      'query_pre_attn_scalar': 256,
    },
  ),
  'gemma3_text': (
    _rotary,
    {
      'head_dim': 256, 'num_attention_heads': 8, 'num_key_value_heads': 4, 'max_position_embeddings': 131_072, 'sliding_window': 4096,
      'sliding_window_pattern': 6, 'query_pre_attn_scalar': 256, 'rope_theta': 1e6, 'rope_local_base_freq': 1e4,
    },
  ),
  'gpt_oss': (
    _rotary,
    {
      'head_dim': 64, 'num_key_value_heads': 8, 'sliding_window': 128, 'sliding_window_pattern': 2, 'rope_theta': 150_000.0,
      'rope_parameters': {'rope_type': 'yarn', 'factor': 32.0, 'truncate': False, hf_rope.ORIGINAL: 4096},
    },
  ),
  'gpt_neox': (_rotary, {'rotary_emb_base': 1e4, 'rotary_pct': 0.25}),
  'gptj': (_gptj, {'rotary_dim': 64}),
  'gpt2': (_learned, {}),
  'opt': (_learned, {}),
  'bloom': (_alibi, {}),
  'mpt': (_alibi, {}),
  'falcon': (_falcon, {'multi_query': True, 'max_position_embeddings': 2048}),
  't5': (_t5, {'d_kv': 64, 'relative_attention_num_buckets': 32, 'relative_attention_max_distance': 128}),
}  # fmt: skip
