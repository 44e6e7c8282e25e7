"""CoPE: positions counted by content. A gate says which keys count; the query adds its product with the embedding of the count.

    g_ij = sigma(s_ij),   p_ij = min(sum_{l=j..i} g_il, P - 1),   s_ij + lerp(q_i . e[floor p_ij], q_i . e[ceil p_ij])

Golovneva et al., 2024, arXiv:2405.18719, as in the listing of their appendix: s is the masked, scaled score, q is not scaled again; the
embeddings e, P rows of the head's width, serve all heads of a layer and start at 0. A fractional count lies between two rows. Counts above
P - 1 are all one, so that beyond the trained counts nothing new comes.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from pe_jax.encodings.base import Encoding, Traits, scores
from pe_jax.encodings.combine import each_layer
from pe_jax.errors import ConfigError

PART = 32  # entries whose running sums one product gives


def counts(s_BHTS, visible):
  """p before the cap, float32 (B, H, T, S): for each key how many keys from it to the query count. Keys stand in the order of positions."""
  return sums_from(jnp.where(visible, jax.nn.sigmoid(s_BHTS), 0.0))


def sums_from(x_BHTS):
  """The sum of each entry and those after it along the last axis: of `PART` entries by a product, of whole parts by another."""
  size = x_BHTS.shape[-1]
  parts = -(-size // PART)
  x_NP = jnp.pad(x_BHTS, ((0, 0), (0, 0), (0, 0), (0, parts * PART - size))).reshape(-1, PART)
  dot = functools.partial(jnp.matmul, precision='highest')
  inside_NP = dot(x_NP, np.tri(PART, dtype=np.float32))
  after_XN = dot(inside_NP[:, 0].reshape(-1, parts), np.tri(parts, k=-1, dtype=np.float32))
  return (inside_NP + after_XN.reshape(-1, 1)).reshape(*x_BHTS.shape[:3], -1)[..., :size]


def found(rows_BHTP, index_BHTS):
  """rows[b, h, t, index[b, h, t, s]]. A CPU is many times faster at looking into one long array than into many."""
  if jax.device_count() > 1:  # where the batch is spread over devices, one array of all rows would have to be gathered from them
    return jnp.take_along_axis(rows_BHTP, index_BHTS, axis=-1, mode='promise_in_bounds')
  size = rows_BHTP.shape[-1]
  first = jnp.arange(rows_BHTP.size // size, dtype=jnp.int32).reshape(*rows_BHTP.shape[:3], 1) * size
  return rows_BHTP.reshape(-1).at[first + index_BHTS].get(mode='promise_in_bounds')


def added(q_BTHK, s_BHTS, visible, table_PK):
  """What is added to the scores, float32 (B, H, T, S)."""
  last = table_PK.shape[0] - 1
  place = jnp.minimum(counts(s_BHTS, visible), last)
  product_BHTP = jnp.einsum('bthk,pk->bhtp', q_BTHK, table_PK, preferred_element_type=jnp.float32)
  step_BHTP = jnp.diff(product_BHTP, axis=-1, append=product_BHTP[..., -1:])
  low = jnp.floor(place).astype(jnp.int32)
  return found(product_BHTP, low) + (place - low) * found(step_BHTP, low)


def encoding(dims, *, npos_max=64):
  """The record. `npos_max` (P): the number of embeddings, one more than the largest count."""
  if npos_max < 2:
    raise ConfigError(f'encoding: cope needs npos_max of at least 2, not {npos_max}')

  def score(tables, q, k, where):
    if q.shape[-1] != dims.head_dim:
      raise ConfigError(f'encoding: cope has embeddings of head_dim={dims.head_dim}, and beside it queries are {q.shape[-1]} wide')
    s = scores(q, k)
    return s + added(q, s, where.visible_BTS()[:, None], tables['table'])

  record = Encoding(
    init=lambda key: {'table': jnp.zeros((npos_max, dims.head_dim), jnp.float32)},
    prepare=lambda params, where: params,
    score=score,
    traits=Traits(relative=True),
  )
  return each_layer(record, dims.num_layers)
