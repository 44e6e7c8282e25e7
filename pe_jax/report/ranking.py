"""Which encodings went furthest: one entry a reading and protocol, ranked at the longest length that any of them was measured at.

    context          D(n) at the longest n, loss less that at the training length on the same targets; the smallest first
    other losses     loss at the longest length less that at the training length; the smallest first
    task             exact match at the longest length; the largest first

Entries of other training lengths, protocols, texts or tasks are ranked apart. Without a rank stay those that cannot be put in order with
the others: other targets were scored, the longest length is missing, or the model is not good enough in distribution for any claim beyond
it.
"""

import collections
import dataclasses

import numpy as np

from pe_jax.report import seeds
from pe_jax.report.rows import number, whole
from pe_jax.statistics import bootstrap
from pe_jax.statistics import lengths as statistics

PROTOCOLS = ('context', 'nonoverlapping', 'sliding', 'prefix', 'buckets', 'task')
ACCURACY = 0.8  # exact match in distribution, below which nothing is claimed beyond it


@dataclasses.dataclass(frozen=True, eq=False)
class Entry:
  """A reading under a protocol.

  Attributes:
    reading: the Reading.
    protocol: the protocol.
    length: the longest that any reading of its training length was measured at.
    inside: loss in distribution, or exact match there; a mean over seeds, None where it is unknown.
    inside_of: what `inside` was measured by.
    value: loss, or exact match, at `length`.
    change: what is ranked by.
    low, high: of the change.
    interval: in words, what `low` and `high` are; '' where there are none.
    lengths: `statistics.lengths.Lengths` of a reading under `context` or on a task, else None.
    faults: sentences on what keeps it from a rank.
    notes: sentences on what is to be doubted.
    rank: from 1 on, or None.
  """

  reading: object
  protocol: str
  length: int
  inside: float | None = None
  inside_of: str = ''
  value: float | None = None
  change: float | None = None
  low: float | None = None
  high: float | None = None
  interval: str = ''
  lengths: object = None
  faults: tuple = ()
  notes: tuple = ()
  rank: int | None = None

  @property
  def higher_is_better(self):
    return self.protocol == 'task'


def of_readings(readings, margin=statistics.MARGIN, bar=None, advance=lambda: None):
  """The Entries, ranked, best first.

  Args:
    readings: as from `readings.of_runs`.
    margin: nats that a reliable length may cost.
    bar: loss in nats that must be reached in distribution; None: no gate.
    advance: called after each reading and protocol.
  """
  out = []
  for protocol in PROTOCOLS:
    kin = collections.defaultdict(list)
    for reading in readings:
      if reading.rows(protocol):
        kin[reading.kin].append(reading)
    for _, members in sorted(kin.items()):
      lengths = sorted({length for reading in members for length in reading.at(protocol)})
      strange = strangers(members, protocol, 'targets_sha256')
      by_stride = strangers(members, protocol, 'stride') if protocol == 'sliding' else {}
      entries = []
      for reading in members:
        unlike = strange.get(reading.label, ()), by_stride.get(reading.label, ())
        entries.append(_entry(reading, protocol, lengths, unlike, margin, bar))
        advance()
      out += ranked(entries)
  return out


def count(readings):
  """How many Entries there will be."""
  return sum(bool(reading.rows(protocol)) for reading in readings for protocol in PROTOCOLS)


def ranked(entries):
  """The same in order: those with a rank first."""
  able = [e for e in entries if not e.faults and e.change is not None]
  able.sort(key=lambda e: -e.change if e.higher_is_better else e.change)
  rest = [e for e in entries if e.faults or e.change is None]
  return [dataclasses.replace(e, rank=n + 1) for n, e in enumerate(able)] + rest


def strangers(readings, protocol, name):
  """{label: lengths at which a field of its rows is another than of most}; all of them where nothing has a majority."""
  seen = collections.defaultdict(lambda: collections.defaultdict(set))
  for reading in readings:
    for length, rows in reading.at(protocol).items():
      for row in rows:
        seen[length][str(row.get(name))].add(reading.label)
  out = collections.defaultdict(list)
  for length, by_hash in sorted(seen.items()):
    if len(by_hash) > 1:
      sizes = sorted((len(labels) for labels in by_hash.values()), reverse=True)
      usual = max(by_hash, key=lambda h: len(by_hash[h])) if sizes[0] > sizes[1] else None
      for label in sorted({label for h, labels in by_hash.items() if h != usual for label in labels}):
        out[label].append(length)
  return dict(out)


def _entry(reading, protocol, lengths, unlike, margin, bar):
  at, longest = reading.at(protocol), lengths[-1]
  inside, inside_of = in_distribution(reading, protocol)
  faults = _gate(reading, protocol, inside, inside_of, bar)
  for what, strange in zip(('other targets than the others were scored', 'windows went on by other strides than the others'), unlike):
    if strange:
      faults.append(f'not comparable: {what} at {_listed(strange)}')
  if bad := sorted({n for rows in at.values() for row in rows for n in row.get('not_finite') or ()}):
    faults.append(f'losses are no numbers at {_listed(bad)}')
  if longest not in at:
    faults.append(f'missing lengths: {_listed(n for n in lengths if n not in at)}')
  notes = [f'missing lengths: {_listed(n for n in lengths if n not in at)}'] if longest in at and set(lengths) - set(at) else []
  count = len(reading.rows(protocol))
  if count < len(reading.runs):
    states = ', '.join(f'{run.name} {run.state}' for run in reading.runs if not any(r['measure'] == protocol for r in run.rows))
    notes.append(f'{count} of {len(reading.runs)} seeds measured ({states})')
  partial = [n for n, rows in at.items() if len(rows) < count]
  if partial:
    notes.append(f'not every seed was measured at {_listed(partial)}')
  numbers = {}
  if longest in at:
    name = 'exact_match' if protocol == 'task' else 'nll'
    numbers = {'value': _mean(row.get(name) for row in at[longest])} | _change(reading, protocol, longest)
  three = None
  if protocol in ('context', 'task'):
    three = seeds.three_lengths(reading, margin, bar) if protocol == 'context' else seeds.three_lengths_of_task(reading)
  if three and three.reliable.reach is None and not any(fault.startswith('in-distribution gate') for fault in faults):
    faults.append(f'in-distribution gate failed: {three.reliable.gate.why}')
  inside = _mean(inside)
  return Entry(reading, protocol, longest, inside, inside_of, lengths=three, faults=tuple(faults), notes=tuple(notes), **numbers)


def in_distribution(reading, protocol):
  """([one number a seed], what they are): the protocol's own at the training length where it has it, else another's."""
  if protocol == 'task':
    reach = reading.reach or 0
    inside = [[row for row in rows if row['length'] <= reach] for rows in reading.rows('task')]
    return [number(rows[-1].get('exact_match')) for rows in inside if rows], f'exact match up to {reach}'
  for measure in dict.fromkeys([protocol, 'context', 'nonoverlapping']):
    if measure in ('prefix', 'buckets'):
      continue  # their row of the training length, if there is one, is the start of longer windows
    rows = reading.at(measure).get(reading.train_length)
    if rows:
      return [number(row['nll']) for row in rows], f'{measure} at {reading.train_length}'
  found = [number(run.done.get('validation_loss')) for run in reading.runs]
  return [x for x in found if x is not None], 'validation loss of training'


def _gate(reading, protocol, inside, inside_of, bar):
  """A fault where a model is not good enough in distribution."""
  inside = [x for x in inside if x is not None]
  if protocol == 'task':
    rows = [row for rows in reading.rows('task') for row in rows]
    chance = max((number(row.get('chance_exact_match')) or 0.0 for row in rows), default=0.0)
    if not inside:
      return ['in-distribution gate failed: no length that training reached was tested']
    low = [x for x in inside if x < ACCURACY or x <= chance]
    return [f'in-distribution gate failed: {inside_of} {min(low):.3f}, below {max(ACCURACY, chance):g}'] if low else []
  if bar is not None and inside and max(inside) > bar:
    return [f'in-distribution gate failed: loss {max(inside):.3f} ({inside_of}), above the bar of {bar:g}']
  return []


def _change(reading, protocol, longest):
  """What is ranked by, with bounds; of other losses than those below, the spread over `by_seed`."""
  rows = reading.at(protocol)[longest]
  if protocol == 'task':
    found = {'change': _mean(row.get('exact_match') for row in rows)}
    if len(rows) == 1:
      return found | _bounds(rows[0], 'exact_match_low', 'exact_match_high', "95 % (Wilson's), samples")
    return found | _spread([number(row.get('exact_match')) for row in rows])
  if protocol == 'context':
    differences = [row['difference'] for row in rows if 'difference' in row]
    found = {'change': _mean(d['mean'] for d in differences)}
    if len(differences) == 1:
      return found | _bounds(differences[0], 'low', 'high', f'95 %, {rows[0].get("by_unit", {}).get("unit", "document")}s')
    pair = seeds.paired(reading, [longest])
    if pair:
      interval = bootstrap.difference(pair.sum_NRU[0], np.zeros_like(pair.sum_NRU[0]), pair.count_RU)
      return found | {'low': interval.low, 'high': interval.high, 'interval': '95 %, seeds and documents'}
    return found | _spread([d['mean'] for d in differences])
  if protocol == 'buckets':
    last = [row['buckets'][-1] for row in rows if row.get('buckets')]
    found = {'change': _mean(bucket.get('difference') for bucket in last)}
    return found | (_bounds(last[0], 'low', 'high', '95 %, documents') if len(last) == 1 else _spread([b.get('difference') for b in last]))
  found = list(by_seed(reading, protocol, longest)[1].values())
  return {'change': _mean(found)} | _spread(found)


def by_seed(reading, protocol, longest):
  """({seed: loss or exact match at the longest length}, {seed: what is ranked by}) of the runs that have them."""
  value, change = {}, {}
  for of_run in reading.rows(protocol):
    by_length = {row['length']: row for row in of_run}
    row, at_train = by_length.get(longest), by_length.get(reading.train_length)
    if row is None:
      continue
    value[row.get('seed')] = number(row.get('exact_match') if protocol == 'task' else row['nll'])
    if protocol == 'task':
      change[row.get('seed')] = number(row.get('exact_match'))
    elif protocol == 'context':
      change[row.get('seed')] = number(row.get('difference', {}).get('mean'))
    elif protocol == 'buckets':
      change[row.get('seed')] = number((row.get('buckets') or [{}])[-1].get('difference'))
    elif at_train:
      change[row.get('seed')] = row['nll'] - at_train['nll']
  return tuple({seed: x for seed, x in found.items() if whole(seed) and x is not None} for found in (value, change))


def _mean(values):
  """Of those that are numbers; None where there are none."""
  found = [x for x in map(number, values) if x is not None]
  return sum(found) / len(found) if found else None


def _bounds(record, low, high, interval):
  low, high = number(record.get(low)), number(record.get(high))
  return {} if low is None or high is None else {'low': low, 'high': high, 'interval': interval}


def _spread(values):
  """The least and the largest of several seeds."""
  found = [x for x in map(number, values) if x is not None]
  return {'low': min(found), 'high': max(found), 'interval': f'least and largest of {len(found)} seeds'} if len(found) > 1 else {}


def _listed(numbers):
  return ', '.join(map(str, sorted(numbers)))
