"""Copying and reversing past the training length: five encodings of Kazemnejad and others (arXiv:2305.19466), their accuracy beside ours.

  python scripts/sweep.py --config=configs/sweeps/paper_kazemnejad.py --workdir=sweeps/kazemnejad --list
  python scripts/sweep.py --config=configs/sweeps/paper_kazemnejad.py:paper --workdir=sweeps/kazemnejad

Trained on lengths 1 to 20, tested at exact lengths up to 40: exact match, three seeds. Scales: `laptop` (2 layers of width 64, 2000 steps)
and `paper` (12 layers of width 768, 40000 steps of 64 samples at 3e-5, as there). Their numbers were recomputed from the authors' file of
results (results/sanity_check.jsonl), whose variants have short names; that `cmc` copies random tokens and `rsc` one token again and again
is inferred, and so is that reverse's `mc` is of random tokens. The vocabulary is ours (26 letters). Not run to its end yet.
"""

import itertools

from pe_jax import tasks
from pe_jax.config import default, parse_arg
from pe_jax.errors import ConfigError

SCALES = {
  # layers, width, heads, steps, learning rate
  'laptop': (2, 64, 4, 2000, 3e-3),
  'paper': (12, 768, 12, 40_000, 3e-5),
}
TRAINED, TESTED = 20, [22, 24, 28, 30, 40]
ARMS = {'nope': 'nope', 't5': 't5(max_distance=32)', 'alibi': 'alibi', 'rotary': 'rope', 'sinusoidal': 'sinusoidal'}
TASKS = {'copy': 'copy', 'constant': 'copy(draw="constant")', 'reverse': 'reverse'}
# {task: (variant in the authors' file, {arm: exact match at TESTED})}, means of three seeds.
PAPER = {
  'copy': (
    'copy, cmc',
    {
      'nope': [0.74, 0.72, 0.50, 0.17, 0],
      't5': [0.76, 0.75, 0.68, 0.56, 0],
      'alibi': [0.77, 0.75, 0.57, 0.23, 0],
      'rotary': [0, 0, 0, 0, 0],
      'sinusoidal': [0.01, 0, 0, 0, 0],
    },
  ),
  'constant': (
    'copy, rsc',
    {
      'nope': [1, 0.99, 0.99, 0.99, 0.96],
      't5': [1, 0.99, 0.98, 0.94, 0.21],
      'alibi': [1, 0.98, 0.03, 0, 0],
      'rotary': [0, 0, 0, 0, 0],
      'sinusoidal': [0, 0, 0, 0, 0],
    },
  ),
  'reverse': (
    'reverse, mc',
    {
      'nope': [0.98, 0.80, 0.02, 0, 0],
      't5': [0.99, 0.85, 0.02, 0, 0],
      'alibi': [0.99, 0.45, 0, 0, 0],
      'rotary': [0.33, 0.13, 0, 0, 0],
      'sinusoidal': [0, 0, 0, 0, 0],
    },
  ),
}


def _arg(arg):
  return parse_arg(arg, scale='laptop', seeds=3)


def get_config(arg=''):
  """`:laptop|paper,seeds=3`."""
  a, c = _arg(arg), default()
  if a.scale not in SCALES:
    raise ConfigError(f"scale: '{a.scale}' is unknown (there are {', '.join(SCALES)})")
  layers, width, heads, steps, rate = SCALES[a.scale]
  c.num_train_steps, c.batch_size = steps, 64
  c.model.num_layers, c.model.embed_dim, c.model.num_heads = layers, width, heads
  c.data.source, c.data.name = 'task', TASKS['copy']
  c.data.task_min_length, c.data.task_max_length = 1, TRAINED
  c.train_length = max(tasks.make(task).positions(TRAINED) for task in TASKS.values())
  c.optim.learning_rate, c.optim.weight_decay = rate, 0.01
  c.eval_targets = 4096
  c.eval_every_steps = c.checkpoint_every_steps = steps // 5
  return c


def sweep(arg):
  """45 runs."""
  for seed, (task, spec), (arm, encoding) in itertools.product(range(_arg(arg).seeds), TASKS.items(), ARMS.items()):
    yield f'{task}-{arm}-s{seed}', {'encoding': encoding, 'seed': seed, 'data.name': spec}


def evaluation():
  """At the longest length of training, which says whether the task was learned, and beyond."""
  return {'lengths': [TRAINED, *TESTED], 'samples': 500}


def published(config):
  """One table a task."""
  del config
  return [
    {
      'title': f'{variant}, trained to {TRAINED}: exact match',
      'source': "Kazemnejad and others, arXiv:2305.19466, recomputed from the authors' results",
      'protocol': 'task',
      'value': 'exact_match',
      'lengths': TESTED,
      'rows': {arm: {'published': values, 'runs': f'{task}-{arm}-s*'} for arm, values in arms.items()},
    }
    for task, (variant, arms) in PAPER.items()
  ]
