"""Learned: a trained table of absolute positions, added to the token embeddings.

    x_p = e_p + P[p],   P of shape (max_length, D)

As in BERT, Devlin et al., 2018, arXiv:1810.04805. There is no row for a position at or above max_length. JAX would answer all the same
(`table[i]` gives the last row, `jnp.take` NaN), so such a length is refused before compilation. `overflow` names what a study wants in
its place: 'clip' (the last row), 'wrap' (from the first row on), 'interpolate' (a longer document is squeezed onto the rows there are),
'mean' (the average row) or 'random' (a row as at initialisation, the same at each use: what extending a table without training gives).
"""

import jax
import jax.numpy as jnp

from pe_jax.encodings.base import Encoding, Traits
from pe_jax.errors import ConfigError

OVERFLOW = ('error', 'clip', 'wrap', 'interpolate', 'mean', 'random')
STD = 0.5**0.5  # of a fresh row's entries: as large as a sinusoidal table's


def table(key, rows, width):
  """A fresh table, float32 (rows, width)."""
  return STD * jax.random.normal(key, (rows, width), jnp.float32)


def lookup(table_PD, position_BT, length_BT=None, overflow='error'):
  """Rows for integer positions, float32 (B, T, D). Under 'error' the caller has made sure that every position has a row."""
  rows = table_PD.shape[0]
  inside = table_PD[jnp.clip(position_BT, 0, rows - 1)]
  outside = (position_BT >= rows)[..., None]
  if overflow == 'wrap':
    return table_PD[position_BT % rows]
  if overflow == 'interpolate':
    squeeze_BT = (rows - 1) / jnp.maximum(length_BT - 1, rows - 1).astype(jnp.float32)
    place_BT = jnp.minimum(position_BT * squeeze_BT, rows - 1)
    low_BT = jnp.floor(place_BT).astype(jnp.int32)
    share = (place_BT - low_BT)[..., None]
    return (1 - share) * table_PD[low_BT] + share * table_PD[jnp.minimum(low_BT + 1, rows - 1)]
  if overflow == 'mean':
    return jnp.where(outside, jnp.mean(table_PD, axis=0)[None, None], inside)
  if overflow == 'random':
    keys = jax.vmap(lambda p: jax.random.fold_in(jax.random.PRNGKey(0), p))(position_BT.reshape(-1))
    fresh = jax.vmap(lambda k: table(k, 1, table_PD.shape[1])[0])(keys)
    return jnp.where(outside, fresh.reshape(inside.shape), inside)
  return inside


def encoding(dims, *, max_length=0, overflow='error'):
  """The record. `max_length` is the number of rows; 0: the training length."""
  rows = max_length or dims.train_length
  if overflow not in OVERFLOW:
    raise ConfigError(f'encoding: overflow={overflow!r} is none of {", ".join(OVERFLOW)}')
  if rows < 1:
    raise ConfigError(f'encoding: a learned table needs at least one row, not {rows}')

  def embed(params, x_BTD, where):
    return x_BTD + lookup(params['table'], where.i_BT, where.qlen_BT, overflow).astype(x_BTD.dtype)

  return Encoding(
    init=lambda key: {'table': table(key, rows, dims.embed_dim)},
    embed=embed,
    traits=Traits(max_length=rows if overflow == 'error' else None, length_dependent=overflow == 'interpolate'),
  )
