"""Which encodings hold past the training length: encodings x training lengths x seeds. The usual sweep, and the one to copy.

  python scripts/sweep.py --config=configs/sweeps/extrapolation.py --workdir=sweeps/extrapolation --list
  python scripts/sweep.py --config=configs/sweeps/extrapolation.py:tune --workdir=sweeps/tuned
  python scripts/sweep.py --config=configs/sweeps/extrapolation.py:gpu,data_dir=/data/tensorflow_datasets --workdir=sweeps/gpu

As it is: the small model of configs/quickstart.py at 64 and 128 positions, 36 runs. `gpu`: six layers of width 512 on C4 at 512 and 1024,
in which a step has as many tokens at either length. `tune` chooses the learning rate of each arm first, at the same three rates for all.
"""

import itertools

from pe_jax.config import default, parse_arg
from pe_jax.data import prepared
from pe_jax.sweep import tuning

NAMES = ('sinusoidal', 'rope', 't5', 'alibi', 'kerple', 'nope')
MULTIPLES = (1, 1.25, 1.5, 2, 4, 8)  # of the training length; close steps near it, where reliable lengths end
MAPS = ('rope', 'linear', 'ntk', 'yarn')  # a map's factor is that of the length


def _arg(arg):
  return parse_arg(arg, seeds=3, steps=0, tune=False, gpu=False, data_dir='', dataset='c4/en')


def get_config(arg=''):
  """`:seeds=3,steps=0,tune,gpu,data_dir=…,dataset=c4/en`; steps=0: 1000, or 20000 with gpu."""
  a, c = _arg(arg), default()
  c.num_train_steps = a.steps or (20_000 if a.gpu else 1000)
  if a.gpu:
    c.batch_size = 256
    c.model.mlp, c.model.dtype = 'swiglu', 'bfloat16'
    c.data.update(prepared.fields(a.dataset, a.data_dir))
    c.data.min_bytes = 16 * c.train_length  # as below
    c.eval_every_steps = c.checkpoint_every_steps = 1000
    return c
  c.train_length, c.batch_size = 64, 64
  c.model.num_layers, c.model.embed_dim, c.model.num_heads = 2, 64, 4
  c.data.min_bytes = 4096  # a window of eight of the longer training lengths lies in one document
  c.optim.learning_rate = 3e-3
  c.eval_every_steps = c.checkpoint_every_steps = 300
  return c


def arms(config):
  """{name: fields}: encodings x training lengths, with as many tokens a step at either."""
  found = {}
  for times, name in itertools.product((1, 2), NAMES):
    length = times * config.train_length
    # T5's last bucket begins at half the training length, so that it is trained.
    encoding = f't5(max_distance={length // 2})' if name == 't5' else name
    found[f'{name}-{length}'] = {'encoding': encoding, 'train_length': length, 'batch_size': config.batch_size // times}
  return found


def _rates(config):
  return [config.optim.learning_rate * factor for factor in (1 / 3, 1, 3)]


def sweep(arg, config, done):
  """36 runs, or three rates for each of twelve arms and then the same 36."""
  a = _arg(arg)
  if a.tune:
    yield from tuning.tuned(arms(config), _rates(config), range(a.seeds), done)
    return
  for (name, fields), seed in itertools.product(arms(config).items(), range(a.seeds)):
    yield f'{name}-s{seed}', fields | {'seed': seed}


def evaluation(config):
  """To eight times the training length; RoPE also under maps."""
  return {
    'lengths': [round(times * config.train_length) for times in MULTIPLES],
    'encodings': MAPS if config.encoding == 'rope' else None,
    'protocols': ['context', 'nonoverlapping'],
    'max_targets': 80_000,
  }


def notes(arg, config, done):
  """Learning rates that may not be the best."""
  return tuning.notes(arms(config), _rates(config), done) if _arg(arg).tune else []
