"""Phase table: what each rotary pair showed in training, and what it shows at the length that is read.

For pair k of wavelength w_k tokens in training, trained to L, read at n:

    rotations             r_k = L / w_k
    phase in training     2 pi r_k radians, cut at a whole turn: after that nothing is new
    phase read            that at the largest distance now, after the map
    neighbour             angle between neighbours now over that in training, 1/divisor: below 1 near tokens come closer together,
                          whatever map training had; 0 for a pair that turns in one of both alone
    out of distribution   the pair never made a whole turn in training and turns farther now

Read off the record itself by report/anatomy.py; encodings that turn nothing have no pairs.
"""

import math

from pe_jax import model
from pe_jax.probes import forward
from pe_jax.report import anatomy


def measure(subject, spec, lengths, options):
  """Yields one dict for each length, with the pairs of each kind of layer and group of heads in `groups`."""
  del options
  dims = model.dims(subject.config)
  for length in lengths:
    _, name = forward.at(subject, spec, length)
    groups = [
      {'layers': part['layers'], 'heads': group['heads'], 'reach': group['reach'], **of_pairs(group['pairs'])}
      for part in anatomy.anatomy(name, dims, length, subject.config.encoding)['parts']
      for group in part['rotation']
    ]
    yield {'length': length, 'encoding': name, 'groups': groups}


def of_pairs(pairs):
  """The table of one group, how many pairs are out of distribution, and the worst ratio of a phase read to that in training.

  The phase read is cut at a whole turn for it: beyond, all phases are new already.
  """
  table = []
  for pair in pairs:
    seen, read = pair['turns_in_training'], pair['turns_read']
    table.append({
      'wavelength': pair['wavelength'],
      'rotations': seen,
      'phase_in_training': 2 * math.pi * min(seen, 1.0),
      'phase_read': 2 * math.pi * read,
      'neighbour': 1 / pair['divisor'] if pair['divisor'] else 0.0,
      'out_of_distribution': pair['out_of_distribution'],
    })  # fmt: skip
  outside = [row for row in table if row['out_of_distribution']]
  turned = [row for row in outside if row['rotations']]  # of a pair that training did not turn at all there is no ratio
  worst = max((min(row['phase_read'], 2 * math.pi) / row['phase_in_training'] for row in turned), default=1.0)
  return {'pairs': table, 'out_of_distribution': len(outside), 'of': len(table), 'worst_ratio': worst}
