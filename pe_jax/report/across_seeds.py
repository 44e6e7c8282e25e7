"""What several seeds say of a reading and of two: intervals over runs, and tests that say by how few runs they are carried.

    change     mean and t interval over seeds; flat where two one-sided t tests put it inside the margin, which is more than "not different"
    less best  loss at n less that of the first in rank, seed by seed: a seed gives both the same data order and initial weights

The exact sign-flip p stands beside the smallest p that so many runs can have, 2^(1 - runs).
"""

import dataclasses

import numpy as np

from pe_jax.report import ranking
from pe_jax.report.table import aligned
from pe_jax.statistics import lengths as statistics
from pe_jax.statistics import paired


@dataclasses.dataclass(frozen=True, eq=False)
class Across:
  """Attributes:
  entry: the `ranking.Entry`.
  change: `paired.Difference` of what is ranked by, over seeds.
  flat: `paired.Verdict` of that against 0.
  best: label of the first in rank, '' for itself.
  apart: `paired.Difference` to it, or None.
  equal: `paired.Verdict` of that.
  """

  entry: object
  change: paired.Difference
  flat: paired.Verdict
  best: str = ''
  apart: paired.Difference | None = None
  equal: paired.Verdict | None = None


def of_entries(entries, margin=statistics.MARGIN):
  """An Across for each entry of losses with two seeds or more, in the order of the entries; `margin` in nats."""
  first, out = {}, []
  for entry in entries:
    key = entry.protocol, entry.reading.kin
    if entry.rank == 1:
      first[key] = entry
    value, change = ranking.by_seed(entry.reading, entry.protocol, entry.length)
    if entry.protocol == 'task' or not 2 <= len(change) <= paired.EXACT:
      continue
    d_R, best = np.asarray(list(change.values())), first.get(key)
    found = Across(entry, paired.difference(d_R), paired.equivalence(d_R, margin))
    if best and best is not entry and not entry.faults:
      of_best = ranking.by_seed(best.reading, entry.protocol, entry.length)[0]
      a_R = np.asarray([value[seed] - of_best[seed] for seed in sorted(value.keys() & of_best.keys())])
      if len(a_R) > 1:
        more = {'best': best.reading.label, 'apart': paired.difference(a_R), 'equal': paired.equivalence(a_R, margin)}
        found = dataclasses.replace(found, **more)
    out.append(found)
  return out


def text(found, margin=statistics.MARGIN):
  """As a table; '' where nothing has two seeds."""
  if not found:
    return ''
  head = ['read as', 'protocol', 'n', 'seeds', 'change', '95 % over seeds', 'flat', 'less best', '95 % over seeds', 'p', 'least p', 'equal']
  body = []
  for one in found:
    e, c, a = one.entry, one.change, one.apart
    cells = [e.reading.label, e.protocol, str(e.length), str(c.runs), *_interval(c), _verdict(one.flat)]
    cells += [*_interval(a), f'{a.p:.3g}', f'{a.smallest_p:.3g}', _verdict(one.equal)] if a else ['-'] * 5
    body.append(cells)
  note = (
    f'flat, equal: two one-sided t tests within {margin:g} nats at 95 %, with their p; less best: loss at n less that of the first in '
    'rank, seed by seed; p: exact sign flips, least p: what so many seeds can show at best'
  )
  return aligned([head, *body], left=2) + '\n' + note


def _interval(d):
  return f'{d.mean:+.3f}', f'{d.low:+.3f} .. {d.high:+.3f}'


def _verdict(verdict):
  return f'{"yes" if verdict.holds else "no"} ({verdict.p:.2g})'
