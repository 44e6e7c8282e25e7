"""Attention over positions: which keys a query sees and with what bias, from the same `Where` in every path.

Scores, biases and the softmax are float32 whatever the model's dtype. A query that sees no key gets exactly 0. Two paths give the same
numbers: dense (all rows at once) and chunked (rows in chunks of queries, recomputed in the backward pass; no array of queries x keys ever
exists).
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from pe_jax.encodings.base import scores


def attend(enc, tables, q_BTHK, k_BSGK, v_BSGK, where, method='auto', chunk=512):
  """Attention output, (B, T, H, K) in v's dtype.

  Args:
    enc: the `Encoding`; what it adds, hides and normalises is asked of it. Queries and keys come already rotated.
    tables: what its `prepare` returned.
    where: the positions, documents and lengths of queries and keys.
    method: 'dense', 'chunked', or 'auto', which is chunked above chunk^2 scores a head.
    chunk: queries a chunk.
  """
  queries, keys = q_BTHK.shape[1], k_BSGK.shape[1]
  rows = functools.partial(attend_rows, enc, tables)
  if method == 'dense' or (method == 'auto' and queries * keys <= chunk**2):
    return rows(q_BTHK, k_BSGK, v_BSGK, where)

  chunks = -(-queries // chunk)
  q_BTHK, where = _pad_queries(q_BTHK, where, chunks * chunk - queries)

  @jax.checkpoint
  def one(start):
    q_BCHK = jax.lax.dynamic_slice_in_dim(q_BTHK, start, chunk, axis=1)
    return rows(q_BCHK, k_BSGK, v_BSGK, where.queries(start, chunk))

  out_XBCHK = jax.lax.map(one, jnp.arange(chunks) * chunk)
  out_BTHK = jnp.moveaxis(out_XBCHK, 0, 1).reshape(*q_BTHK.shape[:3], -1)
  return out_BTHK[:, :queries]


def attend_rows(enc, tables, q_BTHK, k_BSGK, v_BSGK, where):
  """Whole rows of attention for the queries given."""
  batch, queries, heads, _ = q_BTHK.shape
  groups = k_BSGK.shape[2]
  s_BHTS = enc.score(tables, q_BTHK, k_BSGK, where) if enc.score else scores(q_BTHK, k_BSGK, v_BSGK.shape[-1])
  added = enc.added(tables, where)
  if added is not None:
    s_BHTS = s_BHTS + added
  if enc.scale:
    s_BHTS = s_BHTS * enc.scale(tables, where)
  visible = where.visible_BTS()[:, None]
  if enc.visible:
    visible = visible & enc.visible(tables, where)
  weight_BHTS = enc.normalise(tables, s_BHTS, visible) if enc.normalise else softmax(s_BHTS, visible)
  weight_BGRTS = weight_BHTS.reshape(batch, groups, heads // groups, queries, -1).astype(v_BSGK.dtype)
  out_BTGRK = jnp.einsum('bgrts,bsgk->btgrk', weight_BGRTS, v_BSGK, preferred_element_type=jnp.float32)
  return out_BTGRK.reshape(batch, queries, heads, v_BSGK.shape[-1]).astype(v_BSGK.dtype)


def softmax(s_BHTS, visible):
  """Softmax over visible keys; a row without any is exactly 0, and its gradient is finite."""
  # Hidden scores are replaced before exp, not after: 0 x inf in the backward pass is NaN.
  peak = jax.lax.stop_gradient(jnp.max(s_BHTS, axis=-1, keepdims=True, where=visible, initial=-1e30))
  weight = jnp.where(visible, jnp.exp(jnp.where(visible, s_BHTS - peak, 0.0)), 0.0)
  total = jnp.sum(weight, axis=-1, keepdims=True)
  return weight / jnp.where(total > 0, total, 1.0)


def _pad_queries(q_BTHK, where, extra):
  """Queries of no document, so that chunks are of one size."""

  def pad(x):
    return jnp.pad(x, ((0, 0), (0, extra)) + ((0, 0),) * (x.ndim - 2))

  where = dataclasses.replace(where, i_BT=pad(where.i_BT), qdoc_BT=pad(where.qdoc_BT), qlen_BT=pad(where.qlen_BT))
  return pad(q_BTHK), where
