"""How exactly an encoding turns queries and keys, or makes the rows of a fixed table: asked of the record at chosen positions."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from pe_jax.encodings.base import Where, scores

EXACT = 1e-4  # of a score's largest size; exact phases are within 1e-6, phases rounded to bfloat16 are 1e-3 off


def _where(i_X, j_X, length):
  """A query and a key at these positions in each row, in documents of that length."""
  i_X1, j_X1 = (jnp.asarray(x, jnp.int32)[:, None] for x in (i_X, j_X))
  one, long = jnp.ones_like(i_X1), jnp.full_like(i_X1, length)
  return Where(i_X1, j_X1, one, one, long, long, 0, length, contiguous=False)


def _turned(case, record, i_X, j_X, length):
  """(queries, keys) of a fixed draw turned there, (X, 1, heads, width) each."""
  m, rng = case.config.model, np.random.default_rng(0)
  q, k = (np.tile(rng.normal(size=(1, 1, heads, m.head_dim)), (len(i_X), 1, 1, 1)) for heads in (m.num_heads, m.num_kv_heads))

  @jax.jit
  def turn(q, k):
    tables = case.encoding().tables(case.params['encoding'], _where(i_X, j_X, length))
    return record.rotate(tables, q, k)

  return turn(q.astype(np.float32), k.astype(np.float32))


def changed_by_length(case, record, lengths):
  """By how much a key at one position differs in documents of two lengths, as a share of its largest entry."""
  at = np.asarray([0, 1, case.train_length // 2, case.train_length - 1])
  a, b = (np.asarray(_turned(case, record, at, at, length)[1], np.float64) for length in lengths)
  return float(np.abs(a - b).max() / np.abs(a).max())


def shift_error(case, record):
  """By how much a score changes when query and key are shifted together, as a share of the largest score: (error, at which shift)."""
  far, train = case.served - 1, case.train_length
  shifts = sorted({0, 1, train - 1, train, far // 2, far})
  pairs = np.asarray(list(itertools.product(shifts, (0, 1, 7, train - 1))))
  q, k = _turned(case, record, pairs.sum(1), pairs[:, 0], int(pairs.sum(1).max()) + 1)
  score_SDH = np.asarray(scores(q, k), np.float64).reshape(len(shifts), -1, q.shape[2])
  return _worst(score_SDH, shifts)


def table_error(case):
  """The same of the rows of a fixed table of sines and cosines, whose products depend on the distance alone; None for other tables."""
  enc, far, train = case.encoding(), case.served - 1, case.train_length
  shifts, distances = sorted({0, 1, train - 1, train, far // 2, far}), (0, 1, 7, train - 1)
  pairs = np.asarray(list(itertools.product(shifts, distances)))

  @jax.jit
  def rows(position_X):
    x = jnp.zeros((len(position_X), 1, case.config.model.embed_dim), jnp.float32)
    return enc.embed(case.params['encoding'], x, _where(position_X, position_X, int(pairs.sum(1).max()) + 1))

  a, b = (np.asarray(rows(p), np.float64)[:, 0] for p in (pairs.sum(1), pairs[:, 0]))
  error, shift = _worst((a * b).sum(1).reshape(len(shifts), -1, 1), shifts)
  return (error, shift) if error < 0.05 else None  # the products of other tables have nothing to do with each other


def _worst(score_SDH, shifts):
  """(largest change against shift 0, as a share of the largest score; where)."""
  change_S = np.abs(score_SDH - score_SDH[:1]).max(axis=(1, 2)) / np.abs(score_SDH).max()
  return float(change_S.max()), shifts[int(change_S.argmax())]
