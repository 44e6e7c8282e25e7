"""Figures of probes: the needle's grid as a heat map, and the entropy of every head against the length."""

import pathlib

import numpy as np


def draw(rows, folder):
  """Draws what the rows allow; the paths that were written."""
  folder, paths = pathlib.Path(folder), []
  for name, plot in (('needle', needle), ('attention', entropy)):
    found = [r for r in rows if r['probe'] == name]
    for encoding in dict.fromkeys(r['asked_encoding'] for r in found):
      safe = ''.join(c if c.isalnum() else '_' for c in encoding).strip('_')
      path = folder / f'{name}_{safe}.png'
      folder.mkdir(parents=True, exist_ok=True)
      plot([r for r in found if r['asked_encoding'] == encoding], path)
      paths.append(path)
  return paths


def pyplot():
  """matplotlib without a display, with the look of the other figures."""
  import matplotlib

  matplotlib.use('Agg')
  from matplotlib import pyplot as plt

  plt.rcParams.update({'font.size': 9, 'axes.spines.top': False, 'axes.spines.right': False})
  return plt


def needle(rows, path):
  """Depth against length, a panel a variant: accuracy by colour and number."""
  plt = pyplot()
  variants = list(dict.fromkeys(r['variant'] for r in rows))
  figure, axes = plt.subplots(1, len(variants), figsize=(3.6 * len(variants) + 0.6, 4.2), squeeze=False, layout='constrained')
  for variant, axis in zip(variants, axes[0]):
    mine = sorted((r for r in rows if r['variant'] == variant), key=lambda r: r['length'])
    grid = np.asarray([[cell['accuracy'] for cell in r['cells']] for r in mine]).T
    image = axis.imshow(grid, vmin=0, vmax=1, cmap='viridis', aspect='auto')
    for (d, n), value in np.ndenumerate(grid):
      axis.text(n, d, f'{value:.2f}', ha='center', va='center', fontsize=7, color='k' if value > 0.6 else 'w')
    axis.set_xticks(range(len(mine)), [f'{r["length"]}' + ('*' if r['length'] == r['train_length'] else '') for r in mine])
    axis.set_yticks(range(len(grid)), [f'{cell["depth"]:g}' for cell in mine[0]['cells']])
    axis.set_title(f'{variant.replace("_", " ")} (chance {mine[0]["chance"]:.2f})')
    axis.set_xlabel('length (tokens)')
  axes[0, 0].set_ylabel('depth of the needle (0: start)')
  figure.colorbar(image, ax=axes[0, -1], label='accuracy')
  first = rows[0]
  figure.suptitle(f'needle, {first["asked_encoding"]}, trained with {first["trained_encoding"]} at {first["train_length"]}')
  figure.savefig(path, dpi=130)
  plt.close(figure)


def entropy(rows, path):
  """Entropy against ln n, a line a head, layers by colour; ln n itself is what all keys alike would give."""
  plt = pyplot()
  rows = sorted(rows, key=lambda r: r['length'])
  lengths, layers = [r['length'] for r in rows], 1 + max(head['layer'] for head in rows[0]['heads'])
  figure, axis = plt.subplots(figsize=(5.6, 4.2), layout='constrained')
  for n, head in enumerate(rows[0]['heads']):
    label = f'layer {head["layer"]}' if head['head'] == 0 else None
    colour = plt.get_cmap('viridis')(head['layer'] / max(1, layers - 1) * 0.9)
    axis.plot(lengths, [r['heads'][n]['entropy'] for r in rows], color=colour, lw=1, marker='o', ms=2.5, label=label)
  axis.plot(lengths, np.log(lengths), color='k', lw=0.8, ls=':', label='ln n (all keys alike)')
  train = rows[0]['train_length']
  axis.axvline(train, color='k', lw=0.8, ls='--')
  axis.annotate(' trained to here', (train, 1), xycoords=('data', 'axes fraction'), va='top', fontsize=8)
  axis.set_xscale('log', base=2)
  axis.set_xticks(lengths, [str(n) for n in lengths])
  axis.set_xlabel('length n (tokens, logarithmic)')
  axis.set_ylabel('entropy of attention (nats)')
  axis.set_title(rows[0]['asked_encoding'])
  axis.legend(frameon=False, fontsize=8)
  figure.savefig(path, dpi=130)
  plt.close(figure)
