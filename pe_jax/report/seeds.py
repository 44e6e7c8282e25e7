"""What the seeds of a reading say together: paired sums over runs and documents, and the three lengths."""

import dataclasses

import ml_collections
import numpy as np

from pe_jax.errors import UserError
from pe_jax.report.rows import number
from pe_jax.statistics import lengths as statistics


@dataclasses.dataclass(frozen=True, eq=False)
class Paired:
  """Attributes:
  sum_NRU: loss at each length less that at the training length, sums over the targets of each run and document or span, nats.
  count_RU: targets.
  inside_R: loss at the training length, nats a target.
  unit: 'document' or 'span'.
  span: targets of a span.
  """

  sum_NRU: np.ndarray
  count_RU: np.ndarray
  inside_R: list
  unit: str
  span: int


def paired(reading, lengths):
  """The Paired of the runs that have all lengths.

  None where fewer than two documents or spans were scored, or where runs or lengths scored different targets.
  """
  train, sums, counts, inside, hashes = reading.train_length, [], [], [], set()
  for rows in reading.rows('context'):
    by_length = {row['length']: row for row in rows if 'by_unit' in row}
    if not all(n in by_length for n in (train, *lengths)):
      continue
    first = by_length[train]
    hashes |= {str(by_length[n].get('targets_sha256')) for n in (train, *lengths)}
    if len(hashes) > 1 or any(by_length[n]['by_unit']['targets'] != first['by_unit']['targets'] for n in lengths):
      return None
    sums.append([np.subtract(by_length[n]['by_unit']['nll'], first['by_unit']['nll']) for n in lengths])
    counts.append(first['by_unit']['targets'])
    inside.append(first['nll'])
  if not sums or len(counts[0]) < 2 or any(count != counts[0] for count in counts):
    return None
  return Paired(
    np.asarray(sums).transpose(1, 0, 2), np.asarray(counts, np.float64), inside, first['by_unit'].get('unit'), first.get('span')
  )


def three_lengths(reading, margin=statistics.MARGIN, bar=None):
  """The `Lengths` of a reading over its seeds; of one seed what eval.py prints. None where `context` does not say it.

  Args:
    reading: the Reading.
    margin: nats that a reliable length may cost.
    bar: loss in nats that every run must reach at the training length; None: no gate, and the result says so.
  """
  at, train = reading.at('context'), reading.train_length
  targets = {n: {str(row.get('targets_sha256')) for row in rows} for n, rows in at.items()}
  end = statistics.first_not_finite([row for rows in at.values() for row in rows], train)
  beyond = [n for n in at if n > train and targets[n] == targets.get(train) and (end is None or n < end)]
  found = paired(reading, beyond) if beyond else None
  if not found:
    return None
  protocol = f'same targets, last {found.span}' + (', spans of one document' if found.unit == 'span' else '')
  gate = None if bar is None else (found.inside_R, bar)
  reliable = statistics.of_losses(beyond, found.sum_NRU, found.count_RU, train, protocol, in_distribution=gate, margin=margin)
  return _lengths(reading, beyond[-1], statistics.ended(reliable, end), end)


def three_lengths_of_task(reading):
  """The same by exact matches, of the runs that have all lengths; None where none lies on either side of what training reached."""
  reach, runs = reading.reach, []
  end = statistics.first_not_finite([row for rows in reading.rows('task') for row in rows], reach or 0)
  lengths = [n for n in reading.at('task') if end is None or n < end]
  for rows in reading.rows('task'):
    by_length = {row['length']: row for row in rows if 'right' in row.get('by_unit', ())}
    if by_length and all(n in by_length for n in lengths):
      runs.append([by_length[n] for n in lengths])
  inside = [n for n, length in enumerate(lengths) if reach and length <= reach]
  if not runs or not inside or len(inside) == len(lengths) or len({len(row['by_unit']['trials']) for rows in runs for row in rows}) > 1:
    return None
  by_run = ([[row['by_unit'][name] for row in rows] for rows in runs] for name in ('right', 'trials'))
  right_NRU, trials_NRU = (np.asarray(x).swapaxes(0, 1) for x in by_run)
  last, first = inside[-1], runs[0][inside[-1]]
  if right_NRU[last].size < 2:
    return None
  numbers = lengths[last + 1 :], right_NRU[last + 1 :], trials_NRU[last + 1 :], right_NRU[last], trials_NRU[last], reach
  what = statistics.exact_match(first.get('task'), lengths[last], reach)
  reliable = statistics.of_accuracies(*numbers, what, chance=number(first.get('chance_exact_match')) or 0.0)
  return _lengths(reading, lengths[-1], statistics.ended(reliable, end), end)


def _lengths(reading, computed, reliable, end):
  """The Lengths around a Reliable; None of an encoding or a config that this version does not have."""
  from pe_jax import evaluate, tasks
  from pe_jax.evaluate import lengths as three

  config = ml_collections.ConfigDict(reading.runs[0].config).lock()
  try:
    task = tasks.make(config.data.name) if config.data.source == 'task' else None
    accepted = three.acceptable(evaluate.Subject(config, {}, None, [], {}, task), reading.read_as)
  except (UserError, AttributeError, KeyError, TypeError, ValueError):
    return None
  return statistics.Lengths(reading.label, accepted, statistics.Reach(computed, end), reliable)
