"""Sinusoidal: a fixed table of sines and cosines added to the token embeddings.

    p[2i] = sin(pos / base^(2i/D)),   p[2i+1] = cos(pos / base^(2i/D))

Vaswani et al., 2017, arXiv:1706.03762; D is the model width. The interleaved order is the paper's. `layout='concat'` puts all sines
before all cosines (the same encoding for a model trained that way); 'tensor2tensor' does so with D/2 - 1 in the denominator, which is
another encoding. Every row has norm sqrt(D/2), whatever the position; embeddings are multiplied by sqrt(D) first, as in the paper.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pe_jax.encodings import phases
from pe_jax.encodings.base import Encoding
from pe_jax.errors import ConfigError


def table(positions: ArrayLike, width: int, base: float = 10_000.0, layout: str = 'interleaved') -> jax.Array:
  """Rows of the table for integer positions of any shape: float32, (*positions.shape, width)."""
  cos, sin = phases.cos_sin(positions, frequencies(width, base, layout))
  if layout == 'interleaved':
    return jnp.stack([sin, cos], axis=-1).reshape(*sin.shape[:-1], width)
  return jnp.concatenate([sin, cos], axis=-1)


def frequencies(width, base=10_000.0, layout='interleaved'):
  """Radians per position, fastest first; float64 on the host."""
  if layout not in ('interleaved', 'concat', 'tensor2tensor'):
    raise ConfigError(f"encoding: layout is 'interleaved', 'concat' or 'tensor2tensor', not {layout!r}")
  if width < 2 or width % 2:
    raise ConfigError(f'encoding: a sinusoidal table needs an even width, not {width}')
  if not base > 1:
    raise ConfigError(f'encoding: base={base} must be above 1 (10000 is usual)')
  pairs = width // 2
  return float(base) ** (-np.arange(pairs) / (max(pairs - 1, 1) if layout == 'tensor2tensor' else pairs))


def encoding(dims, *, base=10_000.0, layout='interleaved'):
  """The record."""
  frequencies(dims.embed_dim, base, layout)
  return Encoding(embed=lambda params, x, where: x + table(where.i_BT, dims.embed_dim, base, layout).astype(x.dtype))
