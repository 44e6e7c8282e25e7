"""Entropy of attention against ln n beyond the training length (F6): a slope of 1 is attention over all keys alike, 0 a window.

The probe `attention` on the language models at 2, 4 and 8 times L, slopes averaged over layers and heads.
"""

import numpy as np

from pe_jax import probes
from pe_jax.statistics import paired
from studies.finding import Finding
from studies.language import ARMS, L

LENGTHS = [2 * L, 4 * L, 8 * L]
READ = ('rope', 'alibi', 't5', 'nope', 'rope, log-n')


def measure(folder, seeds):
  """{(arm, seed): slopes of all heads, (layers, heads)}."""
  import pe_jax

  found = {}
  for seed in seeds:
    for arm in READ:
      rows = pe_jax.load(folder / f'{arm}-{seed}').probe(LENGTHS, ['attention'])
      probes.write(folder / f'{arm}-{seed}', rows)
      found[arm, seed] = slopes(rows)
  return found


def slopes(rows):
  """(layers, heads) of the row that has them, the longest's."""
  heads = max(rows, key=lambda r: r['length'])['heads']
  layers = 1 + max(head['layer'] for head in heads)
  return np.asarray([head['slope'] for head in sorted(heads, key=lambda h: (h['layer'], h['head']))]).reshape(layers, -1)


def findings(found, seeds):
  """All `Finding`s of this file. The gap's threshold is the pilot's, the other two are the plan's."""

  def of(arm, reduce=np.mean):
    return np.asarray([reduce(found[arm, seed]) for seed in seeds])

  def say(claim, values, threshold=None, at_least=True):
    return Finding('F6', claim, '', tuple(map(float, values)), threshold, at_least)

  return [
    *[say(f'slope of the entropy against ln n, {arm} ({ARMS[arm]})', of(arm)) for arm in READ],
    say('RoPE’s slope less ALiBi’s', of('rope') - of('alibi'), 0.09),
    *[
      say(f'and the lower end of its 95 % interval over seeds, {arm}', [paired.difference(of(arm) - of('alibi')).low], 0.0)
      for arm in (('rope', 'nope') if len(seeds) > 1 else ())
    ],
    say('slope of ALiBi’s steepest head, the largest of the layers', of('alibi', lambda x: x[:, 0].max()), 0.05, False),
    say('slope with scores x ln n / ln L ÷ without', of('rope, log-n') / of('rope'), 0.7, False),
  ]
