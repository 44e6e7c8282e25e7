"""Row 16: time and memory of attention against length: ALiBi dense and in blocks, torch SDPA without a bias, forward, 4 heads of 64.

The exponent of each is fitted in every round, so that a slow minute tilts no line; docs/growth.png shows the medians.
"""

import numpy as np

from benchmarks.plan import Contestant, Group, Row, memory_exponent, time_exponent

KINDS = {
  'dense': ('ours', {'encoding': 'alibi', 'method': 'dense'}),
  'blockwise': ('ours', {'encoding': 'alibi', 'method': 'blockwise'}),
  'torch SDPA': ('torch_peers', {'kind': 'causal'}),
}
LONGEST_DENSE = 8192  # 2 GB; 12 GB at twice that


def groups(quick):
  """2k to 32k; the quick run 1k to 8k."""
  lengths = [1024 << n for n in range(4)] if quick else [2048 << n for n in range(5)]
  contestants, rows = [], []
  for kind, (module, args) in KINDS.items():
    used = [n for n in lengths if n <= LONGEST_DENSE // (2 if quick else 1)] if kind == 'dense' else lengths
    names = [f'{kind} {n}' for n in used]
    for name, n in zip(names, used):
      contestants.append(Contestant(name, module, 'attention', args | {'length': n}, process=kind, memory=True))
    gates = ((2.1, 2.0), (1.1, 1.0)) if kind == 'blockwise' else ((None, None),) * 2
    text = f'exponent of {{}}, {kind}, {used[0]} … {used[-1]}'
    rows.append(Row('16', text.format('time'), time_exponent(names, used), *gates[0]))
    rows.append(Row('16', text.format('extra memory'), memory_exponent(names, used), *gates[1]))
  return [Group('growth', contestants, rows, turn=0.1)]


def draw(measured, path):
  """Seconds and extra memory against length, from the JSON of the group."""
  import matplotlib

  matplotlib.use('Agg')
  from matplotlib import pyplot

  missing = measured.get('missing', {})  # who ended in the middle has fewer rounds than others
  figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), layout='constrained')
  for kind in KINDS:
    for axis, table, unit, label in ((axes[0], 'seconds', 1, 'seconds'), (axes[1], 'memory', 1e6, 'extra memory, MB')):
      points = sorted(
        (int(n.rpartition(' ')[2]), v) for n, v in measured[table].items() if n.rpartition(' ')[0] == kind and v and n not in missing
      )
      if points:
        first, middle, third = np.percentile([np.array(v) / unit for _, v in points], [25, 50, 75], axis=1)
        at = [n for n, _ in points]
        line = axis.plot(at, middle, marker='o', label=kind)[0]
        axis.fill_between(at, first, third, color=line.get_color(), alpha=0.2, linewidth=0)
      axis.set(xscale='log', yscale='log', xlabel='length', ylabel=label)
  for axis in axes:
    lengths = sorted({int(n.rpartition(' ')[2]) for n in measured['seconds'] if ' ' in n})
    axis.set_xticks(lengths, [f'{n // 1024}k' for n in lengths])
    axis.minorticks_off()
    axis.grid(alpha=0.3)
  axes[0].legend()
  path.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path, dpi=120)
  pyplot.close(figure)
