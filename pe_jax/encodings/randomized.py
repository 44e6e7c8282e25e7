"""Randomized positions: training sees increasing random positions out of a range much longer than the training length.

    positions of a document of n tokens: a sorted random subset of {0, …, range - 1}, n numbers

Ruoss et al., 2023, arXiv:2305.16843. Order is kept, so distances mean order and not length, and every position of a longer test has been
trained. Positions are drawn again at each step for each document; at evaluation there is one draw per row from a fixed seed, as the paper
evaluates on random positions too.
"""

from pe_jax.encodings import draws
from pe_jax.errors import ConfigError


def encoding(dims, inner, *, range=2048):
  """The record. `range`: the longest length it can be tested at."""

  def positions(key_B, where, training):
    del training
    length = where.i_BT.shape[1]
    if length > range:
      raise ConfigError(f'encoding: randomized: range={range} is smaller than the length {length} (give a larger range before training)')
    return where.at(draws.subset(key_B, where.qdoc_BT, range))

  return draws.wrap(dims, inner, 'randomized', range, positions, f'1 seeded draw of increasing positions below {range}')
