"""Copying up to 16 letters and tested at 20 (B7), and a needle in up to 61 tokens, tested at 256 by depth (B8)."""

import numpy as np

from pe_jax import evaluate, launch
from pe_jax.evaluate import task as protocol
from pe_jax.tasks import samples
from studies.finding import Finding

COPY = {'alibi': 'alibi', 'rope': 'rope', 'sinusoidal': 'sinusoidal'}
COPY_TASK = 'copy(draw="distinct", symbols=64)'
# What one of the source documents gives as ALiBi's slopes, 2^(-h/H), beside the authors' 2^(-8h/H).
WRONG = tuple(2.0 ** (-h / 4) for h in (1, 2, 3, 4))
NEEDLE = {'alibi': 'alibi', 'alibi, wrong slopes': f'alibi(slopes={WRONG})', 'nope': 'nope', 'rope': 'rope'}
FAR, SHALLOW = 256, 0.25


def jobs(folder, seeds, copy_steps, needle_steps):
  """Both tasks."""
  config = f'{launch.ROOT}/configs/task.py'
  out = []
  for seed in seeds:
    for arms, task, steps, lengths in (
      (COPY, COPY_TASK, copy_steps, 'max_length=16'),
      (NEEDLE, 'needle', needle_steps, 'min_length=8,max_length=61'),
    ):
      name = task.partition('(')[0]
      for arm, encoding in arms.items():
        fields = {'encoding': encoding, 'data.name': task}
        out.append(launch.Job(folder / f'{name} {arm}-{seed}', f'{config}:{name},{lengths},steps={steps},seed={seed}', steps, fields))
  return out


def measure(folder, seeds, count=500):
  """{(task, arm, seed): {length: exact match}}; the needle's at 256 with the needle in the first quarter."""
  import pe_jax

  found = {}
  for seed in seeds:
    for arm in COPY:
      rows = pe_jax.load(folder / f'copy {arm}-{seed}').evaluate([16, 20], samples=count)
      found['copy', arm, seed] = {r['length']: r['exact_match'] for r in rows}
    for arm in NEEDLE:
      found['needle', arm, seed] = needle(pe_jax.load(folder / f'needle {arm}-{seed}'), count)
  return found


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

  def share(name, claim, values, threshold=None):
    return Finding(name, claim, '', tuple(map(float, values)), threshold)

  return [
    *[share('B7', f'copy, {arm}: exact match at 16 (the gate, .95)', at('copy', arm, 16)) for arm in COPY],
    share('B7', 'copy at 20: ALiBi less sinusoidal', at('copy', 'alibi', 20) - at('copy', 'sinusoidal', 20), 0.41),
    share('B7', 'copy at 20: ALiBi less RoPE', at('copy', 'alibi', 20) - at('copy', 'rope', 20), 0.37),
    *[share('B8', f'needle, {arm}: exact match at 61', at('needle', arm, 61)) for arm in NEEDLE],
    *[share('B8', f'needle, {arm}: in the first quarter of 256', at('needle', arm, FAR)) for arm in NEEDLE],
    share('B8', 'slopes 2^(-8h/H) less 2^(-h/H), there', at('needle', 'alibi', FAR) - at('needle', 'alibi, wrong slopes', FAR), 0.40),
  ]
