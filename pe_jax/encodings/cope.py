"""CoPE: positions counted by content. A gate says which keys count; the query adds its product with the embedding of the count.

    g_ij = sigma(s_ij),   p_ij = min(sum_{l=j..i} g_il, P - 1),   s_ij + lerp(q_i . e[floor p_ij], q_i . e[ceil p_ij])

Golovneva et al., 2024, arXiv:2405.18719, as in the listing of their appendix: s is the masked, scaled score, q is not scaled again; the
embeddings e, P rows of the head's width, serve all heads of a layer and start at 0. A fractional count lies between two rows. Counts above
P - 1 are all one, so that beyond the trained counts nothing new comes.
"""

import jax
import jax.numpy as jnp

from pe_jax.encodings.base import Encoding, Traits, scores
from pe_jax.encodings.combine import each_layer
from pe_jax.errors import ConfigError


def counts(s_BHTS, visible):
  """p before the cap, float32 (B, H, T, S): for each key how many keys from it to the query count. Keys stand in the order of positions."""
  gate = jnp.where(visible, jax.nn.sigmoid(s_BHTS), 0.0)
  return jax.lax.cumsum(gate, axis=3, reverse=True)


def added(q_BTHK, s_BHTS, visible, table_PK):
  """What is added to the scores, float32 (B, H, T, S)."""
  last = table_PK.shape[0] - 1
  place = jnp.minimum(counts(s_BHTS, visible), last)
  product_BHTP = jnp.einsum('bthk,pk->bhtp', q_BTHK, table_PK, preferred_element_type=jnp.float32)
  # Each row with its step to the next, so that a pair of tokens costs one gather, and one scatter in the backward pass.
  step_BHTP = jnp.diff(product_BHTP, axis=-1, append=product_BHTP[..., -1:])
  low = jnp.floor(place).astype(jnp.int32)
  found_BHTS2 = jnp.take_along_axis(jnp.stack([product_BHTP, step_BHTP], -1), low[..., None], axis=-2)
  return found_BHTS2[..., 0] + (place - low) * found_BHTS2[..., 1]


def encoding(dims, *, npos_max=64):
  """The record. `npos_max` (P): the number of embeddings, one more than the largest count."""
  if npos_max < 2:
    raise ConfigError(f'encoding: cope needs npos_max of at least 2, not {npos_max}')

  def score(tables, q, k, where):
    s = scores(q, k)
    return s + added(q, s, where.visible_BTS()[:, None], tables['table'])

  record = Encoding(
    init=lambda key: {'table': jnp.zeros((npos_max, dims.head_dim), jnp.float32)},
    prepare=lambda params, where: params,
    score=score,
    traits=Traits(relative=True),
  )
  return each_layer(record, dims.num_layers)
