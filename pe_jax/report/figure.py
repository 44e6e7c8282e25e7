"""Figures of result rows, drawn with matplotlib and no display."""

import pathlib

COLOURS = {'sinusoidal': '#D55E00', 'rope': '#0072B2', 't5': '#009E73', 'alibi': '#444444'}
OTHERS = ('#CC79A7', '#E69F00', '#56B4E9', '#7B4FA3', '#8C6D31')


def loss_by_position(panels, train_length, path, baseline):
  """Draws loss against position, and the same minus one curve, which takes away the noise that all share.

  Args:
    panels: [(title, rows)]: each row a result row whose `position_buckets` become a curve.
    train_length: where the vertical line stands.
    path: the .png to write.
    baseline: the row that is subtracted in the lower panels.
  """
  import matplotlib

  matplotlib.use('Agg')
  from matplotlib import pyplot as plt

  plt.rcParams.update({'font.size': 9, 'axes.spines.top': False, 'axes.spines.right': False, 'axes.grid': True, 'grid.alpha': 0.25})
  figure, axes = plt.subplots(2, len(panels), figsize=(5.2 * len(panels), 6.4), sharex=True, sharey='row', layout='constrained')
  base = dict(curve(baseline))
  for (title, rows), (top, bottom) in zip(panels, axes.T, strict=True):
    spare = iter(OTHERS)
    for row in rows:
      points = curve(row)
      style = {'label': row['encoding'], 'color': COLOURS.get(row['encoding'].partition('(')[0]) or next(spare), 'lw': 1.6}
      top.plot([x for x, _ in points], [y for _, y in points], **style)
      bottom.plot([x for x, _ in points], [y - base[x] for x, y in points], **style)
    for axis in (top, bottom):
      axis.axvline(train_length, color='k', lw=0.8, ls='--')
      axis.set_xscale('log', base=2)
      axis.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda x, _: f'{x:g}'))
    top.set_title(title)
    top.annotate('trained to here ', (train_length, 1), xycoords=('data', 'axes fraction'), ha='right', va='top', fontsize=8)
    top.legend(frameon=False, fontsize=8, loc='upper left')
    bottom.axhline(0, color='k', lw=0.6)
    bottom.set_xlabel('position in the window (bytes)')
  axes[0, 0].set_ylabel('loss (nats a byte)')
  axes[1, 0].set_ylabel(f'loss minus that of {baseline["asked_encoding"]}')
  pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path, dpi=130)
  plt.close(figure)


def curve(row):
  """(middle, mean loss) of ranges of positions: buckets joined, but not across the training length, to a sixth of where a range starts."""
  points, waiting = [], []
  for bucket in row['position_buckets']:
    waiting.append(bucket)
    start, end = waiting[0]['start'], bucket['end']
    if end - start >= start / 6 or end == row['train_length'] or bucket is row['position_buckets'][-1]:
      targets = sum(b['targets'] for b in waiting)
      points.append(((start + end) / 2, sum(b['nll'] * b['targets'] for b in waiting) / targets))
      waiting = []
  return points
