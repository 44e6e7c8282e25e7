"""Train short, test long: table 2 of the ALiBi paper (arXiv:2108.12409) at three scales, its perplexities beside ours.

  python scripts/sweep.py --config=configs/sweeps/paper_alibi.py --workdir=sweeps/alibi --list
  python scripts/sweep.py --config=configs/sweeps/paper_alibi.py:paper,path=wikitext103 --workdir=sweeps/alibi
  python scripts/sweep.py --config=configs/sweeps/paper_alibi.py --workdir=sweeps/alibi --published

Scales: `laptop` (2 layers of width 64 at 64 positions, on Python sources), `gpu` (6 layers of 512 at 256) and `paper` (16 layers of 1024
with 8 heads at 512, as there). The larger two take `path=`, a folder of text such as WikiText-103 with an article a document; `tokenizer=`
takes a sentencepiece model. Not those of the paper are: tokens (there words, here bytes or pieces), windows (there over joined articles,
here within a document), and the length of training and its learning rate, which are ours. The perplexities therefore differ; what a length
costs, in nats above the training length, is what can be held side by side. None of the scales has been run to its end yet.
"""

import itertools
import json
import pathlib

from pe_jax.config import default, parse_arg
from pe_jax.errors import ConfigError

SCALES = {
  # layers, width, heads, positions, batch, steps, learning rate
  'laptop': (2, 64, 4, 64, 64, 2000, 3e-3),
  'gpu': (6, 512, 8, 256, 128, 20_000, 1e-3),
  'paper': (16, 1024, 8, 512, 64, 100_000, 5e-4),
}
TABLES = pathlib.Path(__file__).resolve().parent.parent.parent / 'docs' / 'data' / 'alibi_tables.json'


def _arg(arg):
  return parse_arg(arg, scale='laptop', path='', tokenizer='bytes', seeds=3)


def get_config(arg=''):
  """`:laptop|gpu|paper,path=…,tokenizer=…,seeds=3`."""
  a, c = _arg(arg), default()
  if a.scale not in SCALES:
    raise ConfigError(f"scale: '{a.scale}' is unknown (there are {', '.join(SCALES)})")
  if a.scale != 'laptop' and not a.path:
    raise ConfigError(f"path: scale '{a.scale}' needs text (for instance :{a.scale},path=wikitext103, a folder of .txt or .jsonl)")
  layers, width, heads, length, batch, steps, rate = SCALES[a.scale]
  c.train_length, c.batch_size, c.num_train_steps = length, batch, steps
  c.model.num_layers, c.model.embed_dim, c.model.num_heads = layers, width, heads
  c.model.mlp = 'relu'
  c.model.norm = 'layer'
  c.model.dtype = 'float32' if a.scale == 'laptop' else 'bfloat16'
  c.data.tokenizer = a.tokenizer
  c.data.min_bytes = 4096 if a.scale == 'laptop' else 0
  if a.path:
    c.data.source, c.data.path = 'text', a.path
  c.optim.learning_rate = rate
  c.eval_every_steps = c.checkpoint_every_steps = steps // 5
  return c


def arms(config):
  """The four of the table; T5's distances are those of its own paper at 512 positions, scaled."""
  return {'sinusoidal': 'sinusoidal', 'rotary': 'rope', 't5': f't5(max_distance={max(32, config.train_length // 4)})', 'alibi': 'alibi'}


def sweep(arg, config):
  """Twelve runs."""
  for seed, (name, encoding) in itertools.product(range(_arg(arg).seeds), arms(config).items()):
    yield f'{name}-s{seed}', {'encoding': encoding, 'seed': seed}


def _table():
  return json.loads(TABLES.read_text())


def _ours(lengths, config):
  return [round(n * config.train_length / _table()['train_length']) for n in lengths]


def evaluation(config):
  """Non-overlapping windows at the table's multiples, and the same targets with growing context."""
  lengths = _ours(_table()['nonoverlapping']['lengths'], config)
  context = [n for n in lengths if n <= 8 * config.train_length]
  return [{'lengths': lengths, 'protocols': ['nonoverlapping']}, {'lengths': context, 'protocols': ['context']}]


def published(config):
  """Table 2."""
  of = _table()['nonoverlapping']
  rows = {name: {'published': values, 'runs': f'{name}-s*'} for name, values in of['perplexity'].items()}
  return [
    {
      'title': 'WikiText-103, 247M parameters, trained at 512 tokens: validation perplexity',
      'source': f'{_table()["source"]}, {of["source"]}',
      'protocol': 'nonoverlapping',
      'value': 'ppl',
      'lengths': of['lengths'],
      'ours': _ours(of['lengths'], config),
      'rows': rows,
      'note': 'Theirs are perplexities of words, ours of the tokens of this sweep: compare the lines "nats above".',
    }
  ]
