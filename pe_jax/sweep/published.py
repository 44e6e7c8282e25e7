"""A paper's numbers beside what the runs of a sweep have measured.

A sweep's file has published(config), which gives a list of dicts:

    title, source       what the table is, and where it stands
    protocol, value     of our rows to hold against it, and their number: 'ppl', 'nll', 'exact_match'
    lengths             the columns, as published
    ours                our lengths for them, such as the same multiples of our training length; left out: the same
    base                the column that differences are taken from; left out: the first
    rows                {name: {'published': [one a column, None where there is none], 'runs': 'rope-s*', 'encoding': as asked, or None}}
    note                a sentence on what differs

Perplexities of other tokens say nothing to each other, so both are also given as nats above the base, which is what a length costs.
"""

import fnmatch
import math
import pathlib
import statistics

from pe_jax import encodings, metrics, workdir
from pe_jax.report import table


def text(sweep, tables):
  """All tables, ours taken from the folders of the sweep."""
  return '\n\n'.join(_one(sweep, one) for one in tables)


def _one(sweep, one):
  lengths, ours, base = one['lengths'], one.get('ours', one['lengths']), one.get('base', 0)
  rows = [['', '', *(str(n) if n == m else f'{n} ({m})' for n, m in zip(lengths, ours, strict=True))]]
  for name, row in one['rows'].items():
    found = [_values(sweep, one, row, length) for length in ours]
    rows.append([name, 'published', *(_cell([value] if value is not None else []) for value in row['published'])])
    rows.append(['', 'ours', *map(_cell, found)])
    if one['value'] == 'ppl':
      rows.append(['', 'published, nats above', *_above(row['published'], base)])
      rows.append(['', 'ours, nats above', *_above([statistics.geometric_mean(v) if v else None for v in found], base)])
  said = [f'{one["title"]} ({one["source"]}); {one["protocol"]}, {one["value"]}', table.aligned(rows, left=2)]
  return '\n'.join([*said, one['note']] if one.get('note') else said)


def _values(sweep, one, row, length):
  """Our values of a cell, one for each run that has it."""
  found = []
  for name, run in sweep.runs.items():
    folder = pathlib.Path(run.folder)
    if fnmatch.fnmatchcase(name, row['runs']) and (folder / 'config.json').exists():
      asked = _canonical(row.get('encoding'), workdir.read_config(folder).encoding)
      rows = metrics.read(folder / 'eval' / f'{one["protocol"]}.jsonl')
      found += [r[one['value']] for r in rows if r['length'] == length and r['asked_encoding'] == asked][-1:]
  return found


def _canonical(asked, trained):
  """As rows have it: with what it leaves open taken from the trained encoding."""
  trained = encodings.parse(trained)
  return str(encodings.inherit(encodings.check_name(asked), trained)) if asked else str(trained)


def _cell(values):
  """A number, or the mean of several with their range; '–' where there is none yet."""
  if not values:
    return '–'
  mean = f'{statistics.fmean(values):.4g}'
  return mean if len(values) == 1 else f'{mean} [{min(values):.4g}, {max(values):.4g}]'


def _above(perplexities, base):
  first = perplexities[base]
  return ['–' if value is None or first is None else f'{math.log(value / first):+.3f}' for value in perplexities]
