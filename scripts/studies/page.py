"""docs/findings.md and its figures."""

import pathlib

from pe_jax.report import lengths_table


def write(path, setup, dated, groups, lengths, curves):
  """The page.

  Args:
    path: the .md to write; figures go beside it.
    setup: lines on what was run.
    dated: when and on which seeds, for every section.
    groups: {title: Findings}.
    lengths: `statistics.lengths.Lengths`, of all seeds together.
    curves: as from `language.curves`, and the lengths they are at.
  """
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  arms, maps, at = curves
  draw(arms, maps, at, path.with_name('findings.png'))
  count = {}
  for found in groups.values():
    for finding in found:
      count[finding.verdict] = count.get(finding.verdict, 0) + 1
  text = ['# Findings', '', *setup, '', ', '.join(f'{n} {verdict}' for verdict, n in count.items()) + '.', '']
  text += [
    'A threshold is half of the effect of the worst seed in a pilot with other seeds and other code, or comes from a plan that was written '
    'before any model was trained (ALiBi’s steepest head, log-n, the rank correlation, the leak, flatness, ratios, the three lengths). '
    'None was moved. Two that a first run of these seeds did not keep judge nothing any more, and their claims say so; those of the plan '
    'for where the cliff is, flatness, F5’s share, PI against YaRN, YaRN against raw and the three lengths were taken up after that run, '
    'as they stand in the plan. *Robust*: every seed keeps it. *Direction only*: every seed has the sign. *Not seen*: one has not. *Report '
    'only* has no threshold.',
    '',
    '![D(n) of each encoding, and the loss of a RoPE checkpoint under frequency maps](findings.png)',
    '',
  ]
  for title, found in groups.items():
    text += [f'## {title}', '', dated, '', '| | claim | seeds | wanted | verdict |', '|---|---|---|---|---|']
    text += ['| ' + ' | '.join(finding.cells()) + ' |' for finding in found] + ['']
  text += ['## Three lengths', '', dated, '', '```', lengths_table.lengths(lengths), '```', '']
  path.write_text('\n'.join(text))


def draw(arms, maps, at, path):
  """D(n) against n with the seeds as a band, and the loss of RoPE's parameters under each map."""
  import matplotlib

  matplotlib.use('Agg')
  from matplotlib import pyplot as plt

  figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout='constrained')
  for axis, curves, label in ((axes[0], arms, 'D(n), nats'), (axes[1], maps, 'loss, nats a byte')):
    for name, value_SN in curves.items():
      (line,) = axis.plot(at, value_SN.mean(0), marker='o', ms=3, label=name)
      axis.fill_between(at, value_SN.min(0), value_SN.max(0), color=line.get_color(), alpha=0.2, lw=0)
    axis.axvline(at[0], color='k', ls='--', lw=0.8)
    axis.set_xscale('log', base=2)
    axis.set_xticks(at, [str(n) for n in at])
    axis.set_xlabel('tokens fed (trained to the dashed line)')
    axis.set_ylabel(label)
    axis.legend(fontsize=8, frameon=False, loc='upper left')
  axes[0].set_title('the same last 32 targets with more context')
  axes[1].set_title('one RoPE checkpoint under frequency maps')
  figure.savefig(path, dpi=130)
  plt.close(figure)
