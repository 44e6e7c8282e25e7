"""A whole sweep for two cores without an accelerator: four encodings on three seeds, trained at 64 positions and read to 512.

  python scripts/sweep.py --config=configs/sweeps/laptop.py --workdir=sweeps/laptop --list
  python scripts/sweep.py --config=configs/sweeps/laptop.py --workdir=sweeps/laptop

Text is the source code of the Python standard library. Where `python scripts/get_classics.py` has been run, RoPE and ALiBi are also trained
on Jane Austen, on two seeds each. `:steps=50,seeds=1` shows how it goes, without meaning. 20 minutes on two cores, of
which other programs took a part (2026-11-30; the results: docs/laptop/); `--list` estimates it on the machine at hand.
"""

import itertools
import pathlib

from pe_jax.config import default, parse_arg
from pe_jax.data import folder as data_folder

LENGTH = 64
LENGTHS = [LENGTH, 80, 96, 2 * LENGTH, 4 * LENGTH, 8 * LENGTH]
# T5's last bucket begins at half the training length, so that it is trained.
ARMS = {'sinusoidal': 'sinusoidal', 'rope': 'rope', 't5': f't5(max_distance={LENGTH // 2})', 'alibi': 'alibi'}
MAPS = ['rope', 'linear', 'ntk', 'yarn']


def _arg(arg):
  return parse_arg(arg, seeds=3, steps=1000, max_targets=40_000)


def get_config(arg=''):
  """`:seeds=3,steps=1000,max_targets=40000`: the model of configs/quickstart.py."""
  c = default()
  c.train_length, c.batch_size, c.num_train_steps = LENGTH, 64, _arg(arg).steps
  c.model.num_layers, c.model.embed_dim, c.model.num_heads = 2, 64, 4
  c.data.min_bytes = 4096  # a window of 512 bytes lies in one document
  c.optim.learning_rate = 3e-3
  c.eval_every_steps = c.checkpoint_every_steps = 300
  return c


def sweep(arg, config):
  """Twelve runs, sixteen with novels."""
  seeds = range(_arg(arg).seeds)
  for seed, (name, encoding) in itertools.product(seeds, ARMS.items()):
    yield f'{name}-s{seed}', {'encoding': encoding, 'seed': seed}
  novels = pathlib.Path(data_folder.data_dir(config.data)) / 'classics' / 'austen.jsonl'
  if novels.is_file():
    for seed, name in itertools.product(seeds[:2], ('rope', 'alibi')):
      yield f'austen-{name}-s{seed}', {'encoding': name, 'seed': seed, 'data.source': 'text', 'data.path': novels}


def evaluation(arg, config):
  """To eight times the training length; RoPE also under maps."""
  return {
    'lengths': LENGTHS,
    'encodings': MAPS if config.encoding == 'rope' else None,
    'protocols': ['context', 'nonoverlapping', 'prefix'],
    'max_targets': _arg(arg).max_targets,
  }
