"""The library of positional encodings: file name = encoding name, each file a record of pure functions (base.py).

`names()` lists them, `make('yarn(factor=8)', dims)` gives a record, and each file offers the functions that people import by themselves
(`alibi.slopes`, `rope.rotate`, `sinusoidal.table`, `frequency_maps.yarn` …).
"""

import dataclasses
import functools
import importlib
import inspect
import pathlib
import typing

from pe_jax.config import did_you_mean
from pe_jax.encodings import grammar
from pe_jax.encodings.grammar import Spec
from pe_jax.errors import ConfigError

if typing.TYPE_CHECKING:
  from pe_jax.encodings import base  # at run time it would import jax, which a misspelt name need not wait for

_SUPPORT = ('__init__', 'base', 'combine', 'distances', 'draws', 'grammar', 'pair_network', 'phases', 'frequency_maps')
# Wrappers that say where what is inside applies, and nothing of how.
PLACING = ('stack', 'layers', 'heads')
# Each is rope(map=…) under a name of its own.
MAPS = (
  'linear', 'ntk', 'dynamic_ntk', 'yarn', 'dynamic_yarn', 'ntk_by_parts', 'llama3', 'longrope', 'p_rope', 'abf', 'reversed_by_parts',
)  # fmt: skip


def names() -> list[str]:
  """Every name an encoding string can start with."""
  files = {path.stem for path in pathlib.Path(__file__).parent.glob('*.py')} - set(_SUPPORT)
  return sorted(files | set(MAPS))


def parse(text: str) -> Spec:
  """The Spec of one encoding in canonical form; unknown names and fields are refused."""
  return _canonical(grammar.parse(text))


def parse_list(text: str) -> list[Spec]:
  """The Specs of a comma-separated list."""
  return [_canonical(spec) for spec in grammar.parse_list(text)]


def check_name(text):
  """`parse` without importing what an encoding needs: a misspelt name is answered at once."""
  spec = grammar.parse(text)
  for part in spec.walk():
    _check_known(part.name)
  return spec


def _check_known(name):
  if name not in names():
    raise ConfigError(f"encoding: '{name}' is unknown{did_you_mean(name, names())} (there are {', '.join(names())})")


def make(spec: str | Spec, dims: 'base.Dims', length: int = 0) -> 'base.Encoding':
  """The record of an encoding.

  Args:
    spec: a string such as 'yarn(factor=8)', or a Spec.
    dims: the `base.Dims` of the model it serves.
    length: the length it will be used at, from which a map without a factor takes its own: max(1, length / original length). 0: the
      training length, where that factor is 1.
  """
  spec = at_length(parse(spec) if isinstance(spec, str) else _canonical(spec), length or dims.train_length, dims.train_length)
  return _record(spec, dims)


def _record(spec, dims):
  """The record of a canonical spec. What is inside is handed on as functions of dims, since a part may serve fewer heads or layers."""
  module, fields = _module(spec.name), dict(spec.fields)
  if spec.name in MAPS:
    fields = {**_map_defaults(spec.name), **fields, 'map': spec.name}
  inner = [functools.partial(_record, part) for part in spec.inner]
  return dataclasses.replace(module.encoding(dims, *inner, **fields), spec=str(spec))


def program(spec: Spec) -> tuple:
  """What a record computes, apart from the numbers that it can be given (`base.Encoding.numbers`).

  Records of one model whose programs are equal, and that have numbers, are one function of them. Of parts that are equal a wrapper may
  make one, so which of them are is told too.
  """
  wanted = getattr(_module(spec.name), 'PROGRAM', None)
  inner = tuple((spec.inner.index(part), program(part)) for part in spec.inner)
  if wanted is None:
    return spec.name, spec.fields, inner
  return _module(spec.name).__name__, tuple(field for field in spec.fields if field[0] in wanted), inner


def at_length(spec: Spec, length: int, train_length: int) -> Spec:
  """The spec with the factor it has at this length written out."""
  spec = dataclasses.replace(spec, inner=tuple(at_length(part, length, train_length) for part in spec.inner))
  original = spec.get('original_length') or train_length
  if fields(spec.name).get('factor') == 0 and not spec.get('factor'):
    return _canonical(spec.replace(factor=max(1.0, length / original)))
  return spec


def inherit(spec: Spec, trained: Spec) -> Spec:
  """The spec with what it leaves open taken from the one the checkpoint was trained with.

  A rotary map says how to read frequencies, not which: `yarn(factor=8)` on a model trained as rope(base=500000) keeps that base, and so do
  the other encodings that read RoPE's parameters (those whose file names the fields it shares in INHERITED).

  Nor does it say where: by itself it stands wherever a rotary encoding stood in the trained stack(…), layers(…) or heads(…), and what else
  is in there, windows and layers without positions, stays. Whatever has encodings inside is read as it is written: layers(yarn) is YaRN in
  all layers and nothing else.
  """
  rotary = getattr(_module(spec.name), 'INHERITED', ()) and _kind(spec.name) in {_kind(part.name) for part in trained.walk()}
  placed = rotary and not spec.inner and trained.name in PLACING
  return _canonical(_placed(spec, trained) if placed else _inherit(spec, trained))


def left_out(spec: Spec, trained: Spec) -> list[str]:
  """The parts of the trained encoding that have no counterpart in a reading; all rotary ones are counterparts of each other."""
  kept = {_kind(part.name) for part in spec.walk()}
  return sorted({str(part) for part in trained.walk() if part.name not in PLACING and _kind(part.name) not in kept})


def _kind(name):
  return getattr(_module(name), 'INHERITED', name)


def _placed(spec, trained):
  """The trained spec with its rotary parts replaced."""
  if trained.inner:
    return dataclasses.replace(trained, inner=tuple(_placed(spec, part) for part in trained.inner))
  return _inherit(spec, trained) if _kind(trained.name) == _kind(spec.name) else trained


def _inherit(spec, trained):
  module = _module(spec.name)
  if spec.inner:
    # Wrappers of one shape are matched part by part; anything else is looked for inside the trained one.
    same = spec.name == trained.name and len(spec.inner) == len(trained.inner)
    parts = tuple(_inherit(part, other) for part, other in zip(spec.inner, trained.inner if same else [trained] * len(spec.inner)))
    spec = dataclasses.replace(spec, inner=parts)
  for other in trained.walk():
    theirs = _module(other.name)
    if module is theirs:
      shared = getattr(module, 'INHERITED', tuple(fields(spec.name)))
    elif getattr(module, 'INHERITED', ()) and getattr(theirs, 'INHERITED', None) == module.INHERITED:
      shared = module.INHERITED
    else:
      continue
    return spec.replace(**{k: v for k, v in other.fields if k in shared and k not in dict(spec.fields)})
  return spec


def fields(name: str) -> dict[str, object]:
  """{field: default} of an encoding, in the order of declaration."""
  parameters = inspect.signature(_module(name).encoding).parameters.values()
  own = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != 'map'}
  if name in MAPS:
    return {**_map_defaults(name), **own}
  return {k: v for k, v in own.items() if k != 'original_length'}


def _map_defaults(name):
  """What a map's own signature declares; what it requires (base, lengths) comes from the rotary encoding."""
  from pe_jax.encodings import frequency_maps

  parameters = inspect.signature(getattr(frequency_maps, name)).parameters.values()
  return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is not p.empty}


def _inner_parameters(name):
  """The parameters of a constructor that are encodings: what comes after `dims`."""
  kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
  return [p for p in inspect.signature(_module(name).encoding).parameters.values() if p.kind in kinds and p.name != 'dims']


def _inner(spec):
  """The encodings inside, checked for their number, defaults filled in, in canonical form."""
  wanted = _inner_parameters(spec.name)
  many = any(p.kind is p.VAR_POSITIONAL for p in wanted)
  given = spec.inner or tuple(grammar.parse(p.default) for p in wanted if isinstance(p.default, str))
  if wanted and not given:
    raise ConfigError(
      f'encoding: {spec.name} needs {"encodings" if many else "an encoding"} inside, as in {spec.name}({"rope, alibi" if many else "rope"})'
    )
  if not many and len(given) > len(wanted):
    takes = 'takes no encoding' if not wanted else 'takes one encoding'
    raise ConfigError(f'encoding: {spec.name} {takes} inside and got {len(given)} (stack(a, b) is several at once)')
  return tuple(_canonical(part) for part in given)


def _module(name):
  return importlib.import_module(f'pe_jax.encodings.{"rope" if name in MAPS else name}')


def _canonical(spec):
  """Fields typed, in order, defaults left out."""
  _check_known(spec.name)
  given = dict(spec.fields)
  if spec.name == 'rope' and given.get('map'):
    return _canonical(Spec(given.pop('map'), tuple(given.items()), spec.inner))
  return Spec(spec.name, grammar.typed(spec, fields(spec.name)), _inner(spec))
