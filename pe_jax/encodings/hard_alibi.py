"""Hard-ALiBi: head h sees its last w_h tokens and nothing else, without any other position.

    visible: i - j < w_h,   w_h = h unless given,   h = 1 .. H

Jelassi et al., 2024, arXiv:2402.01032, who give windows of growing size to some heads and no position at all to the others:
heads(hard_alibi, nope). A head of window 1 sees its own token only.
"""

import numpy as np

from pe_jax.encodings.base import Encoding, Traits
from pe_jax.errors import ConfigError


def encoding(dims, *, windows=()):
  """The record. `windows`: one whole number a head, in tokens."""
  window_H = np.asarray(windows or np.arange(1, dims.num_heads + 1))
  if window_H.shape != (dims.num_heads,):
    raise ConfigError(f'encoding: hard_alibi got {window_H.size} windows for {dims.num_heads} heads (give one per head)')
  if not np.issubdtype(window_H.dtype, np.integer) or window_H.min() < 1:
    raise ConfigError(f'encoding: hard_alibi windows must be whole numbers of tokens, at least 1, not {windows}')

  def visible(tables, where):
    del tables
    return where.distance_BTS()[:, None] < window_H[None, :, None, None]

  return Encoding(visible=visible, traits=Traits(relative=True))
