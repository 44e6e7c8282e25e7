"""Encodings as strings: one small grammar for configs, flags, result rows and figures.

    rope · rope(base=500000, fraction=.25) · yarn(factor=8) · stack(rope, alibi) · randomized(sinusoidal, range=2048)

Read with Python's `ast` (names, calls, literals) and never evaluated; printed back in one canonical form, inner encodings first, then
fields in the order of their declaration with defaults left out, which identifies the encoding.
"""

import ast
import dataclasses

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


def parse(text):
  """The Spec of one encoding."""
  specs = parse_list(text)
  if len(specs) != 1:
    raise ConfigError(f"encoding: '{text}' names {len(specs)} encodings where one is wanted")
  return specs[0]


def parse_list(text):
  """The Specs of a comma-separated list."""
  try:
    tree = ast.parse(f'({text.strip()},)', mode='eval').body
  except (SyntaxError, ValueError, RecursionError, MemoryError):
    raise ConfigError(f"encoding: '{text}' cannot be read (write e.g. yarn(factor=8))") from None
  if not isinstance(tree, ast.Tuple):
    raise ConfigError(f"encoding: '{text}' cannot be read (write e.g. yarn(factor=8))")
  return [_spec(node, text) for node in tree.elts]


def _spec(node, text):
  if isinstance(node, ast.Name):
    return Spec(node.id)
  if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and all(k.arg for k in node.keywords):
    fields = tuple((k.arg, _literal(k.value, k.arg, text)) for k in node.keywords)
    return Spec(node.func.id, fields, tuple(_spec(part, text) for part in node.args))
  raise ConfigError(
    f"encoding: '{text}' cannot be read (a name, or a name with encodings and fields as in yarn(factor=8) or stack(rope, alibi))"
  )


def _literal(node, field, text):
  try:
    return ast.literal_eval(node)
  except ValueError:
    raise ConfigError(f"encoding: '{text}': {field} wants a number, a quoted word or a list of numbers") from None


def _show(value):
  """8.0 as 8, so that one encoding has one text."""
  if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
    return str(int(value))
  return repr(value)
