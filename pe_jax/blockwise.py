"""Attention in blocks of queries and keys: no array of queries x keys, forward or backward, and no block that nobody can see.

A block's scores are made from its queries, its keys and where they stand; the softmax runs along a row of blocks with its peak and its
sum (Milakov and Gimelshein, 2018, arXiv:1805.02867; Dao et al., 2022, arXiv:2205.14135). Kept for the backward pass are the output and
the logarithm of each row's sum, so that memory grows with the length and not with its square; scores are made again, and gradients of what
biases are learned from are summed over the blocks.

Keys stand in the order of their positions, each document in one run, and query t is key offset + t. So the blocks that a block of queries
needs are one range: from the start of its first document to its own last key.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from pe_jax.encodings.base import run_length, run_start, scores

HIDDEN = -1e30  # a score that weighs nothing; not infinite, since infinite - infinite is no number


def attend(enc, tables, q_BTHK, k_BSGK, v_BSGK, where, block=512):
  """Attention output, (B, T, H, K) in v's dtype, for a record that neither replaces scores nor the softmax."""
  queries, keys = q_BTHK.shape[1], k_BSGK.shape[1]
  size_q, size_k = min(block, queries), min(block, keys)
  scale_BHT1 = None
  if enc.scale:
    shape = (q_BTHK.shape[0], q_BTHK.shape[2], queries, 1)
    scale_BHT1 = _pad(jnp.broadcast_to(enc.scale(tables, where), shape), -queries % size_q, 2)
  first_X, last_X = needed(where, size_q, size_k)
  where = padded(where, -queries % size_q, -keys % size_k)
  q_BTHK = _pad(q_BTHK, -queries % size_q, 1)
  k_BSGK, v_BSGK = (_pad(x, -keys % size_k, 1) for x in (k_BSGK, v_BSGK))

  def added(near):
    return enc.added(tables, near)

  # What `added` uses of the tables and a gradient may be asked for (learned biases) becomes an argument.
  near = where.queries(0, size_q).keys(0, size_k)
  added, learned = jax.closure_convert(added, near) if enc.distance_bias or enc.bias else (None, ())
  sides = (where.qside, where.side)
  where = dataclasses.replace(where, qside=None, side=None)
  form = Form(added, enc.visible and functools.partial(enc.visible, tables), size_q, size_k, v_BSGK.shape[-1])
  out_BTHK, _ = _attend(form, (first_X, last_X), where, q_BTHK, k_BSGK, v_BSGK, scale_BHT1, sides, learned)
  return out_BTHK[:, :queries].astype(v_BSGK.dtype)


def needed(where, size_q, size_k):
  """For each block of queries the first block of keys that any of them may see, and the last one plus one; int32, two of (blocks,)."""
  first_BN, last_BN = needed_by_row(where, size_q, size_k)
  return first_BN.min(0), last_BN.max(0)


def needed_by_row(where, size_q, size_k):
  """As `needed`, for each row of the batch by itself; two of (B, blocks)."""
  queries, keys = where.i_BT.shape[1], where.j_BS.shape[1]
  own_T = where.own_index_T()
  first_BT = run_start(where.kdoc_BS)[:, own_T]
  last_BT = own_T[None] if where.causal else first_BT + run_length(where.kdoc_BS)[:, own_T] - 1
  real_BT = where.qdoc_BT > 0
  first_BT = _pad(jnp.where(real_BT, first_BT, keys), -queries % size_q, 1, keys)
  last_BT = _pad(jnp.where(real_BT, last_BT, -1), -queries % size_q, 1, -1)
  shape = (first_BT.shape[0], -1, size_q)
  return first_BT.reshape(shape).min(2) // size_k, last_BT.reshape(shape).max(2) // size_k + 1


@dataclasses.dataclass(frozen=True)
class Form:
  """What does not change from block to block: the functions of the encoding, the sizes, the width that scores are scaled by."""

  added: object
  visible: object
  size_q: int
  size_k: int
  width: int

  def scores(self, q_BTHK, k_BSGK, scale_BHT1, near, learned):
    """(scores with all that is added to them, float32 (B, H, T, S); what is visible, broadcastable to that)."""
    s_BHTS = scores(q_BTHK, k_BSGK, self.width)
    if self.added:
      s_BHTS = s_BHTS + self.added(near, *learned)
    if scale_BHT1 is not None:
      s_BHTS = s_BHTS * scale_BHT1
    visible = near.visible_BTS()[:, None]
    return s_BHTS, visible & self.visible(near) if self.visible else visible


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(form, needed, where, q, k, v, scale, sides, learned):
  """(output float32 (B, T, H, K), log-sum-exp (B, H, T)) over whole blocks."""
  batch, queries, heads, _ = q.shape
  groups = k.shape[2]

  def rows(n):
    q_n, scale_n, where_q = _queries(form, n, q, scale, where, sides)

    def add(m, state):
      peak, total, out = state
      k_m, v_m, near = _keys(form, m, k, v, where_q, sides)
      s, visible = form.scores(q_n, k_m, scale_n, near, learned)
      s = jnp.where(visible, s, HIDDEN)
      new = jnp.maximum(peak, jnp.max(s, axis=-1, keepdims=True))
      # A row that has seen nothing yet has peak HIDDEN, where exp(0) = 1 must not count.
      weight = jnp.where(visible, jnp.exp(s - new), 0.0)
      shrink = jnp.exp(peak - new)
      part = jnp.einsum('bgrts,bsgk->bgrtk', _grouped(weight, groups).astype(v.dtype), v_m, preferred_element_type=jnp.float32)
      return new, total * shrink + jnp.sum(weight, axis=-1, keepdims=True), out * shrink + part.reshape(out.shape)

    shape = (batch, heads, form.size_q, 1)
    start = jnp.full(shape, HIDDEN), jnp.zeros(shape), jnp.zeros((*shape[:3], v.shape[-1]))
    peak, total, out = jax.lax.fori_loop(needed[0][n], needed[1][n], add, start)
    total = jnp.where(total > 0, total, 1.0)
    return jnp.moveaxis(out / total, 1, 2), (peak + jnp.log(total))[..., 0]

  out_X, sum_X = jax.lax.map(rows, jnp.arange(queries // form.size_q))
  out = jnp.moveaxis(out_X, 0, 1).reshape(batch, queries, heads, -1)
  return out, jnp.moveaxis(sum_X, 0, 2).reshape(batch, heads, queries)


def _forward(form, needed, where, q, k, v, scale, sides, learned):
  out, log_sum = _attend(form, needed, where, q, k, v, scale, sides, learned)
  return (out, log_sum), (needed, where, q, k, v, scale, sides, learned, out, log_sum)


def _backward(form, kept, cotangents):
  needed, where, q, k, v, scale, sides, learned, out, log_sum = kept
  d_out = cotangents[0].astype(jnp.float32)
  groups = k.shape[2]
  # Sum over a row of weight x (its gradient), from the output alone.
  row_BHT = jnp.moveaxis(jnp.sum(d_out * out, axis=-1), 1, 2)

  def rows(n, total):
    q_n, scale_n, where_q = _queries(form, n, q, scale, where, sides)
    cut = functools.partial(jax.lax.dynamic_slice_in_dim, start_index=n * form.size_q, slice_size=form.size_q)
    d_n, log_sum_n, row_n = cut(d_out, axis=1), cut(log_sum, axis=2)[..., None], cut(row_BHT, axis=2)[..., None]
    d_BGRTK = _grouped(jnp.moveaxis(d_n, 1, 2), groups).astype(v.dtype)

    def add(m, state):
      d_q, d_scale, d_qside, (d_k, d_v, d_side, d_learned) = state
      k_m, v_m, near = _keys(form, m, k, v, where_q, sides)

      def block(q_n, k_m, scale_n, qside, side, learned):
        return form.scores(q_n, k_m, scale_n, dataclasses.replace(near, qside=qside, side=side), learned)

      s, pull, visible = jax.vjp(block, q_n, k_m, scale_n, near.qside, near.side, learned, has_aux=True)
      weight = jnp.where(visible, jnp.exp(jnp.where(visible, s, HIDDEN) - log_sum_n), 0.0)
      to_v = jnp.einsum('bgrts,bgrtk->bsgk', _grouped(weight, groups).astype(v.dtype), d_BGRTK, preferred_element_type=jnp.float32)
      to_weight = jnp.einsum('bgrtk,bsgk->bgrts', d_BGRTK, v_m, preferred_element_type=jnp.float32).reshape(weight.shape)
      g_q, g_k, g_scale, g_qside, g_side, g_learned = pull(weight * (to_weight - row_n))
      put = functools.partial(_add_at, m * form.size_k)
      keys = put(d_k, g_k), put(d_v, to_v), jax.tree.map(put, d_side, g_side), jax.tree.map(jnp.add, d_learned, g_learned)
      return d_q + g_q, jax.tree.map(jnp.add, d_scale, g_scale), jax.tree.map(jnp.add, d_qside, g_qside), keys

    start = _zeros(q_n), _zeros(scale_n), _zeros(where_q.qside), total
    d_q, d_scale, d_qside, total = jax.lax.fori_loop(needed[0][n], needed[1][n], add, start)
    return total, (d_q, d_scale, d_qside)

  total = _zeros(k), _zeros(v), _zeros(sides[1]), _zeros(learned)
  total, (d_q, d_scale, d_qside) = jax.lax.scan(lambda total, n: rows(n, total), total, jnp.arange(q.shape[1] // form.size_q))
  d_k, d_v, d_side, d_learned = total
  d_q, d_qside = _join(d_q, 1), jax.tree.map(lambda x: _join(x, 1), d_qside)
  d_scale = None if scale is None else _join(d_scale, 2)
  to_type = functools.partial(jax.tree.map, lambda g, x: g.astype(x.dtype))
  return (
    None,
    None,
    to_type(d_q, q),
    to_type(d_k, k),
    to_type(d_v, v),
    d_scale,
    to_type((d_qside, d_side), sides),
    to_type(d_learned, learned),
  )


_attend.defvjp(_forward, _backward)


def _queries(form, n, q, scale, where, sides):
  """Block n of the queries: vectors, temperatures, and where they stand before all keys."""
  start = n * form.size_q
  cut = functools.partial(jax.lax.dynamic_slice_in_dim, start_index=start, slice_size=form.size_q)
  where = dataclasses.replace(where, qside=sides[0]).queries(start, form.size_q)
  return cut(q, axis=1), None if scale is None else cut(scale, axis=2), where


def _keys(form, m, k, v, where_q, sides):
  """Block m of the keys, of the values, and where the pairs of this block stand."""
  start = m * form.size_k
  cut = functools.partial(jax.lax.dynamic_slice_in_dim, start_index=start, slice_size=form.size_k, axis=1)
  return cut(k), cut(v), dataclasses.replace(where_q, side=sides[1]).keys(start, form.size_k)


def _grouped(x_BHTS, groups):
  return x_BHTS.reshape(x_BHTS.shape[0], groups, -1, *x_BHTS.shape[2:])


def _zeros(tree):
  """float32 sums for the leaves of a tree."""
  return jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), tree)


def _add_at(start, total, part):
  """The total with a part added from index `start` of axis 1 on."""
  here = jax.lax.dynamic_slice_in_dim(total, start, part.shape[1], axis=1)
  return jax.lax.dynamic_update_slice_in_dim(total, here + part, start, axis=1)


def _join(x_X, axis):
  """Blocks stacked along a new first axis, side by side along `axis`."""
  moved = jnp.moveaxis(x_X, 0, axis)
  return moved.reshape(*moved.shape[:axis], -1, *moved.shape[axis + 2 :])


def _pad(x, extra, axis, value=0):
  return jnp.pad(x, [(0, extra if n == axis else 0) for n in range(x.ndim)], constant_values=value) if extra else x


def padded(where, queries, keys):
  """More queries and keys, of no document, so that blocks are of one size."""
  query = {name: _pad(getattr(where, name), queries, 1) for name in ('i_BT', 'qdoc_BT', 'qlen_BT')}
  key = {name: _pad(getattr(where, name), keys, 1) for name in ('j_BS', 'kdoc_BS', 'klen_BS')}
  sides = {'qside': jax.tree.map(lambda x: _pad(x, queries, 1), where.qside), 'side': jax.tree.map(lambda x: _pad(x, keys, 1), where.side)}
  return dataclasses.replace(where, **query, **key, **sides)
