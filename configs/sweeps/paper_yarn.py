"""A RoPE model made longer: table 1 of the YaRN paper (arXiv:2309.00071) and table 1 of LongRoPE (arXiv:2402.13753), beside ours.

  python scripts/sweep.py --config=configs/sweeps/paper_yarn.py --workdir=sweeps/yarn --list
  python scripts/sweep.py --config=configs/sweeps/paper_yarn.py:gpu,path=books --workdir=sweeps/yarn

RoPE is trained at L positions; then, from its parameters, each map is trained on at 2 L for a tenth of the steps (stage two starts as soon
as its RoPE run is done), and sliding windows are scored at the paper's multiples of L. The RoPE runs are also read under the maps without
further training. Scales: `laptop` (2 layers of width 64, L = 64, Python sources), `gpu` (6 layers of 512, L = 512, text in `path=`). The
papers' model is Llama-2-7B with L = 4096, whose training cannot be repeated here: only what a length costs can be held side by side. Not
run to its end yet.
"""

import math

from pe_jax.config import default, parse_arg
from pe_jax.errors import ConfigError

SCALES = {
  # layers, width, heads, positions, batch, steps, learning rate
  'laptop': (2, 64, 4, 64, 64, 1500, 3e-3),
  'gpu': (6, 512, 8, 512, 128, 20_000, 1e-3),
}
THEIR_LENGTH = 4096
# Perplexity on Proof-pile, windows slid by 256, of Llama-2-7B extended to twice its length.
YARN_LENGTHS = [2048, 4096, 6144, 8192, 10240]
YARN = {'PI': [3.92, 3.51, 3.51, 3.34, 8.07], 'NTK': [4.20, 3.75, 3.74, 3.59, 6.24], 'YaRN': [3.91, 3.50, 3.51, 3.35, 6.04]}
# Perplexity on PG-19 of Llama-2-7B read without further training.
LONGROPE_LENGTHS = [8192, 16384]
LONGROPE = {'linear': [10.65, 20.49], 'dynamic_ntk': [10.21, 23.29], 'yarn': [32.64, 87.89]}


def _arg(arg):
  return parse_arg(arg, scale='laptop', path='', seeds=3)


def get_config(arg=''):
  """`:laptop|gpu,path=…,seeds=3`."""
  a, c = _arg(arg), default()
  if a.scale not in SCALES:
    raise ConfigError(f"scale: '{a.scale}' is unknown (there are {', '.join(SCALES)})")
  if a.scale != 'laptop' and not a.path:
    raise ConfigError(f"path: scale '{a.scale}' needs long text (for instance :{a.scale},path=books, a folder of .txt or .jsonl)")
  layers, width, heads, length, batch, steps, rate = SCALES[a.scale]
  c.train_length, c.batch_size, c.num_train_steps = length, batch, steps
  c.model.num_layers, c.model.embed_dim, c.model.num_heads = layers, width, heads
  c.model.mlp = 'gelu' if a.scale == 'laptop' else 'swiglu'
  c.model.dtype = 'float32' if a.scale == 'laptop' else 'bfloat16'
  c.data.min_bytes = 8 * length  # a window of four training lengths lies in one document
  if a.path:
    c.data.source, c.data.path = 'text', a.path
  c.optim.learning_rate = rate
  c.eval_every_steps = c.checkpoint_every_steps = steps // 5
  return c


def maps(length):
  """{name: encoding} that is trained on at twice the length. NTK is RoPE with base 20000, as in the table."""
  # At 64 positions the fastest pair makes 10 rotations, and beta_fast=32 would slow down all.
  slow = ', beta_fast=4.0, ramp="rotations"' if length < 512 else ''
  yarn = f'yarn(factor=2, original_length={length}{slow})'
  return {'PI': f'linear(factor=2, original_length={length})', 'NTK': 'rope(base=20000)', 'YaRN': yarn, 'raw': 'rope'}


def sweep(arg, config, folder, done):
  """RoPE on three seeds, then four maps from each."""
  length = config.train_length
  for seed in range(_arg(arg).seeds):
    yield f'RoPE-s{seed}', {'seed': seed}
    if math.isfinite(done.get(f'RoPE-s{seed}', math.inf)):
      for name, encoding in maps(length).items():
        more = {'encoding': encoding, 'train_length': 2 * length, 'batch_size': config.batch_size // 2, 'seed': seed}
        more |= {'num_train_steps': config.num_train_steps // 10, 'optim.learning_rate': config.optim.learning_rate / 3}
        yield f'{name}-s{seed}', more | {'init_from': f'{folder}/RoPE-s{seed}'}


def _ours(lengths, length):
  return [round(n * length / THEIR_LENGTH) for n in lengths]


def evaluation(config, name):
  """Windows slid by a sixteenth of L, as 256 is of 4096."""
  base = name.startswith('RoPE-')
  length = config.train_length if base else config.train_length // 2
  sliding = {'protocols': ['sliding'], 'stride': max(1, length // 16), 'max_targets': 10_000}
  lengths = _ours([*YARN_LENGTHS, *LONGROPE_LENGTHS], length)
  return sliding | {'lengths': sorted(set(lengths)), 'encodings': ['rope', *LONGROPE] if base else None}


def published(config):
  """Both tables."""
  length = config.train_length
  note = 'Theirs are perplexities of sentencepiece tokens, ours of bytes: compare the lines "nats above".'
  return [
    {
      'title': 'Proof-pile, Llama-2-7B trained on at twice its length: perplexity; ours: trained on for a tenth of the steps',
      'source': 'Peng and others: YaRN, arXiv:2309.00071, table 1',
      'protocol': 'sliding',
      'value': 'ppl',
      'lengths': YARN_LENGTHS,
      'ours': _ours(YARN_LENGTHS, length),
      'base': YARN_LENGTHS.index(THEIR_LENGTH),
      'rows': {name: {'published': values, 'runs': f'{name}-s*'} for name, values in YARN.items()},
      'note': note,
    },
    {
      'title': 'PG-19, Llama-2-7B without further training: perplexity',
      'source': 'Ding and others: LongRoPE, arXiv:2402.13753, table 1',
      'protocol': 'sliding',
      'value': 'ppl',
      'lengths': LONGROPE_LENGTHS,
      'ours': _ours(LONGROPE_LENGTHS, length),
      'rows': {name: {'published': values, 'runs': 'RoPE-s*', 'encoding': name} for name, values in LONGROPE.items()},
      'note': note + ' How the paper placed its windows was not looked up. Its order of the maps is not that of other papers.',
    },
  ]
