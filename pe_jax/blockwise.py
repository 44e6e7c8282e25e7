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

from pe_jax.encodings.base import head_scores, run_length, run_start

HIDDEN = -1e30  # a score that weighs nothing; not infinite, since infinite - infinite is no number


def attend(enc, tables, q_BHTK, k_BGSK, v_BGSK, where, block):
  """Attention output, (B, H, T, K) in v's dtype, for a record that neither replaces scores nor the softmax.

  `block`: the queries and the keys of one. Vectors come head by head, so that a block is cut without moving anything.
  """
  queries, keys = q_BHTK.shape[2], k_BGSK.shape[2]
  size_q, size_k = min(block[0], queries), min(block[1], keys)
  scale_BHT1 = None
  if enc.scale:
    shape = (*q_BHTK.shape[:3], 1)
    scale_BHT1 = _pad(jnp.broadcast_to(enc.scale(tables, where), shape), -queries % size_q, 2)
  ranges_X = needed(where, size_q, size_k), whole(where, size_q, size_k)
  where = padded(where, -queries % size_q, -keys % size_k)
  q_BHTK = _pad(q_BHTK, -queries % size_q, 2)
  k_BGSK, v_BGSK = (_pad(x, -keys % size_k, 2) for x in (k_BGSK, v_BGSK))

  def added(near):
    return enc.added(tables, near)

  # What `added` uses of the tables and a gradient may be asked for (learned biases) becomes an argument.
  near = where.queries(0, size_q).keys(0, size_k)
  added, learned = jax.closure_convert(added, near) if enc.distance_bias or enc.bias else (None, ())
  sides = (where.qside, where.side)
  where = dataclasses.replace(where, qside=None, side=None)
  form = Form(added, enc.visible and functools.partial(enc.visible, tables), size_q, size_k, v_BGSK.shape[-1])
  out_BHTK, _ = _attend(form, ranges_X, where, q_BHTK, k_BGSK, v_BGSK, scale_BHT1, sides, learned)
  return out_BHTK[:, :, :queries].astype(v_BGSK.dtype)


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


def whole(where, size_q, size_k):
  """As `needed`, the blocks of keys of which every query of the block sees every key in every row of the batch: they need no mask.

  Where there are none both ends are alike.
  """
  queries = where.i_BT.shape[1]
  own_T = where.own_index_T()
  first_BT = run_start(where.kdoc_BS)[:, own_T]
  end_BT = own_T[None] + 1 if where.causal else first_BT + run_length(where.kdoc_BS)[:, own_T]
  shape = (where.qdoc_BT.shape[0], -1, size_q)
  doc_BNX = _pad(where.qdoc_BT, -queries % size_q, 1).reshape(shape)
  first_BN = -(-_pad(first_BT, -queries % size_q, 1).reshape(shape).max(2) // size_k)
  last_BN = _pad(jnp.broadcast_to(end_BT, first_BT.shape), -queries % size_q, 1).reshape(shape).min(2) // size_k
  one_BN = (doc_BNX.min(2) == doc_BNX.max(2)) & (doc_BNX.min(2) > 0)
  first_N, last_N = jnp.where(one_BN, first_BN, 0).max(0), jnp.where(one_BN, last_BN, 0).min(0)
  return first_N, jnp.maximum(first_N, last_N)


def each_block(form, ranges, n, add, state):
  """The state after add(masked)(m, state) for all blocks m of keys that block n of the queries needs."""
  (first, last), (start, end) = ((a[n], b[n]) for a, b in ranges)
  if form.visible:  # hides more than documents and the future do
    return jax.lax.fori_loop(first, last, add(True), state)
  start, end = jnp.clip(start, first, last), jnp.clip(end, first, last)
  before = start - first
  state = jax.lax.fori_loop(
    0, before + last - end, lambda x, state: add(True)(jnp.where(x < before, first + x, end + x - before), state), state
  )
  return jax.lax.fori_loop(start, end, add(False), state)


@dataclasses.dataclass(frozen=True)
class Form:
  """What does not change from block to block: the functions of the encoding, the sizes, the width that scores are scaled by."""

  added: object
  visible: object
  size_q: int
  size_k: int
  width: int

  def scores(self, masked, q_BHTK, k_BGSK, scale_BHT1, near, learned):
    """Scores with all that is added to them, float32 (B, H, T, S), HIDDEN where nothing is visible."""
    s_BHTS = head_scores(q_BHTK, k_BGSK, self.width)
    if self.added:
      s_BHTS = s_BHTS + self.added(near, *learned)
    if scale_BHT1 is not None:
      s_BHTS = s_BHTS * scale_BHT1
    if not masked:
      return s_BHTS
    visible = near.visible_BTS()[:, None]
    return jnp.where(visible & self.visible(near) if self.visible else visible, s_BHTS, HIDDEN)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(form, ranges, where, q, k, v, scale, sides, learned):
  """(output float32 (B, H, T, K), log-sum-exp (B, H, T)) over whole blocks; queries (B, H, T, K), keys and values (B, G, S, K)."""
  batch, heads, queries, _ = q.shape
  groups = k.shape[1]

  def rows(n):
    q_n, scale_n, where_q = _queries(form, n, q, scale, where, sides)

    def add(masked, m, state):
      peak, total, out = state
      k_m, v_m, near = _keys(form, m, k, v, where_q, sides)
      s = form.scores(masked, q_n, k_m, scale_n, near, learned)
      # A row that has seen nothing yet keeps a peak far above HIDDEN, so that what it cannot see weighs nothing.
      new = jnp.maximum(peak, jnp.max(s, axis=-1, keepdims=True))
      weight = jnp.exp(s - new)
      shrink = jnp.exp(peak - new)
      part = jnp.einsum('bgrts,bgsk->bgrtk', _grouped(weight, groups).astype(v.dtype), v_m, preferred_element_type=jnp.float32)
      return new, total * shrink + jnp.sum(weight, axis=-1, keepdims=True), out * shrink + part.reshape(out.shape)

    shape = (batch, heads, form.size_q, 1)
    start = jnp.full(shape, HIDDEN / 2), jnp.zeros(shape), jnp.zeros((*shape[:3], v.shape[-1]))
    peak, total, out = each_block(form, ranges, n, lambda masked: functools.partial(add, masked), start)
    # Of a row that sees nothing the log is 0, and HIDDEN - 0 weighs nothing in the backward pass either.
    log_sum = jnp.where(total > 0, peak + jnp.log(jnp.where(total > 0, total, 1.0)), 0.0)
    return out / jnp.where(total > 0, total, 1.0), log_sum[..., 0]

  out_X, sum_X = jax.lax.map(rows, jnp.arange(queries // form.size_q))
  return _join(out_X, 2), _join(sum_X, 2)


def _forward(form, ranges, where, q, k, v, scale, sides, learned):
  out, log_sum = _attend(form, ranges, where, q, k, v, scale, sides, learned)
  return (out, log_sum), (ranges, where, q, k, v, scale, sides, learned, out, log_sum)


def _backward(form, kept, cotangents):
  ranges, where, q, k, v, scale, sides, learned, out, log_sum = kept
  d_out = cotangents[0].astype(jnp.float32)
  groups = k.shape[1]
  # Sum over a row of weight x (its gradient), from the output alone.
  row_BHT = jnp.sum(d_out * out, axis=-1)

  def rows(n, total):
    q_n, scale_n, where_q = _queries(form, n, q, scale, where, sides)
    cut = functools.partial(jax.lax.dynamic_slice_in_dim, start_index=n * form.size_q, slice_size=form.size_q, axis=2)
    d_BGRTK, log_sum_n, row_n = _grouped(cut(d_out), groups).astype(v.dtype), cut(log_sum)[..., None], cut(row_BHT)[..., None]

    def add(masked, m, state):
      d_q, d_scale, d_qside, (d_k, d_v, d_side, d_learned) = state
      k_m, v_m, near = _keys(form, m, k, v, where_q, sides)

      def block(q_n, k_m, scale_n, qside, side, learned):
        return form.scores(masked, q_n, k_m, scale_n, dataclasses.replace(near, qside=qside, side=side), learned)

      s, pull = jax.vjp(block, q_n, k_m, scale_n, near.qside, near.side, learned)
      weight = jnp.exp(s - log_sum_n)
      to_v = jnp.einsum('bgrts,bgrtk->bgsk', _grouped(weight, groups).astype(v.dtype), d_BGRTK, preferred_element_type=jnp.float32)
      to_weight = jnp.einsum('bgrtk,bgsk->bgrts', d_BGRTK, v_m, preferred_element_type=jnp.float32).reshape(weight.shape)
      g_q, g_k, g_scale, g_qside, g_side, g_learned = pull(weight * (to_weight - row_n))
      put = functools.partial(_add_at, m * form.size_k)
      sums = jax.tree.map(functools.partial(put, axis=1), d_side, g_side), jax.tree.map(jnp.add, d_learned, g_learned)
      keys = put(d_k, g_k, axis=2), put(d_v, to_v, axis=2), *sums
      return d_q + g_q, jax.tree.map(jnp.add, d_scale, g_scale), jax.tree.map(jnp.add, d_qside, g_qside), keys

    start = _zeros(q_n), _zeros(scale_n), _zeros(where_q.qside), total
    d_q, d_scale, d_qside, total = each_block(form, ranges, n, lambda masked: functools.partial(add, masked), start)
    return total, (d_q, d_scale, d_qside)

  total = _zeros(k), _zeros(v), _zeros(sides[1]), _zeros(learned)
  total, (d_q, d_scale, d_qside) = jax.lax.scan(lambda total, n: rows(n, total), total, jnp.arange(q.shape[2] // form.size_q))
  d_k, d_v, d_side, d_learned = total
  d_q, d_qside = _join(d_q, 2), jax.tree.map(lambda x: _join(x, 1), d_qside)
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
  cut = functools.partial(jax.lax.dynamic_slice_in_dim, start_index=start, slice_size=form.size_q, axis=2)
  where = dataclasses.replace(where, qside=sides[0]).queries(start, form.size_q)
  return cut(q), None if scale is None else cut(scale), where


def _keys(form, m, k, v, where_q, sides):
  """Block m of the keys, of the values, and where the pairs of this block stand."""
  start = m * form.size_k
  cut = functools.partial(jax.lax.dynamic_slice_in_dim, start_index=start, slice_size=form.size_k, axis=2)
  return cut(k), cut(v), dataclasses.replace(where_q, side=sides[1]).keys(start, form.size_k)


def _grouped(x_BHTS, groups):
  return x_BHTS.reshape(x_BHTS.shape[0], groups, -1, *x_BHTS.shape[2:])


def _zeros(tree):
  """float32 sums for the leaves of a tree."""
  return jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), tree)


def _add_at(start, total, part, axis):
  """The total with a part added from index `start` of the axis on."""
  here = jax.lax.dynamic_slice_in_dim(total, start, part.shape[axis], axis=axis)
  return jax.lax.dynamic_update_slice_in_dim(total, here + part, start, axis=axis)


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
