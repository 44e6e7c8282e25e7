"""Prompts made ready for decoding: checked, padded on the left, with the final length and the positions that each text will have."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from pe_jax import model
from pe_jax.encodings.base import Where
from pe_jax.errors import ConfigError

LARGEST = 2**31 - 1  # of an int32
BUCKET = 32  # prompts are padded to multiples of it: those of about the same length share their compiled programs


def padded(prompts):
  """(tokens_BT, doc_BT) of token lists of any lengths, padded on the left; doc is 1 on tokens and 0 on padding."""
  rows = [np.asarray(p, None if len(p) else np.int32) for p in prompts]
  width = max(map(len, rows), default=0)
  tokens_BT = np.stack([np.pad(row, (width - len(row), 0)) for row in rows]) if rows else np.zeros((0, 0), np.int32)
  start_B = np.asarray([width - len(row) for row in rows], np.int32)
  return tokens_BT, (np.arange(width)[None] >= start_B[:, None]).astype(np.int32)


@dataclasses.dataclass(frozen=True, eq=False)
class Job:
  """A checked request. `tokens_BT` are padded on the left; `count_B` of them are real."""

  config: ml_collections.FrozenConfigDict
  tokens_BT: np.ndarray
  count_B: np.ndarray
  length_B: np.ndarray
  row_B: np.ndarray
  stop_X: np.ndarray
  new_tokens: int


def job(config, enc, tokens_BT, doc_BT, new_tokens, declared_length, stop, row_B):
  """The Job of a request; refuses what cannot be generated, before anything is compiled. Arguments as of `decode.generate`."""
  if not config.model.causal:
    raise ConfigError('model.causal: False, and a model that sees the future cannot generate (train one with causal=True)')
  if new_tokens < 1:
    raise ConfigError(f'new_tokens: {new_tokens} must be at least 1')
  tokens_BT, count_B = _left_padded(*_checked(tokens_BT, doc_BT))
  for name, ids in (('tokens', tokens_BT), ('stop', np.asarray(stop, np.int64).reshape(-1))):
    if ids.size and not 0 <= ids.min() <= ids.max() < config.model.vocab_size:
      raise ConfigError(f'{name}: ids must be in 0 .. {config.model.vocab_size - 1}, and there are {ids.min()} .. {ids.max()}')
  length_B = _declared(count_B, new_tokens, declared_length)
  model.check_length(enc, int(length_B.max()))
  width = _width(enc, int(count_B.max()), new_tokens)
  tokens_BT = np.pad(tokens_BT, ((0, 0), (width, 0)))[:, -width:].astype(np.int32)
  row_B = np.arange(len(count_B)) if row_B is None else row_B
  count_B, length_B, row_B, stop_X = (np.asarray(x).astype(np.int32) for x in (count_B, length_B, row_B, stop))
  if enc.positions:  # a draw that cannot be made says so
    jax.eval_shape(functools.partial(positions, config, enc, reach=int(length_B.max())), length_B, row_B)
  return Job(ml_collections.FrozenConfigDict(config), tokens_BT, count_B, length_B, row_B, stop_X.reshape(-1), new_tokens)


def _checked(tokens_BT, doc_BT):
  """(tokens, True on tokens), with their shapes checked."""
  tokens_BT = np.asarray(tokens_BT)
  real_BT = np.ones(tokens_BT.shape, bool) if doc_BT is None else np.asarray(doc_BT) > 0
  if tokens_BT.ndim != 2 or real_BT.shape != tokens_BT.shape:
    raise ConfigError(f'tokens: a prompt a row is wanted, and tokens have shape {tokens_BT.shape}, documents {real_BT.shape}')
  if not tokens_BT.shape[0] or not real_BT.any(axis=1).all():
    row = int(np.argmin(real_BT.any(axis=1))) if len(tokens_BT) else 0
    raise ConfigError(f'tokens: prompt {row} is empty (begin with one token at least, such as BOS)')
  if not np.issubdtype(tokens_BT.dtype, np.integer):
    raise ConfigError(f'tokens: whole numbers are wanted, not {tokens_BT.dtype}')
  begins = np.diff(real_BT.astype(np.int8), axis=1, prepend=0) == 1
  documents = [len(np.unique(d[d > 0])) for d in np.asarray(doc_BT)] if doc_BT is not None else [1]
  if begins.sum(axis=1).max() > 1 or max(documents) > 1:
    raise ConfigError('tokens: a row holds one prompt, padded on the left or on the right, and there is a gap or a second document')
  return tokens_BT, real_BT


def _left_padded(tokens_BT, real_BT):
  """(tokens, number of them in each row), every row rolled until its last token is in the last column; padding is token 0."""
  count_B = real_BT.sum(axis=1)
  width = tokens_BT.shape[1]
  end_B = width - np.argmax(real_BT[:, ::-1], axis=1)
  column_BT = (np.arange(width)[None] + end_B[:, None]) % width
  real_BT, tokens_BT = (np.take_along_axis(x, column_BT, axis=1) for x in (real_BT, tokens_BT))
  return np.where(real_BT, tokens_BT, 0)[:, width - count_B.max() :], count_B


def _declared(count_B, new_tokens, declared_length):
  """The final length of each row's text."""
  whole_B = count_B + new_tokens
  length_B = np.asarray(whole_B if declared_length is None else declared_length)
  if length_B.shape not in ((), whole_B.shape):
    raise ConfigError(f'declared length: {length_B.size} of them, and there are {whole_B.size} prompts (one for all, or one for each)')
  length_B = np.broadcast_to(length_B, whole_B.shape)
  if (length_B < whole_B).any():
    row = int(np.argmax(length_B < whole_B))
    raise ConfigError(
      f'declared length: {length_B[row]} tokens, and a prompt of {count_B[row]} with {new_tokens} new ones has {whole_B[row]} '
      '(declare more, or ask for fewer)'
    )
  if length_B.max() > LARGEST:
    raise ConfigError(f'declared length: {length_B.max()} tokens are more than positions can count (at most {LARGEST})')
  return length_B


def _width(enc, longest, new_tokens):
  """Columns for the prompts: a multiple of BUCKET where the encoding's positions reach that far."""
  if enc.positions:
    return longest  # what is drawn could be too little for more slots than tokens
  width = -(-longest // BUCKET) * BUCKET
  return width if enc.traits.max_length is None else max(longest, min(width, enc.traits.max_length - new_tokens))


def positions(config, enc, length_B, row_B, reach):
  """int32 (B, reach): 0, 1, 2 …, or one draw for each text of the declared length."""
  index_BL = jnp.broadcast_to(jnp.arange(reach, dtype=jnp.int32)[None], (length_B.shape[0], reach))
  doc_BL = (index_BL < length_B[:, None]).astype(jnp.int32)
  return enc.placed(Where.forward(index_BL, doc_BL, config.model.causal), row_B).i_BT
