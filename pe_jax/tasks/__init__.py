"""Synthetic tasks: file name = task name, each a pure function from a generator of random numbers and a length to one sample (base.py).

`names()` lists them, `make('copy(symbols=26)')` gives the record. Prompts and answers are token ids of the task's own words; a row is BOS
and one sample. `batches.py` makes training rows of them, `samples.py` fixed test sets.
"""

import dataclasses
import importlib
import inspect
import pathlib

from pe_jax.config import did_you_mean
from pe_jax.encodings import grammar
from pe_jax.errors import ConfigError
from pe_jax.tasks import base

_SUPPORT = ('__init__', 'base', 'batches', 'bits', 'draws', 'expressions', 'samples')
KIND = grammar.Kind('data.name', 'tasks', 'copy(symbols=26)', 'a name with fields as in copy(symbols=26)')
LARGEST = 65_536  # of a whole number: symbols, gaps, episodes


def names() -> list[str]:
  """Every name a task string can start with."""
  return sorted({path.stem for path in pathlib.Path(__file__).parent.glob('*.py')} - set(_SUPPORT))


def fields(name: str) -> dict[str, object]:
  """{field: default} of a task, in the order of declaration."""
  return {p.name: p.default for p in inspect.signature(_module(name).task).parameters.values()}


def parse(text: str) -> grammar.Spec:
  """The Spec of a task in canonical form; unknown names and fields, and values that no task has, are refused."""
  if not text.strip():
    raise ConfigError("data.name: source 'task' needs one (for example 'copy' or 'needle(values=26)')")
  spec = grammar.parse(text, KIND)
  if spec.name not in names():
    raise ConfigError(f"data.name: '{spec.name}' is unknown{did_you_mean(spec.name, names())} (there are {', '.join(names())})")
  if spec.inner:
    raise ConfigError(f'data.name: {spec.name} takes fields alone, as in {KIND.example}')
  known = fields(spec.name)
  spec = grammar.Spec(spec.name, grammar.typed(spec, known, KIND))
  for field, value in spec.fields:
    _check_range(spec.name, field, value, known[field])
  return spec


def make(text: str) -> base.Task:
  """The `base.Task` of a string such as 'copy(symbols=26)'."""
  spec = parse(text)
  return dataclasses.replace(_module(spec.name).task(**dict(spec.fields)), spec=str(spec))


def _check_range(name, field, value, default):
  """Counts are at least 1, or 0 where that is the default; a default below 1 is a share."""
  if type(value) is int and not min(1, default) <= value <= LARGEST:
    raise ConfigError(f'data.name: {name}: {field}={value} must be in {min(1, default)} .. {LARGEST}')
  if type(value) is float and default < 1 and not 0 <= value <= 1:
    raise ConfigError(f'data.name: {name}: {field}={value} is a share and must be in 0 .. 1')
  if type(value) is float and default >= 1 and not 0 < value <= LARGEST:
    raise ConfigError(f'data.name: {name}: {field}={value} must be above 0 and at most {LARGEST}')


def _module(name):
  return importlib.import_module(f'pe_jax.tasks.{name}')
