"""Shifted positions: training sees each document at one random offset.

    position of token t of n:  t + offset,   offset uniform in 0 .. range - n

Every position up to the range gets trained, although no distance beyond the training length does. Kiyono et al., 2021, arXiv:2109.05644
(SHAPE), for absolute positions. One draw for each document at each step; evaluation starts at 0. Relative encodings do not notice.
"""

from pe_jax.encodings import draws


def encoding(dims, inner, *, range=2048):
  """The record. `range`: positions from here on are never seen."""

  def positions(key_B, where, training):
    if not training:
      return where
    return where.at(where.i_BT + draws.whole_number(key_B, where.qdoc_BT, range - where.qlen_BT + 1), contiguous=True)

  return draws.wrap(dims, inner, 'shifted', range, positions, 'from 0 in each window')
