"""What the seeds of a reading say together under `context`: paired sums over runs and documents, and the three lengths."""

import dataclasses

import ml_collections
import numpy as np

from pe_jax.errors import UserError
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
  from pe_jax import evaluate
  from pe_jax.evaluate import lengths as three

  at, train = reading.at('context'), reading.train_length
  targets = {n: {str(row.get('targets_sha256')) for row in rows} for n, rows in at.items()}
  beyond = [n for n in at if n > train and targets[n] == targets.get(train)]
  found = paired(reading, beyond) if beyond else None
  if not found:
    return None
  protocol = f'same targets, last {found.span}' + (', spans of one document' if found.unit == 'span' else '')
  gate = None if bar is None else (found.inside_R, bar)
  reliable = statistics.of_losses(beyond, found.sum_NRU, found.count_RU, train, protocol, in_distribution=gate, margin=margin)
  config = ml_collections.ConfigDict(reading.runs[0].config).lock()
  try:
    accepted = three.acceptable(evaluate.Subject(config, {}, None, [], {}), reading.read_as)
  except (UserError, AttributeError, KeyError, TypeError, ValueError):  # an encoding or a config that this version does not have
    return None
  return statistics.Lengths(reading.label, accepted, statistics.Reach(beyond[-1]), reliable)
