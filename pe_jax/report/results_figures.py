"""Figures of a sweep as PNG files: every chart's curves, lengths by encodings, needle grids, and how far each encoding is reliable.

At most MOST curves are drawn in a figure, those that went furthest; the caption says so, and the page's charts and the tables have all.
"""

import colorsys
import dataclasses
import itertools
import math
import pathlib

import numpy as np

from pe_jax import workdir
from pe_jax.report import figure, probes_figure

MOST = 10  # curves in a figure
ROWS = 40  # lines of a heat map or bars
GRIDS = 6  # needle figures
HEAT = ('context_difference', 'length_nonoverlapping', 'task')  # charts that are drawn as lengths by encodings too


@dataclasses.dataclass(frozen=True)
class Figure:
  """A picture with what is said of it."""

  title: str
  caption: str
  path: pathlib.Path


def colours(readings):
  """{label: '#rrggbb'}: the colours of the other figures for the encodings that have one, each once, then others."""
  house, spare, out = dict(figure.COLOURS), itertools.chain(figure.OTHERS, _hues()), {}
  for reading in readings:
    name = reading.trained.partition('(')[0] if reading.own else ''
    out[reading.label] = house.pop(name, None) or next(spare)
  return out


def _hues():
  for n in itertools.count(1):
    rgb = colorsys.hls_to_rgb(n * 0.618034 % 1, 0.42 + 0.12 * (n % 2), 0.55)
    yield '#' + ''.join(f'{round(255 * x):02x}' for x in rgb)


def draw(charts, entries, readings, folder):
  """Draws everything there is something of into a folder; yields each Figure when it is there.

  Args:
    charts: as from `charts.of_readings`.
    entries: as from `ranking.of_readings`.
    readings: as from `readings.of_runs`.
    folder: where the files go.
  """
  folder = pathlib.Path(folder)
  with workdir.writing(folder / 'figures'):
    folder.mkdir(parents=True, exist_ok=True)
  place = places(entries, readings)
  colour = colours(readings)
  for chart in charts:
    yield curves(chart, colour, place, folder / f'{safe(chart.name)}.png')
  for chart in charts:
    if chart.name in HEAT:
      yield heat_map(chart, place, folder / f'heat_{chart.name}.png')
  found = [e for e in entries if _reached(e)]
  if found:
    yield reach(sorted(found, key=lambda e: place[e.reading.label]), folder / 'reliable.png')
  asked = sorted((r for r in readings if r.rows('needle')), key=lambda r: place[r.label])
  for n, reading in enumerate(asked[:GRIDS]):
    drawn = needles(reading, folder / f'needle_grid_{n + 1}.png', len(asked))
    if drawn:
      yield drawn


def count(charts, entries, readings):
  """How many Figures there will be."""
  needle = min(GRIDS, sum(bool(reading.rows('needle')) for reading in readings))
  return len(charts) + sum(chart.name in HEAT for chart in charts) + any(_reached(e) for e in entries) + needle


def _reached(entry):
  return entry.lengths is not None and entry.lengths.reliable.reach is not None


def places(entries, readings):
  """{label: place} in the order in which readings are shown: the best ranked first, under the first protocol that ranks them."""
  named = {}
  for entry in sorted(entries, key=lambda e: (e.rank is None, e.rank or 0)):
    named.setdefault(entry.reading.label, len(named))
  for reading in readings:
    named.setdefault(reading.label, len(named))
  return named


def safe(name):
  """A name for a file."""
  return ''.join(c if c.isalnum() and c.isascii() else '_' for c in name).strip('_') or 'figure'


def plain(text, most=60):
  """Text that matplotlib takes as it stands: no formulas in it, no line breaks, and not endless."""
  text = ''.join(c if c.isprintable() else '?' for c in text).replace('\\', '/').replace('$', r'\$')
  return text if len(text) <= most else text[: most - 3] + '...'


def curves(chart, colour, place, path):
  """A chart's curves with bands and the training lengths marked."""
  plt = probes_figure.pyplot()
  chosen = sorted(chart.curves, key=lambda c: place[c.reading.label])[:MOST]
  fig, axis = plt.subplots(figsize=(7.2, 4 + 0.1 * len(chosen)), layout='constrained')
  for curve in chosen:
    tint, label = colour[curve.reading.label], plain(curve.reading.label)
    axis.plot(curve.x, curve.y, color=tint, lw=1.6, marker='o' if len(curve.x) < 12 else None, ms=3, label=label)
    if curve.low:
      axis.fill_between(curve.x, curve.low, curve.high, color=tint, alpha=0.18, lw=0)
  if chart.marks:
    for train in sorted({c.reading.train_length for c in chosen}):
      axis.axvline(train, color='k', lw=0.8, ls='--')
      side = 'left' if train <= min(c.x[0] for c in chosen) else 'right'
      axis.annotate(' trained to here ', (train, 1), xycoords=('data', 'axes fraction'), ha=side, va='top', fontsize=7)
  if chart.log_x and all(c.x[0] > 0 for c in chosen):
    axis.set_xscale('log', base=2)
    axis.xaxis.set_major_formatter(lambda x, _: f'{x:g}')
  axis.grid(alpha=0.25)
  axis.set_xlabel(chart.x)
  axis.set_ylabel(chart.y)
  fig.legend(loc='outside lower center', frameon=False, fontsize=8, ncols=2)
  left_out = f'; the first {MOST} of {len(chart.curves)} by rank' if len(chart.curves) > MOST else ''
  return _saved(fig, chart.title, chart.band + left_out, path)


def heat_map(chart, place, path):
  """Lengths by encodings, the number in every cell."""
  plt = probes_figure.pyplot()
  chosen = sorted(chart.curves, key=lambda c: place[c.reading.label])[:ROWS]
  lengths = sorted({x for curve in chosen for x in curve.x})
  value = np.full((len(chosen), len(lengths)), np.nan)
  for n, curve in enumerate(chosen):
    value[n, [lengths.index(x) for x in curve.x]] = curve.y
  differences = chart.name.startswith('context')
  largest = max(0.05, float(np.nanmax(np.abs(value))))
  span = {'cmap': 'RdBu_r', 'vmin': -largest, 'vmax': largest} if differences else {'cmap': 'viridis'}
  names = [plain(curve.reading.label) for curve in chosen]
  width = 2 + 0.065 * max(map(len, names)) + 0.75 * len(lengths)
  fig, axis = plt.subplots(figsize=(width, 1.1 + 0.3 * len(chosen)), layout='constrained')
  image = axis.imshow(value, aspect='auto', **span)
  for (n, k), x in np.ndenumerate(value):
    if math.isfinite(x):
      shade = image.norm(x)
      dark = abs(shade - 0.5) > 0.3 if differences else shade < 0.55
      axis.text(k, n, f'{x:+.2f}' if differences else f'{x:.2f}', ha='center', va='center', fontsize=7, color='w' if dark else 'k')
  axis.set_xticks(range(len(lengths)), [f'{n:g}' for n in lengths])
  axis.set_yticks(range(len(chosen)), names, fontsize=8)
  axis.set_xlabel(chart.x)
  fig.colorbar(image, ax=axis, label=chart.y if len(chosen) > 6 else None)
  left_out = f'; the first {ROWS} of {len(chart.curves)} by rank' if len(chart.curves) > ROWS else ''
  return _saved(fig, f'lengths by encodings: {chart.title}', chart.y + left_out, path)


def reach(entries, path):
  """How far each encoding is reliable, and how far it was tested."""
  plt = probes_figure.pyplot()
  shown = entries[:ROWS]
  fig, axis = plt.subplots(figsize=(7.2, 1.1 + 0.3 * len(shown)), layout='constrained')
  for n, entry in enumerate(shown):
    r = entry.lengths.reliable
    unit, end = r.reference, r.reach.passed or r.reference
    axis.plot([1, r.lengths[-1] / unit], [n, n], color='0.8', lw=8, solid_capstyle='butt', zorder=1)
    axis.plot([1, end / unit], [n, n], color='#0072B2', lw=8, solid_capstyle='butt', zorder=2)
    axis.annotate(f' {r.reach.text()}', (max(end / unit, 1), n), va='center', fontsize=7, zorder=3)
  axis.set_yticks(range(len(shown)), [plain(e.reading.label) for e in shown], fontsize=8)
  axis.set_ylim(len(shown) - 0.5, -0.5)
  axis.set_xscale('log', base=2)
  axis.xaxis.set_major_formatter(lambda x, _: f'{x:g} L')
  axis.set_xlim(0.95, 1.15 * max(e.lengths.reliable.lengths[-1] / e.lengths.reliable.reference for e in shown))
  axis.set_xlabel('length, in training lengths L')
  first = shown[0].lengths.reliable
  caption = f'{first.rule()} with 95 % confidence at every tested length up to the end of the bar; grey: tested'
  return _saved(fig, 'reliable length', caption + (f'; the first {ROWS} of {len(entries)}' if len(entries) > ROWS else ''), path)


def needles(reading, path, count):
  """Needle grids of a reading, a panel a variant; accuracies are means over seeds."""
  groups = {}
  for rows in reading.rows('needle'):
    for row in rows:
      if row.get('cells') and isinstance(row.get('variant'), str) and isinstance(row.get('chance'), float):
        groups.setdefault((row['variant'], row['length']), []).append(row)
  if not groups:
    return None
  depths = [cell['depth'] for cell in next(iter(groups.values()))[0]['cells']]
  rows = []
  for same in groups.values():
    cells = [r['cells'] for r in same if [cell['depth'] for cell in r['cells']] == depths]
    if cells:
      means = [{'depth': d, 'accuracy': float(np.mean([c[n]['accuracy'] for c in cells]))} for n, d in enumerate(depths)]
      rows.append(same[0] | {'cells': means} | {k: plain(same[0][k]) for k in ('asked_encoding', 'trained_encoding', 'variant')})
  with workdir.writing(path):
    probes_figure.needle(rows, path)
  seeds = len(reading.rows('needle'))
  caption = f'accuracy at each depth and length{f", mean of {seeds} seeds" if seeds > 1 else ""}; * the training length'
  return Figure(f'needle grid: {reading.label}', caption + (f'; {GRIDS} of {count} encodings' if count > GRIDS else ''), path)


def _saved(fig, title, caption, path):
  from matplotlib import pyplot as plt

  axis = fig.axes[0]
  axis.set_title(plain(title, 100), fontsize=10)
  with workdir.writing(path):
    fig.savefig(path, dpi=110)
  plt.close(fig)
  return Figure(title, caption, path)
