"""Encodings as strings: one small grammar for configs, flags, result rows and figures. Tasks (pe_jax/tasks) are written in it too.

    rope · rope(base=500000, fraction=.25) · yarn(factor=8) · stack(rope, alibi) · randomized(sinusoidal, range=2048)

Read with Python's `ast` (names, calls, literals) and never evaluated; printed back in one canonical form, inner encodings first, then
fields in the order of their declaration with defaults left out, which identifies the encoding.
"""

import ast
import dataclasses
import math

from pe_jax.config import did_you_mean
from pe_jax.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Spec:
  """A name, the fields that were given, and the encodings inside."""

  name: str
  fields: tuple[tuple[str, object], ...] = ()
  inner: tuple['Spec', ...] = ()

  def get(self, field, default=None):
    """The field's value if it was given."""
    return dict(self.fields).get(field, default)

  def replace(self, **fields):
    """The spec with these fields set."""
    return dataclasses.replace(self, fields=tuple((dict(self.fields) | fields).items()))

  def walk(self):
    """The spec and all specs inside it."""
    return [self, *(part for inner in self.inner for part in inner.walk())]

  def __str__(self):
    parts = [str(part) for part in self.inner] + [f'{k}={_show(v)}' for k, v in self.fields]
    return f'{self.name}({", ".join(parts)})' if parts else self.name


@dataclasses.dataclass(frozen=True)
class Kind:
  """What the strings name, for messages: the config's field, the things' plural, and how they are written."""

  field: str
  plural: str
  example: str
  form: str


ENCODING = Kind('encoding', 'encodings', 'yarn(factor=8)', 'a name with encodings and fields as in yarn(factor=8) or stack(rope, alibi)')


def parse(text, kind=ENCODING):
  """The Spec of one encoding (or of another kind of thing)."""
  specs = parse_list(text, kind)
  if len(specs) != 1:
    raise ConfigError(f"{kind.field}: '{text}' names {len(specs)} {kind.plural} where one is wanted")
  return specs[0]


def parse_list(text, kind=ENCODING):
  """The Specs of a comma-separated list."""
  try:
    tree = ast.parse(f'({text.strip()},)', mode='eval').body
  except (SyntaxError, ValueError, RecursionError, MemoryError):
    raise ConfigError(f"{kind.field}: '{text}' cannot be read (write e.g. {kind.example})") from None
  if not isinstance(tree, ast.Tuple):
    raise ConfigError(f"{kind.field}: '{text}' cannot be read (write e.g. {kind.example})")
  return [_spec(node, text, kind) for node in tree.elts]


def typed(spec, known, kind=ENCODING):
  """The given fields in the order of declaration, each of the type of its default, defaults left out; others are refused."""
  given = dict(spec.fields)
  for field in given:
    if field not in known:
      there = ', '.join(known) or 'none'
      raise ConfigError(f"{kind.field}: {spec.name} has no field '{field}'{did_you_mean(field, known)} (it has {there})")
  values = {field: _typed(spec.name, field, given[field], default, kind) for field, default in known.items() if field in given}
  return tuple((field, value) for field, value in values.items() if value != known[field])


def _typed(name, field, value, default, kind):
  wanted = type(default)
  if wanted is float and type(value) is int:
    value = float(value)
  if wanted is tuple and type(value) is list:
    value = tuple(value)
  if type(value) is not wanted:
    raise ConfigError(f'{kind.field}: {name}({field}={value!r}): wants {wanted.__name__}, as in {field}={default!r}')
  if any(isinstance(x, float) and not math.isfinite(x) for x in (value if wanted is tuple else [value])):
    raise ConfigError(f'{kind.field}: {name}({field}={value!r}): is not finite (as in {field}={default!r})')
  return value


def _spec(node, text, kind):
  if isinstance(node, ast.Name):
    return Spec(node.id)
  if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and all(k.arg for k in node.keywords):
    fields = tuple((k.arg, _literal(k.value, k.arg, text, kind)) for k in node.keywords)
    return Spec(node.func.id, fields, tuple(_spec(part, text, kind) for part in node.args))
  raise ConfigError(f"{kind.field}: '{text}' cannot be read (a name, or {kind.form})")


def _literal(node, field, text, kind):
  try:
    return ast.literal_eval(node)
  except ValueError:
    raise ConfigError(f"{kind.field}: '{text}': {field} wants a number, a quoted word or a list of numbers") from None


def _show(value):
  """8.0 as 8, so that one encoding has one text."""
  if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
    return str(int(value))
  return repr(value)
