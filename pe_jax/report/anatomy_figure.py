"""An anatomy (anatomy.py) as one picture: a row of panels for each thing that the encoding does, drawn without a display."""

import pathlib
import textwrap

import numpy as np

from pe_jax.report import anatomy_panels as panels

STYLE = {
  'font.size': 9,
  'axes.titlesize': 'medium',
  'axes.spines.top': False,
  'axes.spines.right': False,
  'axes.grid': True,
  'axes.axisbelow': True,
  'grid.alpha': 0.25,
}


def draw(anatomies: list[dict], path) -> None:
  """Writes the picture of anatomies, one below the other.

  Args:
    anatomies: what `anatomy.anatomy` gives.
    path: the file; its suffix (.png, .pdf, .svg) says in what form.
  """
  import matplotlib

  matplotlib.use('Agg')
  from matplotlib import pyplot as plt

  rows = [row for a in anatomies for row in _rows(a)] or [(anatomies[0]['encoding'], [panels.nothing])]
  columns = max(len(drawn) for _, drawn in rows)
  with matplotlib.rc_context(STYLE):
    figure = plt.figure(figsize=(4.8 * columns, 3.5 * len(rows)), layout='constrained')
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08)
    for strip, (title, drawn) in zip(np.atleast_1d(figure.subfigures(len(rows), 1)), rows, strict=True):
      title = textwrap.fill(title, 52 * columns, max_lines=2, placeholder=' …')
      strip.suptitle(title, fontweight='bold', x=0.01, ha='left')
      axes = np.atleast_1d(strip.subplots(1, columns))
      for axis, panel in zip(axes, drawn):
        panel(axis)
      for axis in axes[len(drawn) :]:
        axis.remove()
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _rows(a):
  """(title, panels) for everything there is to draw. A panel is a function of an axis."""
  where = f'trained at {a["train_length"]}, read at {a["served_length"]} tokens'
  if a['table']:
    waves = [panels.table_waves(a), panels.table_picture(a)] if a['table']['wavelengths'] else []
    yield f'{a["encoding"]}: rows added to the embeddings, {where}', [*waves, panels.table_cosine(a)]
  for part in a['parts']:
    some = f' in {len(part["layers"])} of {a["num_layers"]} layers' if len(a['parts']) > 1 else ''
    title = f'{part["encoding"]}{some}, {where}{", as at initialisation" if a["parameters"] else ""}'
    for group in part['rotation']:
      mapped = any(pair['divisor'] is None or abs(pair['divisor'] - 1) > 1e-6 for pair in group['pairs'])
      yield title, [panels.waves(a, group), *([panels.divisors(group)] if mapped else []), panels.circle(group)]
    seen = [panels.visible(a, part)] if part['visible'] and not part['weights'] else []
    if part['read_distances'] or seen:
      yield title, [*([panels.read(a, part)] if part['read_distances'] else []), *seen]
    biases, weights = ([panel(a, part['weights'], n) for n in range(len(part['weights']))] for panel in (panels.biases, panels.shares))
    if len(biases) == 1:
      yield title, biases + weights
    elif biases:
      yield title, biases
      yield '', weights
    if part['temperature']:
      yield title, [panels.temperatures(a, part['temperature'])]
