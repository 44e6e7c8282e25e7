"""Where the rows of metrics.jsonl are shown beside the file: TensorBoard, and Weights & Biases for who asks for it."""

import hashlib
import importlib.util

from pe_jax import progress, remote
from pe_jax.errors import ConfigError


def check(config):
  """Refuses a board whose package is missing."""
  if config.wandb and importlib.util.find_spec('wandb') is None:
    raise ConfigError(f"wandb: '{config.wandb}' asks for Weights & Biases, whose package is missing (pip install -e '.[wandb]')")


def make(config, folder, restored_step):
  """The boards that a config asks for, each with `add(row)` and `close()`."""
  boards = []
  if config.tensorboard and remote.is_remote(folder):
    progress.say(f'{folder}: TensorBoard is written on local disks only (metrics.jsonl has the same numbers; --noconfig.tensorboard)')
  elif config.tensorboard:
    boards.append(TensorBoard(folder, restored_step))
  if config.wandb:
    boards.append(Wandb(config, folder))
  return boards


class TensorBoard:
  """Event files in WORKDIR/tensorboard; steps that come again after a resume replace those of before."""

  def __init__(self, folder, restored_step):
    from tensorboardX import SummaryWriter

    self._writer = SummaryWriter(str(folder / 'tensorboard'), purge_step=restored_step + 1, flush_secs=10)

  def add(self, row):
    """A scalar for each number of the row."""
    for name, value in row.items():
      if name != 'step':
        self._writer.add_scalar(name, value, row['step'])

  def close(self):
    """Writes what is left."""
    self._writer.close()


class Wandb:
  """A run of the project `config.wandb`, the same one again after a resume. WANDB_MODE=offline keeps it on disk, in WORKDIR/wandb."""

  def __init__(self, config, folder):
    import wandb

    name = str(folder)
    identity = hashlib.sha256(name.encode()).hexdigest()[:16]
    place = None if remote.is_remote(folder) else name
    self._run = wandb.init(project=config.wandb, name=name, id=identity, resume='allow', dir=place, config=config.to_dict())

  def add(self, row):
    """The row at its step; steps that wandb has seen already, after a resume, it leaves as they are."""
    self._run.log({name: value for name, value in row.items() if name != 'step'}, step=row['step'])

  def close(self):
    """Ends the run."""
    self._run.finish()
