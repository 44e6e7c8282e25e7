"""Attention on a TPU in blocks of queries and keys, forward and backward, with the bias made inside from where they stand.

    O = softmax(Q K^T / sqrt(d) + b(i, j)) V

No array of queries x keys is ever in memory: the softmax runs along a row of blocks (Dao et al., 2022, arXiv:2205.14135), its output and
the logarithm of its sum are kept, and the backward pass makes the scores again, once for the gradients of queries and of the bias, once
for those of keys and values. Blocks that no query of the row can see are neither loaded nor computed. Scores, softmax and sums are float32.

The bias is a function that the kernel calls, of the positions of a block's queries and keys and of the head's row of numbers; gradients
flow into the rows. What depends on distance alone, whatever its formula, is such a function too: the row then holds its values at all
distances, and a block is the Toeplitz matrix of the 2 x block values that it can meet, made by rotations of rows in registers.

Scores stand as keys x queries, so that what belongs to a query lies along lanes and needs no padding to 128.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from pe_jax import blockwise
from pe_jax.kernels import layout
from pe_jax.kernels.grid import Sizes
from pe_jax.kernels.toeplitz import toeplitz

HIDDEN = blockwise.HIDDEN
NN, NT, TN = (((1,), (0,)), ((), ())), (((1,), (1,)), ((), ())), (((0,), (0,)), ((), ()))


def attend(q_BTHK, k_BSGK, v_BSGK, where, distance_bias=None, *, bias=None, rows_HX=None, block=512, interpret=False):
  """Attention output, (B, T, H, K) in v's dtype.

  Args:
    q_BTHK, k_BSGK, v_BSGK: queries and keys already rotated; each key head serves H/G query heads.
    where: positions and documents.
    distance_bias: (distance_X) -> float32 (H, X), for contiguous positions; or
    bias: (row_1X, i_1T, j_S1) -> float32 (S, T), the bias of one head, with
    rows_HX: float32, what it is made from.
    block: queries and keys a block; on a TPU a multiple of 128.
    interpret: run as plain JAX, on any machine.
  """
  queries, keys, width = q_BTHK.shape[1], k_BSGK.shape[1], v_BSGK.shape[-1]
  block = min(block, layout.up(max(queries, keys)))
  ranges = blockwise.needed_by_row(where, block, block)
  ranges += _needing(*ranges, -(-keys // block))
  where = blockwise.padded(where, -queries % block, -keys % block)
  q_BHTK, k_BGSK, v_BGSK = (layout.heads_first(x, block) for x in (q_BTHK, k_BSGK, v_BSGK))
  if distance_bias:
    total, last = q_BHTK.shape[2] + k_BGSK.shape[2], k_BGSK.shape[2] - 1
    bias, rows_HX = toeplitz, distance_bias(where.offset + jnp.arange(total, dtype=jnp.int32) - last)
  query_B2T, key_BS2 = jnp.stack([where.i_BT, where.qdoc_BT], 1), jnp.stack([where.j_BS, where.kdoc_BS], 2)
  form = Form(bias, bool(distance_bias), where.causal, block, width**-0.5, interpret)
  rows_H1X = None if rows_HX is None else rows_HX[:, None]
  each = layout.by_rows(functools.partial(_attend, form), 6)
  out_BHTK = each(ranges, query_B2T, key_BS2, q_BHTK, k_BGSK, v_BGSK, rows_H1X)
  return jnp.moveaxis(out_BHTK[:, :, :queries, :width], 1, 2)


def _needing(first_BN, last_BN, blocks):
  """The blocks of queries that need each block of keys: the first, and the last plus one; int32 (B, blocks), twice."""
  n_1N1, m_11M = jnp.arange(first_BN.shape[1], dtype=jnp.int32)[None, :, None], jnp.arange(blocks, dtype=jnp.int32)[None, None]
  needs_BNM = (first_BN[..., None] <= m_11M) & (m_11M < last_BN[..., None])
  return jnp.min(jnp.where(needs_BNM, n_1N1, first_BN.shape[1]), 1), jnp.max(jnp.where(needs_BNM, n_1N1 + 1, 0), 1)


@dataclasses.dataclass(frozen=True)
class Form:
  """What does not change from block to block."""

  bias: Callable | None
  windowed: bool  # the bias reads of its row what a pair of blocks can meet, and not all of it
  causal: bool
  block: int
  scale: float
  interpret: bool

  def row(self, row_ref, n, m, blocks):
    """(where the bias reads in its row for blocks n and m, how much)."""
    if not self.windowed:
      return pl.ds(0, row_ref.shape[1])
    return pl.ds(pl.multiple_of((n - m + blocks - 1) * self.block, self.block), 2 * self.block)

  def scores(self, q, k, row, query_ref, key_ref):
    """(scores with the bias, float32 (S, T), `HIDDEN` where not visible; visible; pull: gradient for the scores -> for the row)."""
    s = jax.lax.dot_general(k, q, NT, preferred_element_type=jnp.float32) * self.scale
    (i, qdoc), (j, kdoc) = (query_ref[:1], query_ref[1:]), (key_ref[:, :1], key_ref[:, 1:])
    pull = None
    if self.bias:
      added, pull = jax.vjp(lambda row: self.bias(row, i, j), row)
      s = s + added
    visible = (qdoc == kdoc) & (kdoc > 0)
    visible = visible & (j <= i) if self.causal else visible
    return jnp.where(visible, s, HIDDEN), visible, pull


def _forward_kernel(
  form, blocks, first, last, lo, hi, query_ref, key_ref, q_ref, k_ref, v_ref, row_ref, out_ref, sum_ref, peak, total, acc
):
  del lo, hi
  b, n, m = pl.program_id(0), pl.program_id(2), pl.program_id(3)
  at = b * pl.num_programs(2) + n

  @pl.when(m == 0)
  def _():
    peak[...], total[...], acc[...] = jnp.full_like(peak, HIDDEN), jnp.zeros_like(total), jnp.zeros_like(acc)

  @pl.when((first[at] <= m) & (m < last[at]))
  def _():
    row = row_ref[:, form.row(row_ref, n, m, blocks)] if form.bias else None
    s, visible, _ = form.scores(q_ref[...], k_ref[...], row, query_ref, key_ref)
    new = jnp.maximum(peak[...], jnp.max(s, axis=0, keepdims=True))
    # A row that has seen nothing yet has peak HIDDEN, where exp(0) = 1 must not count.
    weight = jnp.where(visible, jnp.exp(s - new), 0.0)
    shrink = jnp.exp(peak[...] - new)
    part = jax.lax.dot_general(v_ref[...], weight.astype(v_ref.dtype), TN, preferred_element_type=jnp.float32)
    peak[...], total[...] = new, total[...] * shrink + jnp.sum(weight, axis=0, keepdims=True)
    acc[...] = acc[...] * shrink + part

  @pl.when(m == blocks - 1)
  def _():
    whole = jnp.where(total[...] > 0, total[...], 1.0)
    out_ref[...] = (acc[...] / whole).T.astype(out_ref.dtype)
    sum_ref[...] = peak[...] + jnp.log(whole)


def _again(form, row, refs):
  """(weights, gradient for the scores, pull to the row) of a block, from what the forward pass kept."""
  query_ref, key_ref, q_ref, k_ref, v_ref, d_ref, sum_ref, mean_ref = refs
  s, visible, pull = form.scores(q_ref[...], k_ref[...], row, query_ref, key_ref)
  weight = jnp.where(visible, jnp.exp(s - sum_ref[...]), 0.0)
  to_weight = jax.lax.dot_general(v_ref[...], d_ref[...], NT, preferred_element_type=jnp.float32)
  return weight, weight * (to_weight - mean_ref[...]), pull


def _queries_kernel(form, blocks, first, last, lo, hi, *refs):
  """Gradients of queries and of the head's row."""
  del lo, hi
  *refs, row_ref, d_q_ref, d_row_ref, acc = refs
  k_ref = refs[3]
  b, n, m = pl.program_id(0), pl.program_id(2), pl.program_id(3)
  at = b * pl.num_programs(2) + n

  @pl.when(m == 0)
  def _():
    acc[...] = jnp.zeros_like(acc)

  if form.bias:

    @pl.when((n == 0) & (m == 0))
    def _():
      d_row_ref[...] = jnp.zeros_like(d_row_ref)

  @pl.when((first[at] <= m) & (m < last[at]))
  def _():
    place = form.row(row_ref, n, m, blocks) if form.bias else None
    _, d_s, pull = _again(form, row_ref[:, place] if form.bias else None, refs)
    acc[...] += jax.lax.dot_general(k_ref[...], d_s.astype(k_ref.dtype), TN, preferred_element_type=jnp.float32)
    if form.bias:
      d_row_ref[:, place] += pull(d_s)[0]

  @pl.when(m == blocks - 1)
  def _():
    d_q_ref[...] = (acc[...] * form.scale).T.astype(d_q_ref.dtype)


def _keys_kernel(form, blocks, first, last, lo, hi, *refs):
  """Gradients of keys and values: sums over the queries of all heads that the key head serves."""
  del lo, hi
  *refs, row_ref, d_k_ref, d_v_ref, acc_k, acc_v = refs
  q_ref, d_ref = refs[2], refs[5]
  b, m, r, n = pl.program_id(0), pl.program_id(2), pl.program_id(3), pl.program_id(4)
  at = b * pl.num_programs(4) + n

  @pl.when((r == 0) & (n == 0))
  def _():
    acc_k[...], acc_v[...] = jnp.zeros_like(acc_k), jnp.zeros_like(acc_v)

  @pl.when((first[at] <= m) & (m < last[at]))
  def _():
    row = row_ref[:, form.row(row_ref, n, m, blocks)] if form.bias else None
    weight, d_s, _ = _again(form, row, refs)
    acc_v[...] += jax.lax.dot_general(weight.astype(d_ref.dtype), d_ref[...], NN, preferred_element_type=jnp.float32)
    acc_k[...] += jax.lax.dot_general(d_s.astype(q_ref.dtype), q_ref[...], NN, preferred_element_type=jnp.float32)

  @pl.when((r == pl.num_programs(3) - 1) & (n == pl.num_programs(4) - 1))
  def _():
    d_k_ref[...], d_v_ref[...] = (acc_k[...] * form.scale).astype(d_k_ref.dtype), acc_v[...].astype(d_v_ref.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(form, ranges, query, key, q, k, v, rows):
  """Output (B, H, T, K) over whole blocks."""
  return _forward(form, ranges, query, key, q, k, v, rows)[0]


def _forward(form, ranges, query, key, q, k, v, rows):
  sizes = Sizes.of(form, q, k)
  specs = sizes.specs(lambda b, h, n, m, first, last, lo, hi: (b, h, n, sizes.key(b, n, m, first, last)))
  out, log_sum = sizes.call(
    'flash_forward',
    _forward_kernel,
    (sizes.batch, sizes.heads, sizes.n, sizes.m),
    ranges,
    [(specs.query, query), (specs.key, key), (specs.q(q), q), (specs.k(k), k), (specs.k(v), v), (specs.row(rows), rows)],
    [(specs.q(v), (*q.shape[:3], v.shape[3]), v.dtype), (specs.per_query, (*q.shape[:2], 1, q.shape[2]), jnp.float32)],
    [(1, form.block), (1, form.block), (v.shape[3], form.block)],
    serial=1,
  )
  return out, (ranges, query, key, q, k, v, rows, out, log_sum)


def _backward(form, kept, d_out):
  ranges, query, key, q, k, v, rows, out, log_sum = kept
  # Sum over a row of weight x (its gradient), from the output alone.
  mean = jnp.sum(d_out.astype(jnp.float32) * out.astype(jnp.float32), axis=-1)[:, :, None]
  sizes = Sizes.of(form, q, k)

  def inputs(specs):
    pairs = [(specs.query, query), (specs.key, key), (specs.q(q), q), (specs.k(k), k), (specs.k(v), v), (specs.q(d_out), d_out)]
    return [*pairs, (specs.per_query, log_sum), (specs.per_query, mean), (specs.row(rows), rows)]

  specs = sizes.specs(lambda b, h, n, m, first, last, lo, hi: (b, h, n, sizes.key(b, n, m, first, last)))
  d_row = None if rows is None else (specs.row(rows, by_batch=True), (sizes.batch, *rows.shape), jnp.float32)
  d_q, d_rows = sizes.call(
    'flash_backward_queries',
    _queries_kernel,
    (sizes.batch, sizes.heads, sizes.n, sizes.m),
    ranges,
    inputs(specs),
    [(specs.q(q), q.shape, q.dtype), d_row],
    [(q.shape[3], form.block)],
    serial=2,  # a row's gradient stays in place for all blocks of a head
  )
  share = sizes.heads // k.shape[1]
  specs = sizes.specs(lambda b, g, m, r, n, first, last, lo, hi: (b, g * share + r, sizes.query(b, n, m, lo, hi), m))
  d_k, d_v = sizes.call(
    'flash_backward_keys',
    _keys_kernel,
    (sizes.batch, k.shape[1], sizes.m, share, sizes.n),
    ranges,
    inputs(specs),
    [(specs.k(k), k.shape, k.dtype), (specs.k(v), v.shape, v.dtype)],
    [(form.block, k.shape[3]), (form.block, v.shape[3])],
    serial=2,
  )
  return None, None, None, d_q, d_k, d_v, None if rows is None else jnp.sum(d_rows, axis=0)


_attend.defvjp(_forward, _backward)
