"""One file a model type of transformers, named as config.json names it; each has `FAMILY`."""

import importlib
import pkgutil

from pe_jax.errors import ConfigError


def names():
  """The model types that can be read and written."""
  return sorted(m.name for m in pkgutil.iter_modules(__path__))


def get(model_type):
  """The Family of a model type; another one is refused with the list."""
  if model_type not in names():
    raise ConfigError(f'config.json: model_type={model_type!r} cannot be imported (these can: {", ".join(names())})')
  return importlib.import_module(f'{__name__}.{model_type}').FAMILY
