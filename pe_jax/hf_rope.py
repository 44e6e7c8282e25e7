"""The rope fields of a Hugging Face config.json as one encoding of our grammar.

    encoding({'rope_type': 'yarn', 'factor': 4, 'rope_theta': 1e6}, …)   ->   yarn(factor=4, base=1000000, original_length=32768)

The rope types are those of transformers 5.24 and the keys of each are the ones it uses; any other key is refused.
"""

import math

from pe_jax.encodings.grammar import Spec
from pe_jax.errors import ConfigError

SHARED = ('rope_type', 'type', 'rope_theta', 'partial_rotary_factor')  # known with every rope type
ORIGINAL = 'original_max_position_embeddings'
KEYS = {
  'default': (),
  'linear': ('factor',),
  'dynamic': ('factor',),
  'yarn': ('factor', ORIGINAL, 'attention_factor', 'beta_fast', 'beta_slow', 'mscale', 'mscale_all_dim', 'truncate'),
  'llama3': ('factor', ORIGINAL, 'low_freq_factor', 'high_freq_factor'),
  'longrope': ('factor', ORIGINAL, 'attention_factor', 'short_factor', 'long_factor'),
  'proportional': ('factor',),
}
REQUIRED = {
  'linear': ('factor',),
  'dynamic': ('factor',),
  'llama3': ('factor', 'low_freq_factor', 'high_freq_factor'),
  'longrope': ('short_factor', 'long_factor'),
}
# Fields of the specs made here, in the order of canonical strings, and the values that are left out of them.
DEFAULTS = {
  'factor': None, 'beta_fast': 32.0, 'beta_slow': 1.0, 'attention_factor': 0.0, 'mscale': 0.0, 'mscale_all_dim': 0.0, 'truncate': True,
  'low': 1.0, 'high': 4.0, 'short_factor': None, 'long_factor': None, 'p': 0.75, 'base': 10_000.0, 'fraction': 1.0, 'layout': 'half',
  'original_length': 0,
}  # fmt: skip


def merged(said):
  """{key: value} of what is said in several places; `type` is `rope_type`. Nulls say nothing, contradictions are refused.

  Args:
    said: triples (where it stands, for the message; key; value).
  """
  values, places = {}, {}
  for place, key, value in said:
    key = 'rope_type' if key == 'type' else key
    if value is None:
      continue
    if key in values and values[key] != value:
      raise ConfigError(f'config.json: {places[key]}={values[key]!r} and {place}={value!r} contradict each other (keep the right one)')
    values.setdefault(key, value)
    places.setdefault(key, place)
  return values


def encoding(fields, where, *, longest, head_dim, notes, layout='half'):
  """(Spec, the length its frequencies were trained at or None).

  Args:
    fields: {key: value} of one set of rope fields, `rope_theta` and `partial_rotary_factor` among them.
    where: their name in messages.
    longest: max_position_embeddings, or None.
    head_dim: width of a head.
    notes: a list that remarks are added to.
    layout: which dimensions are a pair in this model.
  """
  kind = fields.get('rope_type', 'default')
  if kind not in KEYS:
    raise ConfigError(f'config.json: {where}: rope_type={kind!r} is not known (known: {", ".join(KEYS)})')
  _check(kind, fields, where)
  common = {'base': fields.get('rope_theta'), 'fraction': fields.get('partial_rotary_factor'), 'layout': layout}
  original = fields.get(ORIGINAL) or longest
  if longest is None and kind not in ('default', 'linear', 'proportional'):
    raise ConfigError(f'config.json: max_position_embeddings is missing with rope_type={kind!r}')
  if kind == 'default':
    return _spec('rope', common), None
  if kind == 'linear':
    return _spec('linear', common, factor=fields['factor']), None
  if kind == 'dynamic':  # transformers starts from max_position_embeddings here
    return _spec('dynamic_ntk', common, factor=fields['factor'], original_length=longest), longest
  if kind == 'llama3':
    low, high = fields['low_freq_factor'], fields['high_freq_factor']
    return _spec('llama3', common, factor=fields['factor'], low=low, high=high, original_length=original), original
  if kind == 'proportional':
    return _proportional(fields, where, common, head_dim), None
  factor = _factor(fields, longest, original, notes)
  return (_yarn if kind == 'yarn' else _longrope)(fields, where, common, factor, original), original


def _check(kind, fields, where):
  """Keys known, required ones there, values of their types."""
  known = (*SHARED, *KEYS[kind])
  for key, value in fields.items():
    if key not in known:
      raise ConfigError(f"config.json: {where}: the key '{key}' is not known with rope_type={kind!r} (known: {', '.join(known)})")
    if key in ('short_factor', 'long_factor'):
      good = isinstance(value, list) and all(_positive(x) for x in value)
    elif key == 'truncate':
      good = isinstance(value, bool)
    elif key == ORIGINAL:
      good = type(value) is int and value > 0
    else:
      good = key == 'rope_type' or _positive(value)
    if not good:
      raise ConfigError(f'config.json: {where}: {key}={value!r} cannot be read')
  for key in REQUIRED.get(kind, ()):
    if key not in fields:
      raise ConfigError(f'config.json: {where}: {key} is missing with rope_type={kind!r}')


def _positive(value):
  return type(value) in (int, float) and math.isfinite(value) and value > 0


def _factor(fields, longest, original, notes):
  """The factor given, or else that of the two lengths."""
  implied = longest / original
  if 'factor' not in fields:
    notes.append(f'factor {implied:g} is {longest} / {original}')
    return implied
  if implied not in (1, fields['factor']):
    notes.append(f'factor={fields["factor"]:g} is what counts, though {longest} / {original} is {implied:g}')
  elif fields['factor'] != 1 and implied == 1:
    notes.append(f'factor={fields["factor"]:g} is meant for {fields["factor"] * original:g} tokens, more than the positions declared')
  return fields['factor']


def _yarn(fields, where, common, factor, original):
  del where
  both = ('mscale', 'mscale_all_dim') if 'mscale' in fields and 'mscale_all_dim' in fields else ()  # one alone has no effect
  own = {key: fields.get(key) for key in ('attention_factor', 'beta_fast', 'beta_slow', 'truncate', *both)}
  return _spec('yarn', common, factor=factor, original_length=original, **own)


def _longrope(fields, where, common, factor, original):
  del where
  lists = {key: tuple(float(x) for x in fields[key]) for key in ('short_factor', 'long_factor')}
  own = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
  given = fields.get('attention_factor', own)
  given = None if abs(given - own) < 1e-9 else given  # what would be computed anyhow is left out
  return _spec('longrope', common, factor=factor, original_length=original, attention_factor=given, **lists)


def _proportional(fields, where, common, head_dim):
  """The fastest pairs of the whole head turn, the others not at all."""
  if fields.get('factor', 1) != 1:
    raise ConfigError(f'config.json: {where}: factor={fields["factor"]:g} with proportional frequencies cannot be reproduced')
  turning = int((fields.get('partial_rotary_factor') or 1.0) * head_dim // 2)
  return _spec('p_rope', {**common, 'fraction': None}, p=turning / (head_dim // 2))


def _spec(name, common, **fields):
  """A Spec in canonical form."""
  given = {**common, **fields}
  kept = []
  for key, default in DEFAULTS.items():
    value = given.get(key)
    value = float(value) if type(value) is int and key != 'original_length' else value
    usual = 8.0 if (name, key) == ('llama3', 'factor') else default
    if value is not None and value != usual:
      kept.append((key, value))
  return Spec(name, tuple(kept))
