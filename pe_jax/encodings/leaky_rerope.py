"""Leaky ReRoPE: RoPE inside a window, distances that grow `slow` times slower beyond it.

    a score is taken at distance i - j below the window and window + (i - j - window) / slow from there on

Su Jianlin, 2023 (bojone/rerope). With slow -> infinity it is ReRoPE, with slow = 1 RoPE. The same parameters as RoPE's.
"""

import math

import jax.numpy as jnp
import numpy as np

from pe_jax.encodings import phases, rope
from pe_jax.encodings.rerope import two_readings
from pe_jax.errors import ConfigError

INHERITED = rope.INHERITED


def encoding(dims, *, window=0, slow=8.0, base=10_000.0, fraction=1.0, layout='half'):
  """The record. `window`: 0 is half the training length."""
  window = window or max(dims.train_length // 2, 1)
  if not (slow >= 1 and math.isfinite(slow)):
    raise ConfigError(f'encoding: slow={slow} must be at least 1')

  def far(position, is_query, frequency_F):
    cos, sin = phases.cos_sin(position, frequency_F / slow)
    if not is_query:
      return cos, sin
    # Queries are turned further by window - window / slow, which is no whole position: angles add.
    more = window * (1 - 1 / slow) * frequency_F
    c, s = (f(more).astype(np.float32)[None, None] for f in (np.cos, np.sin))
    return jnp.asarray(cos * c - sin * s), jnp.asarray(sin * c + cos * s)

  return two_readings(dims, base, fraction, layout, window, far)
