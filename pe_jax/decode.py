"""Decoding: a prompt read at once, then one token a step in a compiled loop over a cache of fixed size. Two compilations in all.

A row is [padding, prompt, new tokens], and each token stands at the position that it has in its own text, so that a row of a batch gives
what it gives alone. Prompts padded on the right are moved to the right first: then a document is one run of slots, which is what content
encodings count on. The last token of the prompt is left to the loop, so that every step is the same: one token in, one out.

What an encoding makes of a text's length uses a final length declared for each row, by default prompt + new tokens. The whole text is
then what one forward under that length gives, also where a map switches on the way. Positions that are drawn are drawn once for it.
"""

import dataclasses
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np

from pe_jax import cache as kv
from pe_jax import model, prompts
from pe_jax.errors import ConfigError, NotFinite
from pe_jax.evaluate import memory
from pe_jax.sampling import GREEDY


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
  job = prompts.job(config, enc, tokens_BT, doc_BT, new_tokens, declared_length, stop, row_B)
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
  job = prompts.job(config, enc, tokens_BT, doc_BT, new_tokens, declared_length, stop, row_B)
  return _run(job, enc, params, beam_loop, beams=beams)


def _run(job, enc, params, loop, **options):
  """The prompt, then the loop; what came of it, on the host."""
  _check_memory(job, enc, options.get('beams', 1))
  params = model.numbered(enc, params, job.length_B)
  cache, given = begun(job, enc, params)
  position_BL = given[2]
  options |= {'given': given, 'new_tokens': job.new_tokens}
  need = memory.needed(loop.lower(job.config, enc, params, cache=cache, limit=0, **options).compile())
  memory.check_bytes(need, f'new_tokens: {job.new_tokens} steps of {options.get("beams", 1) * len(job.tokens_BT)} texts')
  go = functools.partial(loop, job.config, enc, params, **options)
  cache, _ = jax.block_until_ready(go(cache=cache, limit=0))  # compiles, and takes no step
  start = time.perf_counter()
  _, found = jax.block_until_ready(go(cache=cache, limit=job.new_tokens))
  seconds = time.perf_counter() - start
  tokens, logp, count = map(np.asarray, found)
  if np.isnan(logp).any():
    raise NotFinite(f"logits under '{enc.spec}' are not finite (try a shorter text, or an earlier checkpoint)")
  position_BL = np.asarray(position_BL)[:, : job.count_B.max() + job.new_tokens]
  return Generation(tokens, logp, count, job.length_B, position_BL, enc.spec, seconds)


def _check_memory(job, enc, beams):
  """Refuses keys and values that there is no memory for."""
  rows, slots = job.tokens_BT.shape[0], job.tokens_BT.shape[1] + job.new_tokens
  cache = jax.eval_shape(lambda: kv.create(job.config.model, enc, rows, slots, slots))
  need = beams * sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(cache))
  memory.check_bytes(need, f'new_tokens: the keys and values of {beams * rows} texts of {slots} tokens')


def begun(job, enc, params):
  """(cache of all prompt tokens but the last, what a loop is given: last tokens, counts, positions, stops)."""
  slots = job.tokens_BT.shape[1] + job.new_tokens
  # What is made of a length is given as numbers, so that another declared length needs no other program.
  longest = int(job.length_B.max()) if enc.positions else slots if enc.numbers else max(int(job.length_B.max()), slots)
  given = job.config, enc, params, job.tokens_BT, job.count_B, job.length_B, job.row_B
  need = memory.needed(prefill.lower(*given, slots=slots, longest=longest).compile())
  memory.check_bytes(need, f'prompt: {len(job.tokens_BT)} texts of {job.tokens_BT.shape[1]} tokens and the cache of {slots} slots')
  cache, position_BL = prefill(*given, slots=slots, longest=longest)
  return cache, (job.tokens_BT[:, -1], job.count_B, position_BL, job.stop_X)


@functools.partial(jax.jit, static_argnames=('config', 'enc', 'slots', 'longest'))
def prefill(config, enc, params, tokens_BT, count_B, length_B, row_B, *, slots, longest):
  """(cache of all prompt tokens but the last, the position of each token of the texts to come)."""
  batch, width = tokens_BT.shape
  position_BL = prompts.positions(config, enc, length_B, row_B, longest if enc.positions else slots)
  cache = kv.create(config.model, enc, batch, slots, length_B, longest)
  if width > 1:
    index_BT = jnp.arange(width - 1, dtype=jnp.int32)[None] - (width - count_B)[:, None]
    pos_BT = jnp.take_along_axis(position_BL, jnp.maximum(index_BT, 0), axis=1)
    _, cache = model.hidden(config, enc, params, tokens_BT[:, :-1], (pos_BT, (index_BT >= 0).astype(jnp.int32)), cache=cache)
  return cache, position_BL


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
  batch, vocab, groups = token_B.shape[0], config.model.vocab_size, config.model.num_kv_heads
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
    logp_BM = jnp.where(score_BM == -jnp.inf, -jnp.inf, logp_BM)  # what is no number stays one, and ends the search
    cache = kv.rows(cache, (jnp.arange(batch)[:, None] * beams + parent_BM).reshape(-1), groups)
    (tokens, logp, count, done) = jax.tree.map(lambda x: _of(x, parent_BM), (*found, done_BM))
    found = _put(tokens, n, token_BM), _put(logp, n, logp_BM), count + ~done
    return n + 1, cache, token_BM, score_BM, found, done | jnp.isin(token_BM, stop_X)

  shape = (batch, beams)
  found = jnp.zeros((*shape, new_tokens), jnp.int32), jnp.zeros((*shape, new_tokens)), jnp.zeros(shape, jnp.int32)
  # All beams of a prompt begin as the same text, which may be continued once.
  score_BM = jnp.broadcast_to(jnp.where(jnp.arange(beams) == 0, 0.0, -jnp.inf)[None], shape)
  token_BM = jnp.broadcast_to(token_B[:, None], shape)
  state = jnp.int32(0), kv.rows(cache, row_X, groups), token_BM, score_BM, found, jnp.zeros(shape, bool)
  _, after, _, _, found, _ = jax.lax.while_loop(goes_on, step, state)
  return kv.kept_as(kv.rows(after, jnp.arange(batch) * beams, groups), cache), found


def _put(array, n, entry):
  """The array with `entry` at n of its last axis."""
  return jax.lax.dynamic_update_index_in_dim(array, entry, n, axis=-1)


def _of(x_BM, parent_BM):
  """Each beam's entry of its parent, whatever axes come after."""
  return jax.vmap(lambda x, parent: x[parent])(x_BM, parent_BM)
