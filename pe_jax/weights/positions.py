"""A config's encoding as the keys of a config.json that say the same to transformers: the inverse of hf_config and hf_rope.

Each function takes a config and returns keys, or raises ConfigError with the part that its model types have no key for. Whether the keys
say exactly what the config says is not decided here: exporting.py reads them back.
"""

import inspect

from pe_jax import encodings
from pe_jax.encodings import frequency_maps
from pe_jax.encodings.grammar import Spec
from pe_jax.errors import ConfigError
from pe_jax.hf_rope import ORIGINAL

TYPES = {
  'rope': 'default', 'linear': 'linear', 'dynamic_ntk': 'dynamic', 'yarn': 'yarn', 'llama3': 'llama3', 'longrope': 'longrope',
  'p_rope': 'proportional',
}  # fmt: skip
# {our field: their key}, of what a map has beside base and fraction.
KEYS = {
  'factor': 'factor', 'beta_fast': 'beta_fast', 'beta_slow': 'beta_slow', 'attention_factor': 'attention_factor', 'mscale': 'mscale',
  'mscale_all_dim': 'mscale_all_dim', 'truncate': 'truncate', 'low': 'low_freq_factor', 'high': 'high_freq_factor',
  'short_factor': 'short_factor', 'long_factor': 'long_factor', 'p': 'partial_rotary_factor',
}  # fmt: skip


def written_out(spec, train_length):
  """The Spec with the length its frequencies were trained at, and the factor it has in training, written out."""
  spec = encodings.at_length(encodings.parse(spec) if isinstance(spec, str) else spec, train_length, train_length)
  inner = tuple(written_out(part, train_length) for part in spec.inner)
  spec = Spec(spec.name, spec.fields, inner)
  if spec.name in encodings.MAPS and 'original_length' in inspect.signature(getattr(frequency_maps, spec.name)).parameters:
    spec = spec.replace(original_length=spec.get('original_length') or train_length)
  return encodings.parse(str(spec))


def layers(config):
  """The Spec of each layer."""
  whole = encodings.parse(config.encoding)
  cycle = whole.inner if whole.name == 'layers' else (whole,)
  return [written_out(cycle[n % len(cycle)], config.train_length) for n in range(config.model.num_layers)]


def window(size, spec, num_heads):
  """The Spec of a layer whose queries see themselves and the size - 1 tokens before; `size` None: all."""
  return spec if size is None else Spec('stack', (), (spec, Spec('hard_alibi', (('windows', (size,) * num_heads),))))


def _only(specs):
  """The Spec that all layers have."""
  if len(set(specs)) > 1:
    raise ConfigError(f'encoding: layers differ, {specs[0]} and {next(s for s in specs if s != specs[0])}')
  return specs[0]


def _named(spec, name):
  if spec.name != name:
    raise ConfigError(f"encoding: it is '{spec}'")


def rope(spec, train_length, share=False):
  """`rope_parameters` and lengths. `share`: the part of a head that turns is always written."""
  if spec.name not in TYPES:
    raise ConfigError(f"encoding: '{spec}' is none of its rope types (those of {', '.join(TYPES)})")
  known = {**encodings.fields(spec.name), **dict(spec.fields)}
  kind, original = TYPES[spec.name], known.get('original_length') or train_length
  fields = {'rope_type': kind, 'rope_theta': float(known['base'])}
  if share or known['fraction'] != 1:
    fields['partial_rotary_factor'] = known['fraction']
  for ours, theirs in KEYS.items():
    plain = encodings.fields(spec.name).get(ours)
    if ours in known and (known[ours] != plain or ours in ('factor', 'low', 'high', 'p')):
      fields[theirs] = list(known[ours]) if isinstance(known[ours], tuple) else known[ours]
  stretched = kind in ('yarn', 'llama3', 'longrope')
  if stretched:
    fields[ORIGINAL] = original
  longest = round(original * known['factor']) if stretched else original if kind == 'dynamic' else train_length
  return {'rope_parameters': fields, 'max_position_embeddings': longest}


def rotary(config):
  """One rotary encoding in all layers."""
  return rope(_only(layers(config)), config.train_length)


def partly_rotary(config):
  """One rotary encoding, of which the turning share is written even where it is all."""
  return rope(_only(layers(config)), config.train_length, share=True)


def windowed(config):
  """One rotary encoding, under a window or without."""
  spec, size = _only(layers(config)), None
  if spec.name == 'stack' and len(spec.inner) == 2 and len(set(spec.inner[1].get('windows', ()))) == 1:
    spec, size = spec.inner[0], spec.inner[1].get('windows')[0]
  return {**rope(spec, config.train_length), 'sliding_window': size}


def some_layers(config):
  """One rotary encoding in some layers and none in the others."""
  specs = layers(config)
  turning = [spec for spec in specs if spec.name != 'nope']
  if not turning:
    raise ConfigError('encoding: no layer turns')
  return {**rope(_only(turning), config.train_length), 'no_rope_layers': [int(spec.name != 'nope') for spec in specs]}


def in_pairs(config):
  """The first dimensions of a head in neighbouring pairs, at the usual base."""
  spec = _only(layers(config))
  _named(spec, 'rope')
  return {'rotary_dim': int(spec.get('fraction', 1.0) * config.model.head_dim), 'n_positions': config.train_length}


def learned(config):
  """A table of positions."""
  spec = _only(layers(config))
  _named(spec, 'learned')
  return {'n_positions': spec.get('max_length') or config.train_length}


def alibi(config):
  """ALiBi with the slopes of its authors."""
  _named(_only(layers(config)), 'alibi')
  return {'seq_length': config.train_length}


def alibi_of_mpt(config):
  """ALiBi with the slopes of its authors: transformers 5.24 takes no notice of alibi_bias_max, by which MPT's own code raises them."""
  _named(_only(layers(config)), 'alibi')
  return {'max_seq_len': config.train_length, 'attn_config': {'alibi': True}}


def alibi_or_rotary(config):
  """Falcon has either."""
  spec = _only(layers(config))
  if spec.name == 'alibi':
    return {'alibi': True, 'max_position_embeddings': config.train_length}
  return {'alibi': False, **rope(spec, config.train_length)}
