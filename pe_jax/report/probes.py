"""What a record does, measured through its own functions and nothing else, so that every encoding can be asked.

A rotation's frequency is read off a turned vector at positions 1, 2, 4, …: each doubling tells one more binary digit of the turns a
position, and what float32 can tell at position 2^30 is the frequency to about 1e-16 turns.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from pe_jax import attention
from pe_jax.encodings.base import Dims, Encoding, Where, scores

FARTHEST = 2**30  # positions are 31-bit integers


@dataclasses.dataclass(frozen=True)
class Probe:
  """A record with what it needs to be called: the record of the whole model makes the tables for that of a layer."""

  whole: Encoding
  record: Encoding
  params: object
  dims: Dims

  def tables(self, where):
    """What `prepare` gives there."""
    return self.whole.tables(self.params, where)

  def farthest(self):
    """The last position that can be served, at most 2^30."""
    return min(self.record.traits.max_length or FARTHEST + 1, FARTHEST + 1) - 1


def where(queries, keys, length, offset=0):
  """Queries and keys at these positions of one document that is treated as `length` long."""
  i_BT, j_BS = (jnp.asarray(x, jnp.int32)[None] for x in (queries, keys))
  one, long = jnp.ones_like, lambda x: jnp.full_like(x, length)
  return Where(i_BT, j_BS, one(i_BT), one(j_BS), long(i_BT), long(j_BS), offset, length, contiguous=False)


@dataclasses.dataclass(frozen=True)
class Turning:
  """How one head turns.

  Attributes:
    pairs: the dimensions of each pair that turns, (first, second).
    turns_F: turns a position, float64.
    factor_F: what cos and sin are multiplied by, a score by its square.
    shrink_F: by how much less a score of the pair counts at the largest distance than at none; 1: distance does not matter.
  """

  pairs: tuple[tuple[int, int], ...]
  turns_F: np.ndarray
  factor_F: np.ndarray
  shrink_F: np.ndarray


def turning(probe, length):
  """The Turning of each head in a document of `length` tokens; None where `rotate` is no rotation of pairs."""
  width, heads, groups = probe.dims.head_dim, probe.dims.num_heads, probe.dims.num_kv_heads
  last = probe.farthest()

  @jax.jit  # here and below: one compilation of it all instead of one for each operation
  def rotate(positions, q_THK, k_GK):
    at = where(positions, [0], length)
    return probe.record.rotate(probe.tables(at), q_THK[None], k_GK[None, None])

  def turned(positions, q_THK, k_GK):
    """Queries at positions, keys at 0. What comes out wider is a second reading of the same pairs."""
    q, k = rotate(np.asarray(positions, np.int32), q_THK.astype(np.float32), k_GK.astype(np.float32))
    return np.asarray(q[0, ..., :width], np.float64), np.asarray(k[0, 0, :, :width], np.float64)

  few = [min(p, last) for p in (0, 1, 2**10 + 1, 2**20 + 1, FARTHEST)]
  basis = np.concatenate([np.eye(width), np.zeros((1, width))]).repeat(len(few), axis=0)[:, None, :].repeat(heads, axis=1)
  mixed = np.abs(turned(few * (width + 1), basis, np.zeros((groups, width)))[0].reshape(width + 1, len(few), heads, width)).max(axis=1)
  if mixed[width].any():
    return None
  pairs = [_pairs(mixed[:width, h] > 0) for h in range(heads)]
  if None in pairs:
    return None

  powers = 2 ** np.arange(int(np.log2(last)) + 1)
  position_P = np.concatenate([powers, [0, min(length, last + 1) - 1]])
  first_HK = np.zeros((heads, width))
  for h in range(heads):
    first_HK[h, [a for a, _ in pairs[h]]] = 1
  per_group = heads // groups
  q_PHK, k_GK = turned(position_P, np.broadcast_to(first_HK, (len(position_P), heads, width)), first_HK[::per_group])
  return [_measured(pairs[h], q_PHK[:, h], k_GK[h // per_group], len(powers)) for h in range(heads)]


def _pairs(touched):
  """Pairs of dimensions that reach each other; None where one reaches several."""
  reach = [set(np.flatnonzero(touched[a])) - {a} for a in range(len(touched))]
  if any(len(others) > 1 for others in reach):
    return None
  return tuple((a, int(next(iter(others)))) for a, others in enumerate(reach) if others and a < next(iter(others)))


def _measured(pairs, q_PK, k_K, powers):
  a, b = (np.asarray([pair[n] for pair in pairs], int) for n in (0, 1))
  cos_PF, sin_PF, key_F = q_PK[:, a], q_PK[:, b], np.hypot(k_K[a], k_K[b])
  seen_PF = np.arctan2(sin_PF, cos_PF) / (2 * np.pi)
  turns_F = np.zeros(len(pairs))
  for n in range(powers):
    rest_F = seen_PF[n] - turns_F * 2**n
    turns_F = turns_F + (rest_F - np.round(rest_F)) / 2**n
  size_PF = np.hypot(cos_PF, sin_PF) * key_F
  return Turning(pairs, turns_F, np.sqrt(size_PF[-2]), size_PF[-1] / size_PF[-2])


def row(probe, query, length):
  """ln of the attention weights of one query whose scores q . k are all 0, before they are made to sum to 1.

  float64 (H, query + 1) by distance, 0 first; -inf where a key is not visible. It is the bias itself for a softmax.
  """
  dims, record = probe.dims, probe.record

  @jax.jit
  def scored(keys):
    at = where([query], keys, length, offset=query)
    tables = probe.tables(at)
    if record.token:
      at = dataclasses.replace(at, side=record.token(tables, jnp.zeros((1, query + 1, dims.embed_dim), jnp.float32)))
    if record.sides:
      at = record.sides(tables, at)
    s_BHTS = jnp.zeros((1, dims.num_heads, 1, query + 1), jnp.float32) + _empty_scores(probe, tables, at)
    s_BHTS, visible = attention.completed(record, tables, s_BHTS, at)
    visible = jnp.broadcast_to(visible, s_BHTS.shape)
    return s_BHTS, visible, record.normalise(tables, s_BHTS, visible) if record.normalise else None

  s_BHTS, visible, weights = scored(np.arange(query + 1, dtype=np.int32))
  if weights is None:
    logs = np.where(np.asarray(visible), np.asarray(s_BHTS, np.float64), -np.inf)
  else:
    with np.errstate(divide='ignore'):
      logs = np.log(np.asarray(weights, np.float64))
  return logs[0, :, 0, ::-1]


def _empty_scores(probe, tables, at):
  """Scores of vectors of zeros: 0 unless vectors of zeros do not stay so, or scores are made in another way."""
  dims, record = probe.dims, probe.record
  if not record.rotate and not record.score:
    return 0.0
  keys = at.j_BS.shape[1]
  q = jnp.zeros((1, 1, dims.num_heads, dims.head_dim), jnp.float32)
  k = jnp.zeros((1, keys, dims.num_kv_heads, dims.head_dim), jnp.float32)
  if record.rotate:
    q, k = record.rotate(tables, q, k)
  return record.score(tables, q, k, at) if record.score else scores(q, k, dims.head_dim)


def temperature(probe, query, length):
  """What the scores of a query are multiplied by, float64 (H,)."""

  @jax.jit
  def scale(keys):
    at = where([query], keys, length, offset=query)
    return probe.record.scale(probe.tables(at), at)

  factor = np.asarray(scale(np.arange(query + 1, dtype=np.int32)), np.float64)
  return np.broadcast_to(factor, (1, probe.dims.num_heads, 1, 1))[0, :, 0, 0]


def read_distances(probe, turning, length, chunk=2048):
  """The distance, in tokens, at which the last query reads each key: that at which the same head, turned plainly, has the same score.

  float64 (H, length) by true distance, 0 first. Measured with the slowest pair of each head: over its two dimensions, q . k are cos and sin
  of what was turned between them.
  """
  dims, record = probe.dims, probe.record
  slow = [int(np.argmin(head.turns_F)) if head.pairs else None for head in turning]
  turns_H = np.asarray([head.turns_F[n] if head.pairs else 1.0 for head, n in zip(turning, slow)])
  per_group = dims.num_heads // dims.num_kv_heads

  def unit(heads, side):
    one = np.zeros((len(heads), dims.head_dim), np.float32)
    for row, h in enumerate(heads):
      if turning[h].pairs:
        one[row, turning[h].pairs[slow[h]][side]] = 1
    return jnp.asarray(one)[None, None]

  @jax.jit
  def scored(keys, side_GK):
    at = where([length - 1], keys, length)
    tables = probe.tables(at)
    q, k = record.rotate(tables, unit(range(dims.num_heads), 0), jnp.tile(side_GK, (1, len(keys), 1, 1)))
    return record.score(tables, q, k, at) if record.score else scores(q, k, dims.head_dim)

  angles = []
  for start in range(0, length, chunk):
    keys = np.maximum(length - 1 - np.arange(start, start + min(chunk, length)), 0).astype(np.int32)
    cos, sin = (np.asarray(scored(keys, unit(range(0, dims.num_heads, per_group), side)), np.float64)[0, :, 0] for side in (0, 1))
    angles.append(np.arctan2(sin, cos))
  angle_HS = np.unwrap(np.concatenate(angles, axis=1)[:, :length], axis=1)
  return angle_HS / (2 * np.pi * turns_H[:, None])


def rows(probe, positions, length):
  """What is added to the embeddings at these positions, float64 (T, D)."""

  @jax.jit
  def embed(positions):
    x = jnp.zeros((1, len(positions), probe.dims.embed_dim), jnp.float32)
    return probe.whole.embed(probe.params, x, where(positions, [0], length))

  return np.asarray(embed(np.asarray(positions, np.int32)), np.float64)[0]


def sinusoids(probe, length):
  """Turns a position of each sine and cosine, fastest first, where rows are made of such pairs; None where they are not."""
  powers = 2 ** np.arange(int(np.log2(probe.farthest())) + 1)
  start_D, seen_PD = rows(probe, [0], length)[0], rows(probe, powers, length)
  sines, cosines = np.flatnonzero(np.abs(start_D) < 1e-6), np.flatnonzero(np.abs(start_D - 1) < 1e-6)
  if not len(sines) == len(cosines) == len(start_D) // 2:
    return None
  if np.abs(np.hypot(seen_PD[:, sines], seen_PD[:, cosines]) - 1).max() > 1e-5:
    return None
  seen_PF = np.concatenate([seen_PD[:, cosines], seen_PD[:, sines]], axis=1)
  pairs = tuple((n, n + len(sines)) for n in range(len(sines)))
  return _measured(pairs, seen_PF, np.ones(len(start_D)), len(powers)).turns_F
