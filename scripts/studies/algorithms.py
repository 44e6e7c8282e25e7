"""Tasks: copying up to 16 letters, tested at 20, and sorting up to 12 numbers, tested at 24 (F7); a needle in up to 61 tokens, tested at
256 by depth (F8); Markov chains read by a model without a mask (F-leak).
"""

import numpy as np
from scipy import stats

from pe_jax import evaluate, launch, probes
from pe_jax.evaluate import task as protocol
from pe_jax.tasks import samples
from studies.finding import QUIET, Finding

COPY = {'alibi': 'alibi', 'rope': 'rope', 'sinusoidal': 'sinusoidal'}
COPY_TASK = 'copy(draw="distinct", symbols=64)'
# What one of the source documents gives as ALiBi's slopes, 2^(-h/H), beside the authors' 2^(-8h/H).
WRONG = tuple(2.0 ** (-h / 4) for h in (1, 2, 3, 4))
NEEDLE = {
  'alibi': 'alibi',
  'alibi, wrong slopes': f'alibi(slopes={WRONG})',
  'nope': 'nope',
  'rope': 'rope',
  'rope, base 10': 'rope(base=10.0)',
}
FAR, SHALLOW = 256, 0.25
SORT = {'nope': 'nope', 'sinusoidal': 'sinusoidal', 'sinusoidal, randomized': 'randomized(sinusoidal, range=256)'}
LEAK = {'rope, no mask': 'rope'}
TASKS = {  # arms, task, what configs/task.py is told of its lengths, other fields
  'copy': (COPY, COPY_TASK, 'max_length=16', {}),
  'sort': (SORT, 'sort', 'max_length=12', {}),
  'needle': (NEEDLE, 'needle', 'min_length=8,max_length=61', {}),
  'markov': (LEAK, 'markov', 'min_length=64,max_length=64', {'model.causal': False}),
}


def jobs(folder, seeds, steps):
  """All tasks; `steps` has a number for each."""
  return [
    launch.Job(
      folder / f'{name} {arm}-{seed}',
      f'{launch.ROOT}/configs/task.py:{name},{lengths},steps={steps[name]},seed={seed}',
      steps[name],
      QUIET | {'checkpoint_every_steps': steps[name], 'encoding': encoding, 'data.name': task} | fields,
    )
    for seed in seeds
    for name, (arms, task, lengths, fields) in TASKS.items()
    for arm, encoding in arms.items()
  ]


def measure(folder, seeds, count=500):
  """{(task, arm, seed): {what: number}}: exact match by length, and what else the functions below find."""
  import pe_jax

  found = {}
  for seed in seeds:
    for name, lengths in (('copy', [16, 20]), ('sort', [12, 24])):
      for arm in TASKS[name][0]:
        rows = pe_jax.load(folder / f'{name} {arm}-{seed}').evaluate(lengths, samples=count)
        found[name, arm, seed] = {r['length']: r['exact_match'] for r in rows}
    for arm in NEEDLE:
      run = pe_jax.load(folder / f'needle {arm}-{seed}')
      found['needle', arm, seed] = needle(run, count) | by_depth(run)
    for arm in LEAK:
      found['markov', arm, seed] = leak(pe_jax.load(folder / f'markov {arm}-{seed}'), count)
  return found


def leak(run, count):
  """Loss above the optimal predictor's, which honest models cannot be below, and what the probe says of it."""
  (row,) = run.evaluate([run.config.data.task_max_length], samples=count)
  options = probes.Options(floor=row['optimal_nll'])
  (seen,) = run.probe([run.config.train_length], ['leak'], options=options)
  return {'above': row['nll_above_optimum'], 'leaks': float(seen['leaks']), 'below floor': float(seen['below_floor'])}


def by_depth(run):
  """At `FAR`, over 11 depths: rank correlation of the margin with the distance, and the spread of the accuracy."""
  (row,) = run.probe([FAR], ['needle'])
  cells = row['cells']
  margin, distance, accuracy = (np.asarray([cell[name] for cell in cells]) for name in ('margin', 'distance', 'accuracy'))
  return {'correlation': float(stats.spearmanr(distance, margin).statistic), 'spread': float(np.ptp(accuracy))}


def needle(run, count):
  """Exact match at 61 anywhere, and at `FAR` where the needle lies within the first quarter."""
  subject = evaluate.subject(run.config, run.params, samples=count)
  task, out = subject.task, {}
  for length in (61, FAR):
    test = samples.test_set(task, 'test', length, count * (4 if length == FAR else 1), 61).samples
    if length == FAR:
      value = [int(np.flatnonzero(np.isin(tokens[:-2], tokens[-1:]))[0]) for tokens, _ in test]
      test = [one for one, place in zip(test, value, strict=True) if place <= SHALLOW * length]
    rows, width = samples.rows(test, task.positions(length), task.bos), task.positions(length)
    enc = subject.encoding(subject.at_length(_spec(run), width), width)
    _, right_BT = protocol.teacher_forced(run.config, enc, run.params, rows)
    out[length] = float((right_BT | (rows.weight_BT == 0)).all(1).mean())
  return out


def _spec(run):
  from pe_jax import encodings

  return encodings.parse(run.config.encoding)


def findings(found, seeds):
  """All `Finding`s of this file."""

  def at(task, arm, length):
    return np.asarray([found[task, arm, seed][length] for seed in seeds])

  def share(name, claim, values, threshold=None, at_least=True):
    return Finding(name, claim, '', tuple(map(float, values)), threshold, at_least)

  unmasked = 'rope, no mask'
  return [
    *[share('F7', f'copy, {arm}: exact match at 16 (the gate, .95)', at('copy', arm, 16)) for arm in COPY],
    share('F7', 'copy at 20: ALiBi less sinusoidal', at('copy', 'alibi', 20) - at('copy', 'sinusoidal', 20), 0.41),
    share('F7', 'copy at 20: ALiBi less RoPE', at('copy', 'alibi', 20) - at('copy', 'rope', 20), 0.37),
    *[share('F7', f'sort, {arm}: exact match at 12 (the gate, .95)', at('sort', arm, 12)) for arm in SORT],
    share('F7', 'sort at 24: no positions less sinusoidal', at('sort', 'nope', 24) - at('sort', 'sinusoidal', 24)),
    share('F7', 'sort at 24: randomized less plain sinusoidal', at('sort', 'sinusoidal, randomized', 24) - at('sort', 'sinusoidal', 24)),
    *[share('F8', f'needle, {arm}: exact match at 61', at('needle', arm, 61)) for arm in NEEDLE],
    *[share('F8', f'needle, {arm}: in the first quarter of 256', at('needle', arm, FAR)) for arm in NEEDLE],
    share('F8', 'slopes 2^(-8h/H) less 2^(-h/H), there', at('needle', 'alibi', FAR) - at('needle', 'alibi, wrong slopes', FAR), 0.40),
    share('F8', 'no positions less ALiBi, there', at('needle', 'nope', FAR) - at('needle', 'alibi', FAR), 0.0),
    share('F3', 'RoPE with base 10 less that with 10000, there', at('needle', 'rope, base 10', FAR) - at('needle', 'rope', FAR)),
    share('F8', 'ALiBi at 256: rank correlation of the margin with the distance', at('needle', 'alibi', 'correlation'), -0.8, False),
    share('F8', 'no positions at 256: accuracy of the best depth less that of the worst', at('needle', 'nope', 'spread')),
    share('F-leak', 'no mask: nats a token above the optimal predictor', at('markov', unmasked, 'above'), -0.2, False),
    share('F-leak', 'flagged by the probe `leak`', at('markov', unmasked, 'leaks'), 1.0),
    share('F-leak', 'flagged by its loss alone, below .9 of the floor', at('markov', unmasked, 'below floor'), 1.0),
  ]
