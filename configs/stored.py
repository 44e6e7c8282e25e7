"""A run's own configuration again, as its workdir holds it.

python train.py --config=configs/stored.py:runs/alibi/config.json --workdir=runs/alibi_again
"""

import json
import pathlib

import ml_collections

from pe_jax.config import completed
from pe_jax.errors import ConfigError


def get_config(arg=''):
  """`:<path of a config.json>`."""
  try:
    stored = json.loads(pathlib.Path(arg).read_text(encoding='utf-8'))
  except (OSError, ValueError) as error:
    raise ConfigError(f"config argument '{arg}': no stored configuration there (stored.py takes the path of a config.json)") from error
  return ml_collections.ConfigDict(completed(stored))
