"""Decoding: a prompt read at once, then one token a step in a compiled loop over a cache of fixed size. Two compilations in all.

A row is [padding, prompt, new tokens], and each token stands at the position that it has in its own text, so that a row of a batch gives
what it gives alone. Prompts padded on the right are moved to the right first: then a document is one run of slots, which is what content
encodings count on. The last token of the prompt is left to the loop, so that every step is the same: one token in, one out.

What an encoding makes of a text's length uses a final length declared for each row, by default prompt + new tokens. The whole text is
then what one forward under that length gives, also where a map switches on the way. Positions that are drawn are drawn once for it.
"""

import dataclasses
import functools
import math
import time

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from pe_jax import cache as kv
from pe_jax import model
from pe_jax.encodings.base import Where
from pe_jax.errors import ConfigError

BUCKET = 32  # prompts are padded to multiples of it: those of about the same length share their compiled programs


@dataclasses.dataclass(frozen=True, eq=False)
class Generation:
  """New tokens with what they were made under. Of a beam search the first three have an axis of beams after B, best first.

  Attributes:
    tokens: int32 (B, new) token ids; 0 after a stop.
    logp: float32 (B, new), the log-probability of each under the model itself, whatever the sampler made of it; 0 after a stop.
    count: int32 (B,), how many there are, up to a stop and with it.
    length_B: the declared lengths.
    position_BL: the position of token 0, 1, … of each row's text, as the model sees it.
    spec: the encoding.
    seconds: time of the loop, without compilation.
    text: prompt and new tokens as text, for each row (and beam), where a tokenizer was at hand.
  """

  tokens: np.ndarray
  logp: np.ndarray
  count: np.ndarray
  length_B: np.ndarray
  position_BL: np.ndarray
  spec: str
  seconds: float
  text: list | None = None


def greedy(logits_BV, key_B=None):
  """The likeliest token of each row, the first of several."""
  del key_B
  return jnp.argmax(logits_BV, axis=-1).astype(jnp.int32)


def draw(logits_BV, key_B, temperature=1.0, top_k=0, top_p=None):
  """A token of each row from softmax(logits / temperature), cut to the top_k likeliest and then to the nucleus of mass top_p.

  Of equally likely tokens the first are kept. `top_k`=0 and `top_p`=None cut nothing.
  """
  logits_BV = logits_BV.astype(jnp.float32)
  peak_B1 = jnp.max(logits_BV, axis=-1, keepdims=True)
  logits_BV = (logits_BV - peak_B1) / jnp.maximum(temperature, 1e-30)  # the peak stays 0 at any temperature
  choose = jax.vmap(jax.random.categorical)
  if not top_k and top_p is None:
    return choose(key_B, logits_BV).astype(jnp.int32)
  best_BK, id_BK = jax.lax.top_k(logits_BV, min(top_k or logits_BV.shape[-1], logits_BV.shape[-1]))
  if top_p is not None:
    best_BK = jnp.where(nucleus(best_BK, top_p), best_BK, -jnp.inf)
  return jnp.take_along_axis(id_BK, choose(key_B, best_BK)[:, None], axis=1)[:, 0].astype(jnp.int32)


def nucleus(sorted_BK, top_p):
  """True on the fewest leading tokens whose probability is together at least top_p: at least one. Logits come in descending order."""
  share_BK = jax.nn.softmax(sorted_BK, axis=-1)
  return jnp.cumsum(share_BK, axis=-1) - share_BK < top_p


@functools.partial(jax.tree_util.register_dataclass, data_fields=['temperature', 'top_p'], meta_fields=['top_k'])
@dataclasses.dataclass(frozen=True)
class Sampler:
  """`greedy` where there is no temperature, else `draw`. Another temperature or top_p compiles nothing again."""

  temperature: float | None = None
  top_p: float | None = None
  top_k: int = 0

  def __call__(self, logits_BV, key_B):
    if self.temperature is None:
      return greedy(logits_BV)
    return draw(logits_BV, key_B, self.temperature, self.top_k, self.top_p)


def sampler(temperature=1.0, top_k=0, top_p=1.0):
  """The Sampler of these settings: temperature=0 is greedy, top_k=0 and top_p=1 cut nothing."""
  if not 0 <= temperature < math.inf:
    raise ConfigError(f'temperature: {temperature} must be a number from 0 on (0 takes the likeliest token)')
  if top_k < 0:
    raise ConfigError(f'top_k: {top_k} must be at least 0 (0 keeps all tokens)')
  if not 0 < top_p <= 1:
    raise ConfigError(f'top_p: {top_p} must be above 0 and at most 1 (1 keeps all tokens)')
  if temperature == 0:
    return Sampler()
  return Sampler(float(temperature), float(top_p) if top_p < 1 else None, top_k)


GREEDY = Sampler()


def padded(prompts):
  """(tokens_BT, doc_BT) of token lists of any lengths, padded on the left; doc is 1 on tokens and 0 on padding."""
  width = max(map(len, prompts), default=0)
  rows = [(np.asarray(p, np.int32), width - len(p)) for p in prompts]
  tokens_BT = np.stack([np.pad(p, (short, 0)) for p, short in rows]) if rows else np.zeros((0, 0), np.int32)
  return tokens_BT, np.stack([np.arange(width) >= short for _, short in rows]).astype(np.int32) if rows else tokens_BT


def generate(
  config, enc, params, tokens_BT, doc_BT=None, *, new_tokens, sampler=GREEDY, key=None, declared_length=None, stop=(), row_B=None
):
  """Continues prompts.

  Args:
    config: a resolved config.
    enc: the encoding's record.
    params: as from `model.init`.
    tokens_BT: int token ids, a prompt a row, padded on the left or on the right.
    doc_BT: 0 on padding, above 0 on tokens; None: no padding.
    new_tokens: how many to add to each.
    sampler: what chooses, a pytree called with (logits_BV float32, key_B) -> token_B.
    key: random key; None: a fixed one. A row's draws depend on the key and its number alone.
    declared_length: the final length of the texts, one number or one a row; None: prompt + new tokens.
    stop: token ids that end a row; the loop ends when all rows have.
    row_B: the rows' numbers; None: 0, 1, 2 …

  Returns a Generation.
  """
  job = _job(config, enc, tokens_BT, doc_BT, new_tokens, declared_length, stop, row_B)
  return _run(job, enc, params, lambda config, cache, *rest: _sample(config, enc, params, cache, *rest, sampler, key, job.row_B))


def beam(config, enc, params, tokens_BT, doc_BT=None, *, beams, new_tokens, declared_length=None, stop=(), row_B=None):
  """The `beams` likeliest continuations that a beam search finds, best first by their sum of `logp`. Arguments as of `generate`.

  A beam that has met a stop keeps its place with the sum it has. Where there are fewer continuations than beams, the rest has a sum of -inf.
  """
  if beams < 1:
    raise ConfigError(f'beams: {beams} must be at least 1')
  job = _job(config, enc, tokens_BT, doc_BT, new_tokens, declared_length, stop, row_B)
  return _run(job, enc, params, lambda config, cache, *rest: _search(config, enc, params, cache, *rest, beams=beams))


@dataclasses.dataclass(frozen=True, eq=False)
class _Job:
  """A checked request. `tokens_BT` are padded on the left by `pad_B`."""

  config: object
  tokens_BT: np.ndarray
  pad_B: np.ndarray
  length_B: np.ndarray
  row_B: np.ndarray
  stop_X: np.ndarray
  new_tokens: int


def _job(config, enc, tokens_BT, doc_BT, new_tokens, declared_length, stop, row_B):
  """Refuses what cannot be generated, before anything is compiled."""
  if not config.model.causal:
    raise ConfigError('model.causal: False, and a model that sees the future cannot generate (train one with causal=True)')
  if new_tokens < 1:
    raise ConfigError(f'new_tokens: {new_tokens} must be at least 1')
  tokens_BT, count_B = _left_padded(*_prompts(tokens_BT, doc_BT))
  for name, ids in (('tokens', tokens_BT), ('stop', np.asarray(stop, np.int64).reshape(-1))):
    if ids.size and not 0 <= ids.min() <= ids.max() < config.model.vocab_size:
      raise ConfigError(f'{name}: ids must be in 0 .. {config.model.vocab_size - 1}, and there are {ids.min()} .. {ids.max()}')
  length_B = _declared(count_B, new_tokens, declared_length)
  model.check_length(enc, int(length_B.max()))
  width = _width(enc, int(count_B.max()), new_tokens)
  tokens_BT = np.pad(tokens_BT, ((0, 0), (width, 0)))[:, -width:].astype(np.int32)
  row_B = np.arange(len(count_B)) if row_B is None else row_B
  frozen = ml_collections.FrozenConfigDict(config)
  row_B, stop_X = np.asarray(row_B, np.int32), np.asarray(stop, np.int32).reshape(-1)
  return _Job(frozen, tokens_BT, (width - count_B).astype(np.int32), length_B.astype(np.int32), row_B, stop_X, new_tokens)


def _prompts(tokens_BT, doc_BT):
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
  if declared_length is None:
    return whole_B
  length_B = np.broadcast_to(np.asarray(declared_length), whole_B.shape)
  if (length_B < whole_B).any():
    row = int(np.argmax(length_B < whole_B))
    raise ConfigError(
      f'declared length: {length_B[row]} tokens, and a prompt of {count_B[row]} with {new_tokens} new ones has {whole_B[row]} '
      '(declare more, or ask for fewer)'
    )
  return length_B


def _width(enc, longest, new_tokens):
  """Columns for the prompts: a multiple of BUCKET where the encoding's positions reach that far."""
  if enc.positions:
    return longest  # what is drawn could be too little for more slots than tokens
  width = -(-longest // BUCKET) * BUCKET
  return width if enc.traits.max_length is None else max(longest, min(width, enc.traits.max_length - new_tokens))


def _run(job, enc, params, loop):
  """The prompt, then the loop; what came of it on the host."""
  slots = job.tokens_BT.shape[1] + job.new_tokens
  longest = int(max(job.length_B.max(), 0 if enc.positions else slots))
  cache, position_BL = prefill(
    job.config, enc, params, job.tokens_BT, job.pad_B, job.length_B, job.row_B, slots=slots, longest=longest
  )
  out_BN = jnp.zeros((len(job.pad_B), job.new_tokens))
  cache, *_ = loop(job.config, cache, job.tokens_BT[:, -1], job.pad_B, position_BL, job.stop_X, 0)  # compiles, and runs no step
  start = time.perf_counter()
  _, *found = loop(job.config, cache, job.tokens_BT[:, -1], job.pad_B, position_BL, job.stop_X, job.new_tokens)
  found = jax.block_until_ready(found)
  seconds = time.perf_counter() - start
  tokens, logp, count = (np.asarray(x) for x in found)
  return Generation(tokens, logp, count, job.length_B, np.asarray(position_BL), enc.spec, seconds)
