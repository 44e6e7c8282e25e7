"""A config as data: `--config=runs/a/config.json` is handed to this config file as its argument. Nothing of the JSON is executed.

Fields that it does not mention take their defaults.
"""

import pathlib

import ml_collections

from pe_jax import config as config_lib
from pe_jax import resolve
from pe_jax.errors import ConfigError


def get_config(path):
  """The ConfigDict of the file, its fields checked."""
  default = config_lib.default()
  tree = config_lib.loads(pathlib.Path(path).read_bytes(), f'--config: {path}', ConfigError)
  tree = config_lib.completed({'encoding': default.encoding} | tree)
  resolve.check_fields(tree)
  return ml_collections.ConfigDict(resolve.typed(tree, default))
