"""Curves of readings, as numbers: what the page's charts and the figures both draw.

Several seeds of a reading are one curve, their mean, with a band from the least to the largest; one seed has the 95 % interval of its rows
where they carry one, and no band where they do not.
"""

import dataclasses

import numpy as np

from pe_jax.report import figure
from pe_jax.report.rows import number

POINTS = 120  # of a training curve; longer ones are means of neighbouring steps
SEEDS = 'bands: least and largest seed; a single seed has none'
SURE = 'bands: least and largest seed; of a single seed the 95 % interval over documents'


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
  """x rising; low and high are None where there is no band."""

  reading: object
  x: list
  y: list
  low: list | None = None
  high: list | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Chart:
  """Attributes:
  name: for files and links.
  title, x, y: what is drawn, with units.
  curves: the Curves.
  band: what bands are, in words.
  log_x: whether x is drawn in powers of two at first.
  marks: whether x is positions or tokens, so that training lengths can be marked.
  """

  name: str
  title: str
  x: str
  y: str
  curves: list
  band: str
  log_x: bool = True
  marks: bool = True


def of_readings(readings):
  """The Charts for which there is something to draw."""
  made = [_context(readings, key, title) for key, title in ARMS.items()]
  made += [_by_position(readings, protocol) for protocol in ('prefix', 'nonoverlapping')]
  made += [_by_length(readings, protocol) for protocol in ('nonoverlapping', 'sliding', 'prefix')]
  made += [_task(readings)]
  variants = sorted({row['variant'] for r in readings for rows in r.rows('needle') for row in rows if isinstance(row.get('variant'), str)})
  made += [_needle(readings, variant) for variant in variants]
  made += [_entropy(readings), *_training(readings)]
  return [chart for chart in made if chart.curves]


ARMS = {
  'difference': 'D(n): the same targets with more context',
  'shuffled_far': 'D(n) with the far context in another order',
  'replaced_far': "D(n) with another document's text as far context",
}


def _context(readings, key, title):
  of = [(r, [_points(rows, lambda row: row.get(key)) for rows in r.rows('context')]) for r in readings]
  return Chart(f'context_{key}', title, 'tokens fed, n', 'D(n) (nats a target)', _curves(of), SURE)


def _points(rows, of):
  """{length: (value, low, high)} of rows where `of` gives a record with a mean."""
  found = {row['length']: of(row) for row in rows}
  return {n: (record['mean'], record.get('low'), record.get('high')) for n, record in found.items() if record}


def _by_position(readings, protocol):
  of = []
  for reading in readings:
    runs = reading.rows(protocol)
    longest = max((rows[-1]['length'] for rows in runs), default=0)
    last = [rows[-1] for rows in runs if rows[-1]['length'] == longest and rows[-1].get('position_buckets')]
    of.append((reading, [{x: (y, None, None) for x, y in figure.curve(row)} for row in last]))
  title = f'loss against position, windows of the longest length ({protocol})'
  return Chart(f'position_{protocol}', title, 'position in the window (tokens)', 'loss (nats a target)', _curves(of), SEEDS)


def _by_length(readings, protocol):
  of = [(r, [{row['length']: (row['nll'], None, None) for row in rows} for rows in r.rows(protocol)]) for r in readings]
  return Chart(f'length_{protocol}', f'loss against length ({protocol})', 'length (tokens)', 'loss (nats a target)', _curves(of), SEEDS)


def _task(readings):
  def point(row):
    return tuple(number(row.get(name)) for name in ('exact_match', 'exact_match_low', 'exact_match_high'))

  of = [(r, [{row['length']: point(row) for row in rows} for rows in r.rows('task')]) for r in readings]
  band = "bands: least and largest seed; of a single seed Wilson's 95 % interval"
  return Chart(
    'task', 'exact matches against length', 'length, as the task counts it', 'exact matches (share)', _curves(of), band, marks=False
  )


def _needle(readings, variant):
  def point(row):
    return tuple(number(row.get(name)) for name in ('accuracy', 'accuracy_low', 'accuracy_high'))

  of = [(r, [{row['length']: point(row) for row in rows if row.get('variant') == variant} for rows in r.rows('needle')]) for r in readings]
  band = "bands: least and largest seed; of a single seed Wilson's 95 % interval"
  return Chart(
    f'needle_{variant}', f'needle, {variant.replace("_", " ")}: accuracy over all depths', 'length (tokens)', 'accuracy', _curves(of), band
  )


def _entropy(readings):
  of = []
  for reading in readings:
    heads = {}
    for rows in reading.rows('attention'):
      for row in rows:
        heads.setdefault(row['length'], []).extend(head['entropy'] for head in row.get('heads') or ())
    of.append((reading, [{n: (float(np.mean(some)), min(some), max(some)) for n, some in sorted(heads.items()) if some}]))
  band = 'mean over heads and seeds; bands: least and largest head of any seed'
  return Chart('entropy', 'entropy of attention against length', 'length n (tokens)', 'entropy (nats)', _curves(of), band)


def _training(readings):
  for key, title, y in (
    ('loss', 'training loss', 'loss (nats a target)'),
    ('validation_loss', 'validation loss during training', 'loss (nats a target)'),
  ):
    of = []
    for reading in reversed({r.runs: r for r in reversed(readings) if r.own}.values()):  # each configuration once, whatever it was read on
      logged = [[(row['step'], number(row.get(key))) for row in run.metrics] for run in reading.runs]
      of.append((reading, [{s: (x, None, None) for s, x in thinned([p for p in log if p[1] is not None])} for log in logged]))
    yield Chart(f'training_{key}', title, 'step', y, _curves(of), SEEDS, log_x=False, marks=False)


def thinned(points, most=POINTS):
  """(step, value) pairs, neighbours put together until no more than `most` are left; the step is the last of those."""
  size = -(-len(points) // most)
  groups = [points[n : n + size] for n in range(0, len(points), max(1, size))]
  return [(group[-1][0], sum(y for _, y in group) / len(group)) for group in groups]


def _curves(of):
  """Curves of (reading, [{x: (y, low, high)} of each run])."""
  out = []
  for reading, runs in of:
    runs = [{x: p for x, p in run.items() if p[0] is not None} for run in runs]
    runs = [run for run in runs if run]
    if not runs:
      continue
    xs = sorted({x for run in runs for x in run})
    values = [[run[x][0] for run in runs if x in run] for x in xs]
    y = [sum(v) / len(v) for v in values]
    if len(runs) > 1:
      low, high = [min(v) for v in values], [max(v) for v in values]
    else:
      low, high = ([runs[0][x][k] if runs[0][x][k] is not None else runs[0][x][0] for x in xs] for k in (1, 2))
    band = any(b - a > 1e-9 * max(1.0, abs(b)) for a, b in zip(low, high))  # more than the rounding of seeds that agree
    out.append(Curve(reading, xs, y, low if band else None, high if band else None))
  return out
