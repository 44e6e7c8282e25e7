"""Every field at its default, for commands that name all that they change, as those of a sweep do.

python train.py --config=configs/default.py --workdir=runs/a --config.encoding=alibi --config.train_length=64 --config.model.num_layers=2
"""

from pe_jax.config import default


def get_config(arg=''):
  """Takes no argument."""
  del arg
  return default()
