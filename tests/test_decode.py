"""Decoding is one forward in instalments: each token is what a forward over the whole text says there, in any batch, under any padding."""

import dataclasses
import functools
import itertools
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import tiny_runs as runs

import pe_jax
from pe_jax import cache as kv
from pe_jax import config as config_lib
from pe_jax import decode, encodings, model, prompts, resolve, sampling
from pe_jax.checkpoint import Checkpoints
from pe_jax.encodings.base import Where
from pe_jax.errors import ConfigError, DataError, NotFinite
from pe_jax.evaluate import memory

shares = pytest.mark.xdist_group('decode')  # what is compiled once in a process is used by all that say so

LONGROPE = 'longrope(factor=2, short_factor=(1, 1, 1, 1), long_factor=(1, 1.5, 2, 3))'
# Where two can share a model, one layer each, a fault of either still shows.
SPECS = [
  'rope',
  'alibi',
  'sinusoidal',
  'learned(max_length=20)',
  'randomized(sinusoidal, range=20)',
  'fire(threshold=8.0)',
  'dynamic_ntk(factor=2)',
  LONGROPE,
  'heads(nope, alibi)',
  "layers(yarn(factor=2), log_n(rope, count='document'))",
  'layers(t5(num_buckets=8, max_distance=12), xpos)',
  'layers(fox, cope(npos_max=6))',
  'layers(pope, sinks(first=2, window=6))',
  'layers(transformer_xl, stick_breaking)',
]


@pytest.fixture(autouse=True, scope='module')
def quick():
  with runs.quick_compiles():
    yield


def drawn(*lengths, vocab=50, seed=0):
  """Random prompts."""
  rng = np.random.default_rng(seed)
  return [rng.integers(0, vocab, n) for n in lengths]


def padded(rows, side):
  """(tokens, doc), padded on the given side with a token that is another in every row."""
  width = max(map(len, rows))
  put = [(width - len(r) if side == 'left' else 0, len(r)) for r in rows]
  tokens, doc = np.stack([np.full(width, 7 + n) for n in range(len(rows))]), np.zeros((len(rows), width), int)
  for n, (row, (start, size)) in enumerate(zip(rows, put)):
    tokens[n, start : start + size], doc[n, start : start + size] = row, n + 1
  return tokens, doc


@functools.cache
def forward(spec, longest=64, **changes):
  """Jitted (params, tokens, positions, number of tokens, declared length of each row) -> logits; rows are padded on the right."""
  config, enc, _ = tiny.made(spec, **changes)

  @jax.jit
  def apply(params, tokens_BT, pos_BT, count_B, length_B):
    doc_BT = (jnp.arange(tokens_BT.shape[1])[None] < count_B[:, None]).astype(jnp.int32)
    where = Where.forward(pos_BT, doc_BT, contiguous=not enc.positions)
    length_BT = jnp.broadcast_to(length_B[:, None], doc_BT.shape)
    where = dataclasses.replace(where, qlen_BT=length_BT, klen_BS=length_BT, longest=longest)
    return model.apply(config, enc, params, tokens_BT, where)

  return apply


def whole(spec, rows, tokens_BN, found, longest=64, **changes):
  """Log-probabilities (B, new, V) at each new token, by one forward over every whole text at the positions that were used."""
  total = max(map(len, rows)) + tokens_BN.shape[1]
  total = max(20, total) if tiny.made(spec, **changes)[1].traits.max_length is None else total  # mostly 20: one compilation
  text = np.stack([np.pad(np.r_[row, new], (0, total - len(row) - len(new))) for row, new in zip(rows, tokens_BN)])
  count = np.asarray([len(r) + tokens_BN.shape[1] for r in rows])
  pos = np.asarray(found.position_BL)[:, :total]
  pos = np.pad(pos, ((0, 0), (0, total - pos.shape[1])))
  logits = forward(spec, longest, **changes)(tiny.made(spec, **changes)[2], text, pos, count, found.length_B)
  logp = np.asarray(jax.nn.log_softmax(logits))
  return np.stack([one[len(row) - 1 : len(row) - 1 + tokens_BN.shape[1]] for one, row in zip(logp, rows)])


def assert_greedy(spec, rows, found, longest=64, **changes):
  """Every token is the likeliest of its forward and has the log-probability of it."""
  logp = whole(spec, rows, found.tokens, found, longest, **changes)
  expected = np.take_along_axis(logp, found.tokens[..., None], -1)[..., 0]
  np.testing.assert_allclose(found.logp, expected, atol=1e-4)
  assert (expected >= logp.max(-1) - 1e-4).all()


@functools.cache
def decoded(spec):
  """Greedy continuations of prompts of 5 and 14 tokens by 6, padded on the left and on the right."""
  rows = drawn(5, 14)
  return rows, *(decode.generate(*tiny.made(spec), *padded(rows, side), new_tokens=6) for side in ('left', 'right'))


def test_keys_and_values_beyond_memory_are_refused_before_anything_runs(monkeypatch):
  monkeypatch.setattr(memory, 'available', lambda: 20_000_000)
  given = *tiny.made('rope'), np.ones((2, 3), np.int32)
  assert decode.generate(*given, new_tokens=4).tokens.shape == (2, 4)
  with pytest.raises(ConfigError, match=r'keys and values of 2 texts of 1000032 tokens take \d\.\d GB, and 0\.0 GB are free'):
    decode.generate(*given, new_tokens=1_000_000)
  with pytest.raises(ConfigError, match=r'keys and values of 2000 texts of 1032 tokens'):
    decode.beam(*given, beams=1000, new_tokens=1000)


def test_what_reading_and_searching_take_beside_keys_and_values_counts(monkeypatch):
  """By the compiler: a search holds two caches on the way, and a prompt its activations."""
  config, enc, params = tiny.made('alibi')
  leaves = jax.tree.leaves(jax.eval_shape(lambda: kv.create(config.model, enc, 1, 1024, 1024)))
  keys = sum(x.size * x.dtype.itemsize for x in leaves)
  short, long = np.ones((1, 3), np.int32), np.ones((1, 1000), np.int32)
  monkeypatch.setattr(memory, 'available', lambda: 15 * keys)
  with pytest.raises(ConfigError, match=r'^new_tokens: 992 steps of 10 texts take '):
    decode.beam(config, enc, params, short, beams=10, new_tokens=992)
  monkeypatch.setattr(memory, 'available', lambda: 2 * keys)
  assert decode.generate(config, enc, params, short, new_tokens=992).count.tolist() == [992]
  with pytest.raises(ConfigError, match=r'^prompt: 1 texts of 1024 tokens and the cache of 1026 slots take '):
    decode.generate(config, enc, params, long, new_tokens=2)


@shares
@pytest.mark.parametrize('spec', SPECS)
def test_each_token_is_that_of_a_full_forward_alone_whatever_the_padding(spec):
  """Trained at 16: the first text, of 11 tokens, stays below the training length, the second, of 20, crosses it and fills a table of 20."""
  rows, left, right = decoded(spec)
  assert left.tokens.shape == (2, 6)
  assert (left.length_B.tolist(), left.count.tolist(), left.spec) == ([11, 20], [6, 6], tiny.made(spec)[1].spec)
  assert np.array_equal(left.tokens, right.tokens)
  assert np.array_equal(left.logp, right.logp)
  assert_greedy(spec, rows, left)
  assert len(np.unique(left.tokens)) > 2, 'the same token everywhere shows little'


@shares
def test_a_batch_gives_what_each_prompt_gives_alone():
  """Field case P09: prompts of 3 and 7 tokens."""
  rows = drawn(3, 7)
  config, enc, params = tiny.made('rope')
  batch = decode.generate(config, enc, params, *prompts.padded(rows), new_tokens=6)
  for n, row in enumerate(rows):
    alone = decode.generate(config, enc, params, row[None], new_tokens=6)
    assert np.array_equal(alone.tokens[0], batch.tokens[n])
    np.testing.assert_allclose(alone.logp[0], batch.logp[n], atol=1e-4)
    assert alone.position_BL[0].tolist() == batch.position_BL[n, : len(row) + 6].tolist() == list(range(len(row) + 6))


@shares
def test_prompts_are_read_in_blocks_as_well():
  rows, dense, _ = decoded('alibi')
  blocks = decode.generate(*tiny.made('alibi', attention='blockwise'), *padded(rows, 'right'), new_tokens=6)
  assert np.array_equal(blocks.tokens, dense.tokens)
  np.testing.assert_allclose(blocks.logp, dense.logp, atol=1e-5)


@shares
def test_drawn_positions_are_drawn_once_for_the_whole_text_as_if_it_were_alone():
  spec = 'randomized(sinusoidal, range=20)'
  enc = tiny.made(spec)[1]
  _, found, _ = decoded(spec)
  place = jax.jit(lambda pos, doc: enc.placed(Where.forward(pos, doc)).i_BT[0])
  alone = place(*tiny.row(11, total=11)).tolist()
  assert found.position_BL[0, :11].tolist() == alone == sorted(set(alone)) != list(range(11))
  assert found.position_BL[1].tolist() == list(range(20))  # all there are


@shares
def test_a_declared_length_holds_for_the_whole_text():
  """The same prompts as the beginnings of texts of 40 tokens: more than there are slots, which the cache need not hold."""
  spec = LONGROPE
  rows, short, _ = decoded(spec)
  config, enc, params = tiny.made(spec)
  long = decode.generate(config, enc, params, *prompts.padded(rows), new_tokens=6, declared_length=40)
  assert long.length_B.tolist() == [40, 40]
  assert_greedy(spec, rows, long)
  assert tiny.error(long.logp[0], short.logp[0]) > 1e-3
  two = decode.generate(config, enc, params, *prompts.padded(rows), new_tokens=6, declared_length=[11, 40])
  np.testing.assert_allclose(two.logp, [short.logp[0], long.logp[1]], atol=1e-5)


def test_a_dynamic_map_decodes_across_the_training_length_as_one_forward():
  """Field case P17: trained at 128, heads of 64, decoded at lengths 127 .. 140."""
  changes = {'train_length': 128, 'head_dim': 64, 'attention': 'dense'}
  rows = drawn(126)
  found = decode.generate(*tiny.made('dynamic_ntk(factor=2)', **changes), rows[0][None], new_tokens=14)
  assert found.length_B.tolist() == [140]
  assert_greedy('dynamic_ntk(factor=2)', rows, found, 160, **changes)


@shares
def test_a_dynamic_map_is_plain_rope_up_to_the_training_length_and_not_beyond():
  (_, dynamic, _), (_, plain, _) = decoded('dynamic_ntk(factor=2)'), decoded('rope')
  assert np.array_equal(dynamic.tokens[0], plain.tokens[0])
  np.testing.assert_allclose(dynamic.logp[0], plain.logp[0], atol=5e-6)
  assert tiny.error(dynamic.logp[1], plain.logp[1]) > 1e-3


def test_every_layer_fills_slot_after_slot_at_positions_that_rise_by_one():
  """Field case P34: three layers, nine tokens, then four one at a time."""
  config, enc, params = tiny.made('nope', num_layers=3)
  job = prompts.job(config, enc, drawn(9)[0][None], None, 5, None, (), None)
  cache, position = decode.prefill(job.config, enc, params, job.tokens_BT, job.count_B, job.length_B, job.row_B, slots=37, longest=37)
  assert cache.used == 31
  given = (job.tokens_BT[:, -1], job.count_B, position, job.stop_X)
  cache, _ = decode.sample_loop(job.config, enc, params, cache, given, 5, sampling.GREEDY, None, job.row_B, new_tokens=5)
  pad = 32 - 9
  assert (int(cache.used), cache.pos_BS[0, pad:36].tolist()) == (36, list(range(13)))
  assert cache.doc_BS[0].tolist() == [0] * pad + [1] * 13 + [0]
  for key, value in zip(cache.k, cache.v, strict=True):
    written = [np.abs(x).max(1) > 0 for x in (key, value)]
    assert [w[pad:].tolist() for w in written] == 2 * [[True] * 13 + [False]]


def compiled(caplog, function):
  """Names of what is compiled while the function runs."""
  caplog.clear()
  with jax.log_compiles():
    function()
  return [m.group(1) for r in caplog.records if (m := re.match(r'Compiling (?:jit\()?(\w+)\)? ', r.getMessage()))]


def test_a_generation_compiles_two_programs_and_another_like_it_none(caplog):
  """Field case P33. Prompts of other lengths, other temperatures, keys and rows change no shape."""
  config, enc, params = tiny.made('nope')
  keys = [jax.random.PRNGKey(n) for n in (3, 4)]

  def generate(lengths, **more):
    rows = drawn(*lengths, seed=sum(lengths))
    return lambda: decode.generate(config, enc, params, *prompts.padded(rows), new_tokens=20, **more)

  assert compiled(caplog, generate((4, 6))) == ['prefill', 'sample_loop']
  assert compiled(caplog, generate((17, 2))) == []
  assert compiled(caplog, generate((4, 6), sampler=sampling.sampler(0.5, 5, 0.9), key=keys[0])) == ['sample_loop']
  assert compiled(caplog, generate((8, 31), sampler=sampling.sampler(1.5, 5, 0.3), key=keys[1], row_B=[5, 2])) == []


@pytest.mark.parametrize('lengths', [(5,), (5, 7)])
def test_a_beam_search_compiles_two_programs_also_of_one_text(lengths, caplog):
  """The cache of one row is kept in another shape on a CPU than that of beams."""
  config, enc, params = tiny.made('kerple')

  def search(seed):
    rows = drawn(*lengths, seed=seed)
    return lambda: decode.beam(config, enc, params, *prompts.padded(rows), beams=3, new_tokens=9)

  assert compiled(caplog, search(0)) == ['prefill', 'beam_loop']
  assert compiled(caplog, search(1)) == []


@shares
def test_a_stop_ends_its_row_and_when_all_have_met_one_the_loop():
  rows, free, _ = decoded('rope')
  given = (*tiny.made('rope'), *prompts.padded(rows))
  stop = next(int(t) for t in free.tokens[0] if t not in free.tokens[1])
  at = free.tokens[0].tolist().index(stop) + 1
  found = decode.generate(*given, new_tokens=6, stop=[stop, stop])
  assert found.count.tolist() == [at, 6]
  assert found.tokens[0].tolist() == free.tokens[0, :at].tolist() + [0] * (6 - at)
  assert (found.logp[0, at:] == 0).all()
  assert np.array_equal(found.tokens[1], free.tokens[1])
  both = decode.generate(*given, new_tokens=6, stop=[stop, int(free.tokens[1, 0])])
  assert both.count[1] == 1
  assert both.count[0] <= at


# Samplers


@jax.jit
def choose(sampler, logits_BV, key_B):
  return sampler(logits_BV, key_B)


def draws(logits, *settings, count=20_000):
  """How often each token is drawn."""
  keys = jax.random.split(jax.random.PRNGKey(0), count)
  tokens = choose(sampling.sampler(*settings), jnp.tile(jnp.asarray(logits, jnp.float32)[None], (count, 1)), keys)
  return np.bincount(np.asarray(tokens), minlength=len(logits))


def chi_square(counts, share):
  """Pearson's statistic; what cannot be drawn must not have been."""
  assert (counts[share == 0] == 0).all()
  expected = counts.sum() * share[share > 0]
  return np.sum((counts[share > 0] - expected) ** 2 / expected)


LOGITS = np.asarray([0.3, -1.0, 2.0, 1.2, -0.4, 0.9, 1.7, -2.0])


def softmax(x):
  e = np.exp(np.asarray(x, np.float64) - np.max(x))
  return e / e.sum()


# The settings, and which tokens can be drawn. The .999 quantile of chi-square with 7 degrees of freedom is 24.3.
@pytest.mark.parametrize(
  ('settings', 'kept'),
  [
    ((1.0,), range(8)),
    ((0.7,), range(8)),
    ((2.5,), range(8)),
    ((1.0, 3), (2, 6, 3)),
    ((0.7, 100), range(8)),
    ((1.0, 0, 0.70), (2, 6, 3)),  # shares .366 .271 .164 .122 …
    ((1.0, 0, 0.60), (2, 6)),
    ((1.0, 3, 0.75), (2, 6)),  # .457 .338 .205 among three
    ((3.0, 0, 0.60), (2, 6, 3, 5)),  # .197 .178 .151 .137 …: temperature first
  ],
  ids=str,
)
def test_draws_follow_the_softmax_of_what_is_kept(settings, kept):
  share = softmax(LOGITS / settings[0]) * np.isin(np.arange(8), list(kept))
  assert chi_square(draws(LOGITS, *settings), share / share.sum()) < 24.3


def test_the_nucleus_is_the_smallest_set_of_at_least_that_mass():
  rng = np.random.default_rng(0)
  for p in (1e-9, 0.1, 0.5, 0.9, 0.99, 1 - 1e-7):
    logits = np.sort(3 * rng.normal(size=(20, 40)), axis=-1)[:, ::-1].astype(np.float32)
    kept = np.asarray(sampling.nucleus(jnp.asarray(logits), p))
    for row, keep in zip(logits, kept):
      mass = np.cumsum(softmax(row))
      size = keep.sum()
      assert size >= 1
      assert keep[:size].all()
      assert mass[size - 1] >= p - 1e-6
      assert size == 1 or mass[size - 2] < p + 1e-6


def test_of_equal_tokens_the_first_are_kept():
  ties = [0.0, 1.0, 1.0, 1.0, 1.0]
  assert np.flatnonzero(draws(ties, 1.0, 2, count=500)).tolist() == [1, 2]
  assert np.flatnonzero(draws(ties, 1.0, 0, 0.3, count=500)).tolist() == [1, 2]  # .229 each
  assert np.flatnonzero(draws(ties, 1.0, 1, count=500)).tolist() == [1]
  assert np.flatnonzero(draws(ties, 0.0, count=5)).tolist() == [1]


def test_one_token_a_small_nucleus_and_no_temperature_are_greedy():
  rng = np.random.default_rng(1)
  logits = jnp.asarray(10 * rng.normal(size=(50, 30)), jnp.float32)
  keys = jax.random.split(jax.random.PRNGKey(0), 50)
  expected = np.argmax(np.asarray(logits), axis=-1).tolist()
  for settings in ((0.0,), (0.0, 5, 0.9), (1.0, 1), (1.0, 0, 1e-6), (1e-9,), (1e-45,), (1e-30, 3, 0.5)):
    assert choose(sampling.sampler(*settings), logits, keys).tolist() == expected, settings


@shares
def test_log_probabilities_are_the_models_whatever_the_sampler():
  rows = drawn(5, 9)
  given, more = (*tiny.made('rope'), *prompts.padded(rows)), {'new_tokens': 6, 'sampler': sampling.sampler(2.0, top_p=0.9)}
  found = decode.generate(*given, key=jax.random.PRNGKey(1), **more)
  logp = whole('rope', rows, found.tokens, found)
  np.testing.assert_allclose(found.logp, np.take_along_axis(logp, found.tokens[..., None], -1)[..., 0], atol=1e-4)
  assert (logp.max(-1) - found.logp).max() > 0.1, 'nothing but the likeliest was drawn'


@shares
def test_a_key_makes_a_draw_and_each_row_has_its_own():
  rows = drawn(5, 9)

  def generate(rows, seed, row_B=None):
    more = {'sampler': sampling.sampler(2.0, top_p=0.9), 'key': jax.random.PRNGKey(seed), 'row_B': row_B}
    return decode.generate(*tiny.made('rope'), *prompts.padded(rows), new_tokens=6, **more).tokens.tolist()

  once = generate(rows, 0)
  assert once == generate(rows, 0) != generate(rows, 1)
  assert once == generate(rows[::-1], 0, [1, 0])[::-1]  # whatever its neighbours
  same = generate([rows[0], rows[0]], 0)
  assert once[0] == same[0] != same[1]


# Beams


def continuations(spec, row, n, found, new):
  """{tokens: log-probabilities (new,)} of all continuations of a prompt over six tokens, by full forwards."""
  options = np.asarray(list(itertools.product(range(6), repeat=new)))
  every = {name: np.repeat(getattr(found, name)[n : n + 1], len(options), axis=0) for name in ('position_BL', 'length_B')}
  logp = whole(spec, [row] * len(options), options, dataclasses.replace(found, **every), vocab_size=6)
  logp = np.take_along_axis(logp, options[..., None], -1)[..., 0]
  return dict(zip(map(tuple, options.tolist()), logp, strict=True))


def test_a_beam_search_of_all_continuations_is_exhaustive():
  """Six tokens, two of them stops, three steps: 106 texts. A cache reordered wrongly would score others."""
  rows, stop = drawn(4, 9, vocab=6), (2, 4)
  found = decode.beam(*tiny.made('fox', vocab_size=6), *padded(rows, 'right'), beams=110, new_tokens=3, stop=stop)
  assert found.tokens.shape == (2, 110, 3)
  for n, row in enumerate(rows):
    expected = {}
    for tokens, logp in continuations('fox', row, n, found, 3).items():
      end = next((k + 1 for k, t in enumerate(tokens) if t in stop), 3)
      expected[tokens[:end]] = logp[:end].sum()
    sums = found.logp[n].sum(-1)
    listed = [tuple(tokens[:count]) for tokens, count in zip(found.tokens[n, :106].tolist(), found.count[n])]
    assert set(listed) == set(expected)
    np.testing.assert_allclose(sums[:106], [expected[tokens] for tokens in listed], atol=1e-4)
    assert (np.diff(sums[:106]) <= 0).all()
    assert (sums[106:] == -np.inf).all()


def test_few_beams_keep_the_best_beginnings_at_every_step():
  rows = drawn(4, 9, vocab=6)
  found = decode.beam(*tiny.made('fox', vocab_size=6), *prompts.padded(rows), beams=4, new_tokens=3)
  for n, row in enumerate(rows):
    every = continuations('fox', row, n, found, 3)
    score = {tokens[:k]: logp[:k].sum() for tokens, logp in every.items() for k in (1, 2, 3)}
    kept = [()]
    for _ in range(3):
      kept = sorted(((*begin, t) for begin in kept for t in range(6)), key=lambda tokens: -score[tokens])[:4]
    assert found.tokens[n].tolist() == [list(tokens) for tokens in kept]
    np.testing.assert_allclose(found.logp[n], [every[tokens] for tokens in kept], atol=1e-4)


@shares
def test_one_beam_is_greedy():
  rows, greedy, _ = decoded('alibi')
  one = decode.beam(*tiny.made('alibi'), *prompts.padded(rows), new_tokens=6, beams=1)
  assert np.array_equal(one.tokens[:, 0], greedy.tokens)
  np.testing.assert_allclose(one.logp[:, 0], greedy.logp, atol=1e-5)


# What is refused


ROW = drawn(5)[0][None]
REFUSED = [
  ('rope', {'tokens_BT': np.zeros((1, 0), int)}, r'prompt 0 is empty'),
  ('rope', {'tokens_BT': np.zeros((0, 3), int)}, r'prompt 0 is empty'),
  ('rope', {'tokens_BT': ROW, 'doc_BT': np.zeros((1, 5), int)}, r'prompt 0 is empty'),
  ('rope', {'tokens_BT': ROW[0]}, r'a prompt a row is wanted, and tokens have shape \(5,\)'),
  ('rope', {'tokens_BT': ROW, 'doc_BT': np.ones((1, 4), int)}, r'documents \(1, 4\)'),
  ('rope', {'tokens_BT': ROW, 'doc_BT': [[1, 1, 0, 1, 1]]}, r'there is a gap or a second document'),
  ('rope', {'tokens_BT': ROW, 'doc_BT': [[1, 1, 2, 2, 2]]}, r'there is a gap or a second document'),
  ('rope', {'tokens_BT': ROW + 0.5}, r'whole numbers are wanted, not float64'),
  ('rope', {'tokens_BT': ROW + 46}, r'tokens: ids must be in 0 .. 49, and there are \d+ .. \d+'),
  ('rope', {'tokens_BT': ROW - 50}, r'tokens: ids must be in 0 .. 49'),
  ('rope', {'stop': 50}, r'stop: ids must be in 0 .. 49, and there are 50 .. 50'),
  ('rope', {'new_tokens': 0}, r'new_tokens: 0 must be at least 1'),
  ('rope', {'declared_length': 10}, r'declared length: 10 tokens, and a prompt of 5 with 6 new ones has 11'),
  ('rope', {'declared_length': 0}, r'declared length: 0 tokens'),
  ('rope', {'declared_length': 2**31}, r'declared length: 2147483648 tokens are more than positions can count'),
  ('learned', {'new_tokens': 12}, r"'learned' has 16 positions and cannot serve length 17"),
  ('learned', {'declared_length': 17}, r"'learned' has 16 positions and cannot serve length 17"),
  ('randomized(sinusoidal, range=16)', {'new_tokens': 12}, r'range=16 is smaller than the length 17'),
  ('rope', {'beams': 0}, r'beams: 0 must be at least 1'),
]


@pytest.mark.parametrize(('spec', 'given', 'says'), REFUSED, ids=str)
def test_what_cannot_be_generated_is_refused_before_anything_is_compiled(spec, given, says):
  config, enc, params = tiny.made(spec)
  arguments = {'tokens_BT': ROW, 'new_tokens': 6} | given
  before = [f._cache_size() for f in (decode.prefill, decode.sample_loop, decode.beam_loop)]
  with pytest.raises(ConfigError, match=says):
    (decode.beam if 'beams' in given else decode.generate)(config, enc, params, **arguments)
  assert before == [f._cache_size() for f in (decode.prefill, decode.sample_loop, decode.beam_loop)]


@shares
def test_a_prompt_of_one_token_and_as_many_new_ones_as_the_table_has_rows_for():
  """Field case P02: nothing beyond the last slot or row, and none that is left unused."""
  rows = [np.asarray([3]), np.asarray([4])]
  found = decode.generate(*tiny.made('learned(max_length=20)'), np.stack(rows), new_tokens=19)
  assert_greedy('learned(max_length=20)', rows, found)


def test_a_model_without_a_mask_is_refused():
  config, enc, params = tiny.made('rope', causal=False)
  with pytest.raises(ConfigError, match=r'model.causal: False, and a model that sees the future cannot generate'):
    decode.generate(config, enc, params, ROW, new_tokens=2)


@shares
@pytest.mark.parametrize('beams', [0, 2])
def test_logits_that_are_no_numbers_end_it(beams):
  rows, _, _ = decoded('rope')
  config, enc, params = tiny.made('rope')
  how = functools.partial(decode.beam, beams=beams) if beams else decode.generate
  with pytest.raises(NotFinite, match=r"logits under 'rope' are not finite"):
    how(config, enc, jax.tree.map(lambda x: x * np.nan, params), *prompts.padded(rows), new_tokens=6)


def test_a_declared_length_of_a_hundred_million_takes_no_table_of_all_lengths():
  """25 GB of frequencies, were there a row for every length; and another length is no other program."""
  config, enc, params = tiny.made('dynamic_ntk(factor=2)')
  rows = prompts.padded([[1, 2, 3]])
  found = [decode.generate(config, enc, params, *rows, new_tokens=3, declared_length=n) for n in (6, 100_000_000)]
  before = decode.sample_loop._cache_size()
  decode.generate(config, enc, params, *rows, new_tokens=3, declared_length=50_000_000)
  assert decode.sample_loop._cache_size() == before
  assert not np.array_equal(found[0].logp, found[1].logp)


@pytest.mark.parametrize(
  ('settings', 'says'),
  [
    ({'new_tokens': 3_000_000_000}, 'declared length: 3000000003 tokens are more than positions can count'),
    (
      {'new_tokens': 3, 'declared_length': [9, 9, 9]},
      r'declared length: 3 of them, and there are 2 prompts \(one for all, or one for each\)',
    ),
  ],
)
def test_lengths_that_no_text_can_have_are_refused(settings, says):
  with pytest.raises(ConfigError, match=says):
    decode.generate(*tiny.made('rope'), *prompts.padded([[1, 2, 3], [4, 5]]), **settings)


@pytest.mark.parametrize(
  ('settings', 'says'),
  [
    ({'temperature': -0.1}, r'temperature: -0.1 must be a number from 0 on'),
    ({'temperature': float('nan')}, r'temperature: nan must be'),
    ({'temperature': float('inf')}, r'temperature: inf must be'),
    ({'top_k': -1}, r'top_k: -1 must be at least 0'),
    ({'top_p': 0.0}, r'top_p: 0.0 must be above 0 and at most 1'),
    ({'top_p': 1.1}, r'top_p: 1.1 must be above 0'),
    ({'top_p': float('nan')}, r'top_p: nan must be'),
  ],
  ids=str,
)
def test_settings_of_a_sampler_are_checked(settings, says):
  with pytest.raises(ConfigError, match=says):
    sampling.sampler(**settings)


# Runs and the command


@functools.cache
def workdir():
  """A workdir with a checkpoint of step 4, as training leaves it; nothing was learned."""
  folder = runs.home() / 'untrained'
  config = resolve.resolve(runs.config(encoding='rope'))
  enc = encodings.make('rope', model.dims(config))
  shapes = jax.eval_shape(lambda key: model.init(config, enc, key), jax.random.PRNGKey(0))
  rng = np.random.default_rng(0)
  checkpoints = Checkpoints(folder)
  checkpoints.save(4, {'params': jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), x.dtype), shapes)}, {})
  checkpoints.close()
  (folder / 'config.json').write_text(config_lib.to_json(config))
  return folder


def test_a_run_continues_text_bytes_and_tokens(caplog):
  run = pe_jax.load(workdir())
  one = run.generate('the old', 8, temperature=0)
  (text,) = one.text
  assert text.startswith('the old')
  assert len(text.encode()) == 15 or '\ufffd' in text
  assert (one.spec, one.length_B.tolist(), one.position_BL.tolist()) == ('rope', [16], [list(range(16))])
  ids, again = [256, *b'the old'], []
  for prompt in (b'the old', ids, np.asarray(ids), jnp.asarray(ids), [ids], ['the old']):
    assert compiled(caplog, lambda p=prompt: again.append(run.generate(p, 8, temperature=0).text)) == []
  assert again == [[text]] * 6
  assert run.generate(b'caf\xe9', 8, temperature=0).text[0].startswith('caf\ufffd')
  assert run.generate('caf\udce9', 8, temperature=0).text == run.generate(b'caf\xe9', 8, temperature=0).text
  several = run.generate(['the old', ''], 8, temperature=0)
  assert several.text[0] == text
  assert several.length_B.tolist() == [16, 9]
  for prompt, says in ((['a', []], 'prompt 1 is empty'), ([], 'prompt 0 is empty'), ([300], 'ids must be in 0 .. 256')):
    with pytest.raises(ConfigError, match=says):
      run.generate(prompt, 8)
  with pytest.raises(DataError, match='prompt: not UTF-8'):
    run.generate('\ud800', 8)


def test_a_beam_search_draws_nothing_and_says_so():
  run = pe_jax.load(workdir())
  for given, says in (({'top_k': 3}, 'beams: 2, and a beam search draws nothing'), ({'beams': -1}, 'beams: -1 must be at least 1')):
    with pytest.raises(ConfigError, match=says):
      run.generate('a', 8, **({'beams': 2} | given))


WORKDIR = '--workdir={run}'
MISTAKES = [
  (['--prompt=a'], 2, '--workdir: missing'),
  ([WORKDIR], 2, r"--prompt: missing \(for instance --prompt='def '\)"),
  ([WORKDIR, '--prompt=a', '--new_tokens=x'], 2, 'flag --new_tokens=x'),
  ([WORKDIR, '--prompt=a', '--step=new'], 2, "--step: 'new' is not a whole number"),
  ([WORKDIR, '--prompt=a', '--encoding=t5'], 2, r"'t5' reads the learned parameter \['table'\]"),
  ([WORKDIR, '--prompt=a', '--encoding=yran'], 2, r"'yran' is unknown \(did you mean 'yarn'\?\)"),
  ([WORKDIR, 'a'], 2, "argument 'a' is not a flag"),
  (['--workdir={home}', '--prompt=a'], 3, 'no config.json there'),
  ([WORKDIR, '--prompt=a', '--step=7'], 3, 'no checkpoint of step 7'),
  ([WORKDIR, '--prompt=a', '--temperature=-1'], 2, 'temperature: -1.0 must be a number from 0 on'),
  ([WORKDIR, '--prompt=abc', '--length=50'], 2, 'declared length: 50 tokens, and a prompt of 4 with 100 new ones has 104'),
  ([WORKDIR, '--prompt=a', '--encoding=learned'], 2, r"'learned' reads the learned parameter \['table'\]"),
]
DONE = [
  # what the text begins with, what is said on stderr
  (
    ['--prompt=the old ', '--seed=1', '--top_k=5', '--encoding=yarn', '--length=64'],
    'the old ',
    r'yarn\(factor=4\) .*, declared length 64;',
  ),
  (['--prompt=', '--beams=2'], '', r'rope \(trained as rope\), step 4, declared length 25;'),
  (['--prompt=-', '--beams=2'], '', r'rope \(trained as rope\), step 4, declared length 25;'),  # stdin, and there is nothing in it
]


def test_the_command_prints_the_text_and_every_mistake_in_one_line():
  names = {'home': str(runs.home()), 'run': str(workdir())}
  before = runs.contents(names['run'])
  given = [arguments for arguments, _, _ in MISTAKES] + [[WORKDIR, '--new_tokens=24', *arguments] for arguments, _, _ in DONE]
  done, wrong = runs.served([{'argv': ['scripts/generate.py', *(a.format(**names) for a in arguments)]} for arguments in given]), []
  for (arguments, code, says), (got, out, err, _) in zip(MISTAKES, done):
    if (got, out, re.fullmatch(r'ERROR: [^\n]+\n', err) is not None, bool(re.search(says, err))) != (code, '', True, True):
      wrong.append(f'{arguments}: code {got}, wanted {code}: {err[-300:]}')
  assert not wrong, '\n'.join(wrong)
  for (_, begins, says), (code, out, err, _) in zip(DONE, done[len(MISTAKES) :]):
    assert (code, out.startswith(begins), len(out) > 3) == (0, True, True), err
    assert re.search(rf'{says} 24 tokens in [\d.]+ s, \d+ tokens/s \(compiling not counted\)\n$', err), err
  assert before == runs.contents(names['run'])


def test_help_is_instant():
  command = [sys.executable, '-X', 'importtime', str(runs.ROOT / 'scripts' / 'generate.py'), '--help']
  shown = subprocess.run(command, capture_output=True, text=True, check=True)
  assert '--temperature' in shown.stdout
  assert len(shown.stdout.splitlines()) < 50
  assert not re.search(r'\| +(jax|flax|orbax\.checkpoint)$', shown.stderr, re.MULTILINE)
