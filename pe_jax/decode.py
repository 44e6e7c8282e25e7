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
from pe_jax.errors import ConfigError, NotFinite

LARGEST = 2**31 - 1  # of an int32
BUCKET = 32  # prompts are padded to multiples of it: those of about the same length share their compiled programs


@dataclasses.dataclass(frozen=True, eq=False)
class Generation:
  """New tokens with what they were made under. Of a beam search the first three have an axis of beams after B, best first.

  Attributes:
    tokens: int32 (B, new) token ids; 0 after a stop.
    logp: float32 (B, new), the log-probability of each under the model itself, whatever the sampler made of it; 0 after a stop.
    count: int32 (B,), how many there are, up to a stop and with it.
    length_B: the declared lengths.
    position_BL: the position of token 0, 1, … of each row's text, as the model sees it; L is prompt + new tokens of the longest.
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
  rows = [np.asarray(p, None if len(p) else np.int32) for p in prompts]
  width = max(map(len, rows), default=0)
  tokens_BT = np.stack([np.pad(row, (width - len(row), 0)) for row in rows]) if rows else np.zeros((0, 0), np.int32)
  start_B = np.asarray([width - len(row) for row in rows], np.int32)
  return tokens_BT, (np.arange(width)[None] >= start_B[:, None]).astype(np.int32)


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
  if sampler == GREEDY:
    key = None  # what draws nothing compiles faster without
  elif key is None:
    key = jax.random.PRNGKey(0)
  return _run(job, enc, params, sample_loop, sampler=sampler, key=key, row_B=job.row_B)


def beam(config, enc, params, tokens_BT, doc_BT=None, *, beams, new_tokens, declared_length=None, stop=(), row_B=None):
  """The `beams` likeliest continuations that a beam search finds, best first by their sum of `logp`. Arguments as of `generate`.

  A beam that has met a stop keeps the sum it has. Where there are fewer continuations than beams, what remains has a sum of -inf.
  """
  if beams < 1:
    raise ConfigError(f'beams: {beams} must be at least 1')
  job = _job(config, enc, tokens_BT, doc_BT, new_tokens, declared_length, stop, row_B)
  return _run(job, enc, params, beam_loop, beams=beams)


@dataclasses.dataclass(frozen=True, eq=False)
class _Job:
  """A checked request. `tokens_BT` are padded on the left; `count_B` of them are real."""

  config: ml_collections.FrozenConfigDict
  tokens_BT: np.ndarray
  count_B: np.ndarray
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
  count_B, length_B, row_B, stop_X = (np.asarray(x).astype(np.int32) for x in (count_B, length_B, row_B, stop))
  if enc.positions:  # a draw that cannot be made says so
    jax.eval_shape(functools.partial(_positions, config, enc, reach=int(length_B.max())), length_B, row_B)
  return _Job(ml_collections.FrozenConfigDict(config), tokens_BT, count_B, length_B, row_B, stop_X.reshape(-1), new_tokens)


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
  if length_B.max() > LARGEST:
    raise ConfigError(f'declared length: {length_B.max()} tokens are more than positions can count (at most {LARGEST})')
  return length_B


def _width(enc, longest, new_tokens):
  """Columns for the prompts: a multiple of BUCKET where the encoding's positions reach that far."""
  if enc.positions:
    return longest  # what is drawn could be too little for more slots than tokens
  width = -(-longest // BUCKET) * BUCKET
  return width if enc.traits.max_length is None else max(longest, min(width, enc.traits.max_length - new_tokens))


def _run(job, enc, params, loop, **options):
  """The prompt, then the loop; what came of it, on the host."""
  slots = job.tokens_BT.shape[1] + job.new_tokens
  longest = int(max(job.length_B.max(), 0 if enc.positions else slots))
  cache, position_BL = prefill(job.config, enc, params, job.tokens_BT, job.count_B, job.length_B, job.row_B, slots=slots, longest=longest)
  given = (job.tokens_BT[:, -1], job.count_B, position_BL, job.stop_X)
  go = functools.partial(loop, job.config, enc, params, given=given, new_tokens=job.new_tokens, **options)
  cache, _ = jax.block_until_ready(go(cache=cache, limit=0))  # compiles, and takes no step
  start = time.perf_counter()
  _, found = jax.block_until_ready(go(cache=cache, limit=job.new_tokens))
  seconds = time.perf_counter() - start
  tokens, logp, count = map(np.asarray, found)
  if np.isnan(logp).any():
    raise NotFinite(f"logits under '{enc.spec}' are not finite (try a shorter text, or an earlier checkpoint)")
  position_BL = np.asarray(position_BL)[:, : job.count_B.max() + job.new_tokens]
  return Generation(tokens, logp, count, job.length_B, position_BL, enc.spec, seconds)


@functools.partial(jax.jit, static_argnames=('config', 'enc', 'slots', 'longest'))
def prefill(config, enc, params, tokens_BT, count_B, length_B, row_B, *, slots, longest):
  """(cache of all prompt tokens but the last, the position of each token of the texts to come)."""
  batch, width = tokens_BT.shape
  position_BL = _positions(config, enc, length_B, row_B, longest if enc.positions else slots)
  cache = kv.create(config.model, enc, batch, slots, length_B, longest)
  if width > 1:
    index_BT = jnp.arange(width - 1, dtype=jnp.int32)[None] - (width - count_B)[:, None]
    pos_BT = jnp.take_along_axis(position_BL, jnp.maximum(index_BT, 0), axis=1)
    _, cache = model.hidden(config, enc, params, tokens_BT[:, :-1], (pos_BT, (index_BT >= 0).astype(jnp.int32)), cache=cache)
  return cache, position_BL


def _positions(config, enc, length_B, row_B, reach):
  """int32 (B, reach): 0, 1, 2 …, or one draw for each text of the declared length."""
  index_BL = jnp.broadcast_to(jnp.arange(reach, dtype=jnp.int32)[None], (length_B.shape[0], reach))
  doc_BL = (index_BL < length_B[:, None]).astype(jnp.int32)
  return enc.placed(Where.forward(index_BL, doc_BL, config.model.causal), row_B).i_BT


def _next(config, enc, params, cache, token_B, index_B, position_BL):
  """(logits_BV after token number `index_B` of each text, cache with it)."""
  pos_B1 = jnp.take_along_axis(position_BL, index_B[:, None], axis=1)
  logits_BTV, cache = model.apply(config, enc, params, token_B[:, None], (pos_B1, jnp.ones_like(pos_B1)), cache=cache)
  return logits_BTV[:, 0], cache


@functools.partial(jax.jit, static_argnames=('config', 'enc', 'new_tokens'), donate_argnames='cache')
def sample_loop(config, enc, params, cache, given, limit, sampler, key, row_B, *, new_tokens):
  """(cache, (tokens_BN, logp_BN, count_B)) after `limit` of `new_tokens` steps, or fewer if every row has met a stop."""
  token_B, count_B, position_BL, stop_X = given
  batch = token_B.shape[0]
  key_B = None if key is None else jax.vmap(jax.random.fold_in, (None, 0))(key, row_B)

  def goes_on(state):
    n, _, _, _, done_B = state
    return (n < limit) & ~jnp.all(done_B)

  def step(state):
    n, cache, token_B, (tokens_BN, logp_BN, new_B), done_B = state
    logits_BV, cache = _next(config, enc, params, cache, token_B, count_B - 1 + n, position_BL)
    keys = None if key is None else jax.vmap(jax.random.fold_in, (0, None))(key_B, n)
    token_B = jnp.where(done_B, 0, sampler(logits_BV, keys).astype(jnp.int32))
    logp_BV = jax.nn.log_softmax(logits_BV)
    logp_B = jnp.where(done_B, 0.0, jnp.take_along_axis(logp_BV, token_B[:, None], axis=1)[:, 0])
    found = _put(tokens_BN, n, token_B), _put(logp_BN, n, logp_B), new_B + ~done_B
    return n + 1, cache, token_B, found, done_B | jnp.isin(token_B, stop_X)

  found = jnp.zeros((batch, new_tokens), jnp.int32), jnp.zeros((batch, new_tokens)), jnp.zeros(batch, jnp.int32)
  state = jnp.int32(0), cache, token_B, found, jnp.zeros(batch, bool)
  _, cache, _, found, _ = jax.lax.while_loop(goes_on, step, state)
  return cache, found


@functools.partial(jax.jit, static_argnames=('config', 'enc', 'new_tokens', 'beams'), donate_argnames='cache')
def beam_loop(config, enc, params, cache, given, limit, *, new_tokens, beams):
  """As `sample_loop`, (tokens_BMN, logp_BMN, count_BM) of the M = `beams` best. `cache` has a row a prompt."""
  token_B, count_B, position_BL, stop_X = given
  batch, vocab = token_B.shape[0], config.model.vocab_size
  row_X = jnp.repeat(jnp.arange(batch), beams)  # rows of beams: all those of the first prompt, then of the next
  count_X, position_XL = count_B[row_X], position_BL[row_X]
  # A finished beam goes on in one way, at no cost.
  idle_V = jnp.where(jnp.arange(vocab) == 0, 0.0, -jnp.inf)

  def goes_on(state):
    n, _, _, _, _, done_BM = state
    return (n < limit) & ~jnp.all(done_BM)

  def step(state):
    n, cache, token_BM, score_BM, found, done_BM = state
    logits_XV, cache = _next(config, enc, params, cache, token_BM.reshape(-1), count_X - 1 + n, position_XL)
    logp_BMV = jax.nn.log_softmax(logits_XV).reshape(batch, beams, vocab)
    logp_BMV = jnp.where(done_BM[..., None], idle_V[None, None], logp_BMV)
    score_BM, best_BM = jax.lax.top_k((score_BM[..., None] + logp_BMV).reshape(batch, -1), beams)
    parent_BM, token_BM = best_BM // vocab, best_BM % vocab
    logp_BM = jnp.take_along_axis(logp_BMV.reshape(batch, -1), best_BM, axis=1)
    logp_BM = jnp.where(score_BM > -jnp.inf, logp_BM, -jnp.inf)
    cache = kv.rows(cache, (jnp.arange(batch)[:, None] * beams + parent_BM).reshape(-1))
    (tokens, logp, count, done) = jax.tree.map(lambda x: _of(x, parent_BM), (*found, done_BM))
    found = _put(tokens, n, token_BM), _put(logp, n, logp_BM), count + ~done
    return n + 1, cache, token_BM, score_BM, found, done | jnp.isin(token_BM, stop_X)

  shape = (batch, beams)
  found = jnp.zeros((*shape, new_tokens), jnp.int32), jnp.zeros((*shape, new_tokens)), jnp.zeros(shape, jnp.int32)
  # All beams of a prompt begin as the same text, which may be continued once.
  score_BM = jnp.broadcast_to(jnp.where(jnp.arange(beams) == 0, 0.0, -jnp.inf)[None], shape)
  token_BM = jnp.broadcast_to(token_B[:, None], shape)
  state = jnp.int32(0), kv.rows(cache, row_X), token_BM, score_BM, found, jnp.zeros(shape, bool)
  _, cache, _, _, found, _ = jax.lax.while_loop(goes_on, step, state)
  return kv.rows(cache, jnp.arange(batch) * beams), found


def _put(array, n, entry):
  """The array with `entry` at n of its last axis."""
  return jax.lax.dynamic_update_index_in_dim(array, entry, n, axis=-1)


def _of(x_BM, parent_BM):
  """Each beam's entry of its parent, whatever axes come after."""
  return jax.vmap(lambda x, parent: x[parent])(x_BM, parent_BM)
