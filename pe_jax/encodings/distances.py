"""From a function of the distance to all pairs of a block, without computing one distance twice."""

import jax.numpy as jnp

from pe_jax.kept import kept


def of_distance(function, tables, where):
  """function(tables, distance), float32 (H, *distance.shape), for all pairs: broadcastable to (B, H, T, S).

  Contiguous positions need T + S - 1 values a head, not T x S.
  """
  if not where.contiguous:
    return jnp.moveaxis(function(tables, where.distance_BTS()), 0, 1)
  queries, keys = where.i_BT.shape[1], where.j_BS.shape[1]
  # The distance of two tokens of one document is their index difference, from `last` on down; pairs of other documents are not visible.
  distance_X = where.offset + queries - 1 - jnp.arange(queries + keys - 1, dtype=jnp.int32)

  def matrix(tables, distance_X):
    return skew(function(tables, distance_X), queries, keys)

  several = where.i_BT.shape[0] > 1  # rows share the matrix; for one row alone it is cheapest made where it is added
  return (kept(matrix) if several else matrix)(tables, distance_X)[None]


def skew(values_HX, queries, keys):
  """out[h, t, s] = values[h, queries - 1 - t + s]: a Toeplitz matrix by tiling and reshaping, which costs no gather."""
  period = queries + keys
  flat = jnp.tile(jnp.pad(values_HX, ((0, 0), (0, 1))), (1, queries))[:, queries - 1 : queries * period - 1]
  return flat.reshape(values_HX.shape[0], queries, period - 1)[:, :, :keys]
