"""PoSE: training sees two runs of positions with a random skip between them, and so distances up to a target length.

    position of token t of n:  t            for t < c,    c uniform in 1 .. (n + 1) // 2
                               t + skip     from there on, skip uniform in 0 .. range - n

Zhu et al., 2023, arXiv:2309.10400, as in the authors' code, where the first run starts at 0 and is at most half of the text; in their
paper both runs come from different places of a longer document, here the text goes on. One draw for each document at each step.
Evaluation uses plain positions.
"""

import jax
import jax.numpy as jnp

from pe_jax.encodings import draws
from pe_jax.encodings.base import run_start


def encoding(dims, inner, *, range=2048):
  """The record. `range`: the length that training prepares for."""

  def positions(key_B, where, training):
    if not training:
      return where
    key_2B = jax.vmap(jax.random.split)(key_B)
    cut_BT = 1 + draws.whole_number(key_2B[:, 0], where.qdoc_BT, (where.qlen_BT + 1) // 2)
    skip_BT = draws.whole_number(key_2B[:, 1], where.qdoc_BT, range - where.qlen_BT + 1)
    token_BT = jnp.arange(where.i_BT.shape[1], dtype=jnp.int32)[None] - run_start(where.qdoc_BT)
    return where.at(where.i_BT + jnp.where(token_BT >= cut_BT, skip_BT, 0))

  return draws.wrap(dims, inner, 'pose', range, positions, 'from 0 in each window')
