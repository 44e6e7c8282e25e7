"""docs/real-weights.md and its figure, out of the rows.

Differences are against the crop: RoPE as it was trained on the last min(n, L) tokens of the same text, L = 8192. Up to L that is what a
reading costs inside the context, beyond L it is of use where below 0. Intervals are from a bootstrap that draws documents and, within each,
blocks of targets; of one document the blocks alone.
"""

import pathlib

import numpy as np

from pe_jax.report.table import aligned
from pe_jax.statistics import bootstrap


def differences(rows, train):
  """{(kinds, length, reading): (Interval of the loss less that of the crop, texts)}; kinds is one, or 'all' where there are several."""
  by, found = {tuple(row['job']): row for row in rows}, {}
  kinds = list(dict.fromkeys(row['job'][0] for row in rows))
  for group in [*([kind] for kind in kinds), *([kinds] if len(kinds) > 1 else [])]:
    name = group[0] if len(group) == 1 else 'all'
    for length, reading in dict.fromkeys((key[2], key[3]) for key in by):
      pairs = [
        (row, by[kind, document, min(length, train), 'raw'])
        for (kind, document, n, read), row in by.items()
        if kind in group and (n, read) == (length, reading) and (kind, document, min(length, train), 'raw') in by
      ]
      # Of all kinds only where each has a document: else a length would be of another text than its neighbours.
      if pairs and {row['job'][0] for row, _ in pairs} == set(group):
        nll_RU, crop_RU = (np.asarray([pair[n]['nll'] for pair in pairs]) for n in (0, 1))
        counts = np.full(nll_RU.shape, pairs[0][0]['block'])
        found[name, length, reading] = bootstrap.difference(nll_RU, crop_RU, counts, shared=False), len(pairs)
  return found


def losses(rows, readings):
  """The table of losses and differences by kind: one line a reading, one column a length."""
  train = rows[0]['settings']['train_length']
  found = differences(rows, train)
  lengths = sorted({row['job'][2] for row in rows})
  kinds, parts = {row['job'][0] for row in rows}, []
  for kind in dict.fromkeys(name for name, _, _ in found):
    mine = [row for row in rows if kind in ('all', row['job'][0])]

    def of(length, reading, mine=mine, kind=kind):
      """The rows of a cell; of all kinds only where each has a text, else lengths would be of other texts than their neighbours."""
      found = [row for row in mine if tuple(row['job'][2:]) == (length, reading)]
      return found if kind != 'all' or {row['job'][0] for row in found} == kinds else []

    table = [[kind, *map(str, lengths)], ['raw, nats', *(_mean(of(n, 'raw')) for n in lengths)]]
    for reading in readings:
      cells = ['-' if reading == 'raw' and n <= train else _interval(found.get((kind, n, reading))) for n in lengths]
      table.append([f'{reading}, against crop', *cells])
    for reading in readings:
      table.append([f'{reading}, key nats', *(_key(of(n, reading)) for n in lengths)])
    parts.append(aligned(table))
  return '\n\n'.join(parts)


def _mean(rows):
  return f'{np.mean([np.sum(row["nll"]) / (len(row["nll"]) * row["block"]) for row in rows]):.3f} [{len(rows)}]' if rows else ''


def _interval(found):
  if found is None:
    return ''
  d, texts = found
  return f'{d.estimate:+.3f} ({d.low:+.3f} .. {d.high:+.3f}) [{texts}]'


def _key(rows):
  """Mean -log p of the key, and in how many texts it was found."""
  key = [row['key'] for row in rows]
  return f'{np.mean(key):.1f}, {sum(x < np.log(2) for x in key)} of {len(key)}' if key else ''


def costs(rows, readings, peers):
  """Seconds and memory by length, of what was not compiled on the way if there is such; transformers below."""
  lengths = sorted({row['job'][2] for row in rows})
  table = [['', *map(str, lengths)]]
  for reading in readings:
    cells = []
    for n in lengths:
      mine = [row for row in rows if tuple(row['job'][2:]) == (n, reading) and row['seconds']]
      clean = [row['seconds'] for row in mine if not row['compiled']]
      cells.append(f'{np.median(clean):.1f}' if clean else f'{mine[0]["seconds"]:.1f} with compiling' if mine else '')
    if any(cells):
      table.append([f'{reading}, s', *cells])
  # The least: later texts of a length find what earlier ones have left, compiled programs and what malloc keeps.
  peaks = [min((row['peak_gb'] for row in rows if row['job'][2] == n and row['seconds']), default=0.0) for n in lengths]
  table.append(['peak of the process, GB', *(f'{gb:.1f}' if gb else '' for gb in peaks)])
  for kind in dict.fromkeys(row['type'] for row in peers):
    of = {row['length']: row for row in peers if row['type'] == kind}
    table.append([f'transformers, {kind}, s', *(f'{of[n]["seconds"]:.1f}' if n in of else '' for n in lengths)])
    table.append(['  its peak, GB', *(f'{of[n]["peak_gb"]:.1f}' if n in of and of[n]['peak_gb'] else '' for n in lengths)])
  return aligned(table)


def write(path, setup, rows, left, readings, peers=()):
  """The page, and the figure beside it.

  Args:
    path: the .md.
    setup: the paragraph on when, where and with what.
    rows: as from `measure.rows`.
    left: jobs that did not fit into the time.
    readings: {name: encoding}.
    peers: rows of `peers.rows`.
  """
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  settings = rows[0]['settings']
  draw(rows, readings, path.with_suffix('.png'))
  block = rows[0]['block']
  text = [
    '# Real weights far beyond their context', '', setup, '',
    f'![Loss against the crop, by length, for each reading]({path.with_suffix(".png").name})', '',
    f'Each text ends with the same {settings["span"]} targets at every length. *Against crop*: loss less that of `{settings["encoding"]}` '
    f'as trained on the last {settings["train_length"]} tokens, or on as many as there are: up to there the cost of a reading inside the '
    'context, beyond it of use where below 0. In brackets 95 % intervals from a bootstrap over texts and, within them, blocks of '
    f'{block} targets, and in square ones the number of texts. With one text an interval is of its blocks alone and says nothing of other '
    'texts; with two it has half of the variance between texts, with R of them (R - 1) / R. Means of one line are of the texts that were '
    'measured there, which are fewer at longer lengths: only *against crop* compares the same ones. *Key*: -log p of '
    f'{settings["digits"]} digits that were said once in the far text and are asked for after the targets '
    f'({settings["digits"] * np.log(10):.1f} for a guesser), and the texts in which it had more than half of the probability.', '',
    'Readings: ' + ', '.join(f'{name} = `{encoding}`' for name, encoding in readings.items()) + '.', '',
    '```', losses(rows, readings), '```', '',
    'Time of one text, forward with all losses:', '', '```', costs(rows, readings, peers), '```', '',
  ]  # fmt: skip
  if peers:
    versions = ', '.join(f'{name} {version}' for name, version in peers[0]['versions'].items())
    text += [f'Beside it {versions} with sdpa, which made the logits of the last {settings["span"]} positions alone.', '']
  if left:
    text += [f'{len(left)} texts did not fit into the time and were left out, the first of them {_said(left[0])}.', '']
  path.write_text('\n'.join(text), encoding='utf-8')


def _said(job):
  return f'{job.kind} {job.document} at {job.length} under {job.reading}'


def draw(rows, readings, path):
  """Left the loss against the crop, of all kinds where each has it, else of the first; right that of the key."""
  import matplotlib

  matplotlib.use('Agg')
  from matplotlib import pyplot as plt

  train = rows[0]['settings']['train_length']
  found = differences(rows, train)
  kinds = list(dict.fromkeys(name for name, _, _ in found))
  figure, axes = plt.subplots(1, len(kinds), figsize=(4.2 * len(kinds), 4), sharey=True, squeeze=False, layout='constrained')
  for axis, kind in zip(axes[0], kinds, strict=True):
    for reading in readings:
      at = sorted(n for name, n, read in found if (name, read) == (kind, reading))
      if at:
        one = [found[kind, n, reading][0] for n in at]
        (line,) = axis.plot(at, [d.estimate for d in one], marker='o', ms=3, label=reading)
        axis.fill_between(at, [d.low for d in one], [d.high for d in one], color=line.get_color(), alpha=0.2, lw=0)
    axis.axhline(0, color='k', lw=0.6)
    axis.axvline(train, color='k', lw=0.8, ls='--')
    axis.set_xscale('log', base=2)
    axis.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda x, _: f'{x:g}'))
    axis.set_yscale('symlog', linthresh=0.1)  # raw RoPE costs nats where the maps cost hundredths
    axis.set_title(kind)
    axis.set_xlabel('tokens fed (trained to the dashed line)')
  axes[0, 0].set_ylabel('loss less that of the crop (nats a token)')
  axes[0, 0].legend(frameon=False, fontsize=8, loc='upper left')
  figure.savefig(path, dpi=130)
  plt.close(figure)
