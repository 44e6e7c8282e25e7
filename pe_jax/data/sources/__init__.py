"""Where documents come from: one file a source, and the file's name is the source's name.

Each file has one function, `documents(data, role) -> Documents`, of the config's `data` fields and 'train',
'validation' or 'test'. A source that has no documents and makes its rows itself has `streams` instead (task.py).
"""

import importlib
import pkgutil

from pe_jax.config import did_you_mean
from pe_jax.data.documents import ROLES
from pe_jax.errors import ConfigError


def names():
  """The files of this folder."""
  return sorted(m.name for m in pkgutil.iter_modules(__path__))


def check_name(name):
  """Refuses a source that has no file."""
  if name not in names():
    raise ConfigError(f"data.source: '{name}' is unknown{did_you_mean(name, names())} (there are {', '.join(names())})")


def open(data, split_role):
  """The Documents of one split of `data.source`."""
  check_name(data.source)
  if split_role not in ROLES:
    raise ConfigError(f"split '{split_role}' is unknown{did_you_mean(split_role, ROLES)} (there are {', '.join(ROLES)})")
  source = module(data.source)
  if not hasattr(source, 'documents'):
    raise ConfigError(f"data.source: '{data.source}' makes samples and has no documents (take data.streams, or another source)")
  return source.documents(data, split_role)


def module(name):
  """The file of a source."""
  check_name(name)
  return importlib.import_module(f'{__name__}.{name}')
