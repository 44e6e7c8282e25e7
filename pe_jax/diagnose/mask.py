"""Step 3, the causal mask: no query may see its future, or another document of its row.

A leak looks excellent offline, since the answer is in sight, and fails in generation, where it is not.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from pe_jax import attention
from pe_jax.diagnose.case import distance
from pe_jax.diagnose.finding import judged
from pe_jax.encodings.base import Where

STEP, TITLE = 3, 'causal mask'
REMEDY = 'hide keys after the query before the softmax (model.causal, Where.visible_BTS); a model trained with a leak must be trained again'


def findings(case):
  """Weights, then states of whole forwards."""
  return [weights(case), leak(case), documents(case)]


def weights(case):
  """The weight of the future, read off attention itself: values are 1 on keys after a threshold, and queries there must get exactly 0."""
  worst = max(_future_weight(case, record) for record in case.layers())
  evidence = f'the largest weight on keys after the query is {worst:.3g}, at {case.served} tokens'
  return judged(STEP, 'weights of the future', worst == 0, evidence, 'mask', REMEDY)


def _future_weight(case, record):
  m, length, rng = case.config.model, case.served, np.random.default_rng(0)
  threshold_K = np.linspace(0, length - 2, m.head_dim).astype(int)
  v_S1K = (np.arange(length)[:, None] > threshold_K).astype(np.float32)[:, None]
  index_1T = np.arange(length, dtype=np.int32)[None]
  shapes = [(1, length, n, m.head_dim) for n in (m.num_heads, m.num_kv_heads)] + [(1, length, m.embed_dim)]
  q, k, x = (rng.normal(size=shape).astype(np.float32) for shape in shapes)

  @jax.jit
  def attend(q, k, v, x):
    where = case.encoding().placed(Where.forward(jnp.asarray(index_1T), jnp.ones_like(index_1T), m.causal))
    tables = case.encoding().tables(case.params['encoding'], where)
    where = dataclasses.replace(where, side=record.token(tables, x) if record.token else None)
    q, k = record.rotate(tables, q, k) if record.rotate else (q, k)
    return attention.attend(record, tables, q, k, v, where, m.attention, m.attention_chunk)

  out_THK = np.asarray(attend(q, k, np.tile(v_S1K, (1, m.num_kv_heads, 1))[None], x))[0]
  return float(np.abs(out_THK[threshold_K, :, np.arange(m.head_dim)]).max())


def leak(case):
  """Other tokens in the second half must not change the first half's states."""
  tokens_1T, other_1T, half = case.text(case.served)[None], case.text(case.served, 3)[None], case.served // 2
  other_1T = np.where(other_1T == tokens_1T, (tokens_1T + 1) % case.config.model.vocab_size, other_1T)
  changed_1T = np.concatenate([tokens_1T[:, :half], other_1T[:, half:]], axis=1)
  a, b = case.states(tokens_1T), case.states(changed_1T)
  before, after = distance(b[:, :half], a[:, :half]), distance(b[:, half:], a[:, half:])
  evidence = f'other tokens from {half} on change the states before by {before:.2g} of the largest, those after by {after:.2g}'
  return judged(STEP, 'leak', before <= case.tolerance / 100, evidence, 'mask', REMEDY)


def documents(case):
  """The second document of a row must have the states that it has alone."""
  half = case.served // 2
  rest = case.served - 2 * half
  a, b = case.text(half, 1), case.text(half, 2)
  pos, one, empty = np.arange(half, dtype=np.int32), np.ones(half, np.int32), np.zeros(half + rest, np.int32)
  tail = np.zeros(rest, np.int32)
  # Draws belong to rows: both readings take positions from 0 instead.
  states = functools.partial(case.states, drawn=bool(case.encoding().positions))
  packed = states(*(np.concatenate(x)[None] for x in ((a, b, tail), (pos, pos, tail), (one, 2 * one, tail))))
  alone = states(*(np.concatenate(x)[None] for x in ((b, empty), (pos, empty), (one, empty))))
  error = distance(packed[:, half : 2 * half], alone[:, :half])
  evidence = f'the second of two documents of a row of {case.served} tokens differs from itself alone by {error:.2g} of the largest state'
  remedy = 'let a query see keys of its own document only, and restart positions in each'
  return judged(STEP, 'documents of a row', error <= case.tolerance, evidence, 'documents', remedy)
