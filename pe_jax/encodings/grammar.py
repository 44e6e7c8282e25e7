"""Encodings as strings: one small grammar for configs, flags, result rows and figures.

    rope · rope(base=500000, fraction=.25) · yarn(factor=8)

Read with Python's `ast` (names, calls, literals) and never evaluated; printed back in one canonical form, fields in the order of their
declaration and defaults left out, which identifies the encoding.
"""

import ast
import dataclasses

from pe_jax.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Spec:
  """A name and the fields that were given."""

  name: str
  fields: tuple[tuple[str, object], ...] = ()

  def get(self, field, default=None):
    """The field's value if it was given."""
    return dict(self.fields).get(field, default)

  def replace(self, **fields):
    """The spec with these fields set."""
    return dataclasses.replace(self, fields=tuple((dict(self.fields) | fields).items()))

  def __str__(self):
    return f'{self.name}({", ".join(f"{k}={_show(v)}" for k, v in self.fields)})' if self.fields else self.name


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
  except (SyntaxError, ValueError):
    raise ConfigError(f"encoding: '{text}' cannot be read (write e.g. yarn(factor=8))") from None
  return [_spec(node, text) for node in tree.elts]


def _spec(node, text):
  if isinstance(node, ast.Name):
    return Spec(node.id)
  if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args and all(k.arg for k in node.keywords):
    return Spec(node.func.id, tuple((k.arg, _literal(k.value, k.arg, text)) for k in node.keywords))
  raise ConfigError(f"encoding: '{text}' cannot be read (a name, or a name with fields as in yarn(factor=8))")


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
