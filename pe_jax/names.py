"""Names that become parts of paths, what comes from a config or from a results folder must not lead out of the folder it names; and one
that stands before a path.
"""

import re

from pe_jax.errors import ConfigError

OWN_TEXT = 'text:'  # in result rows, before the path of a text that was scored instead of a split
NAME = re.compile(r'[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}')  # no dot first: neither .. nor hidden


def check(name, field):
  """The name; refused if it could be more than one part of a path."""
  if not NAME.fullmatch(name):
    raise ConfigError(f"{field}: '{name[:120]}' is no name (1 to 100 letters, digits, '.', '_' and '-', not beginning with a dot)")
  return name
