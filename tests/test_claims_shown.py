"""Claims of the two source documents that no other test shows: small, exact, without training. docs/claims.md says which test is whose."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from pe_jax import attention, encodings
from pe_jax.encodings import alibi, frequency_maps, rope, sinusoidal
from pe_jax.encodings.base import Dims, Where

SLOTS = ('embed', 'rotate', 'distance_bias', 'bias', 'score', 'visible', 'scale', 'normalise', 'positions')
DIMS = Dims(num_heads=4, num_kv_heads=4, head_dim=16, embed_dim=64, train_length=64)


def turned(x, position, frequency):
  """Vectors (..., d) at positions, pairs (2n, 2n + 1), float64 of what the library gives. Shapes broadcast."""
  position = np.asarray(position)
  x = np.broadcast_to(np.asarray(x, np.float32), (*position.shape, len(frequency) * 2))
  out = rope.rotate(x.reshape(1, -1, 1, x.shape[-1]), position.reshape(1, -1), frequency, 'interleaved')
  return np.asarray(out, np.float64).reshape(x.shape)


def some(*shape, seed=0):
  return np.random.default_rng(seed).normal(size=shape)


def softmax(scores):
  """Over all keys, float64 of what the library gives."""
  s = np.asarray(scores, np.float32)
  return np.asarray(jax.jit(attention.softmax)(s, np.ones(s.shape, bool)), np.float64)


def entropy(weights):
  """Of rows of weights, in nats."""
  return -np.sum(weights * np.log(np.maximum(weights, 1e-300)), axis=-1)


@pytest.mark.parametrize(
  ('spec', 'place'),
  [('learned', 'embed'), ('sinusoidal', 'embed'), ('rope', 'rotate'), ('yarn(factor=4)', 'rotate'), ('alibi', 'distance_bias'),
   ('t5', 'distance_bias'), ('nope', None)],
)  # fmt: skip
def test_each_kind_of_encoding_enters_at_one_place(spec, place):
  """RoPE leaves the embeddings alone, ALiBi the queries and keys too. There is no slot for values: nothing turns them."""
  record = encodings.make(spec, DIMS)
  assert [slot for slot in SLOTS if getattr(record, slot)] == ([place] if place else [])


@pytest.mark.parametrize(('frequency', 'length'), [(rope.frequencies(64), 128), (sinusoidal.frequencies(512), 512)])
def test_fast_pairs_have_shown_all_phases_in_training_and_slow_ones_have_not(frequency, length):
  """Beyond L a pair with wavelength up to L meets no phase farther from a trained one than half a step; the others do."""
  fast = frequency * length >= 2 * np.pi
  assert fast.sum() == {128: 11, 512: 256 - 133}[length]
  beyond = np.arange(length, 8 * length)
  for n, f in enumerate(frequency):
    seen = np.sort(np.arange(length) * f % (2 * np.pi))
    seen = np.concatenate([seen[-1:] - 2 * np.pi, seen, seen[:1] + 2 * np.pi])
    phase = beyond * f % (2 * np.pi)
    at = np.searchsorted(seen, phase).clip(1, len(seen) - 1)
    farthest = np.minimum(phase - seen[at - 1], seen[at] - phase).max()
    assert (farthest <= f / 2 * (1 + 1e-6)) == fast[n], (n, farthest, f)


def test_the_fastest_pair_has_gone_round_dozens_of_times_in_training():
  turns = [int(length * sinusoidal.frequencies(512)[0] / (2 * np.pi)) for length in (512, 2048)]
  assert turns == [81, 325]


def test_turning_keeps_lengths_and_adds_angles():
  """A_0 = 1, A_m A_n = A_(m+n), A_m^T A_n = A_(n-m): the arithmetic progression of angles is not an assumption."""
  f = rope.frequencies(8)
  matrix = {m: turned(np.eye(8), [m] * 8, f).T for m in (0, 1, 2, 3, 5, 40, 43)}
  near = dict(rtol=0, atol=1e-6)
  np.testing.assert_allclose(matrix[0], np.eye(8), **near)
  np.testing.assert_allclose(np.linalg.matrix_power(matrix[1], 5), matrix[5], **near)
  np.testing.assert_allclose(matrix[3] @ matrix[40], matrix[43], **near)
  for m, n in ((0, 3), (2, 5), (3, 43), (40, 43)):
    np.testing.assert_allclose(matrix[m].T @ matrix[n], matrix[n - m], **near)
    np.testing.assert_allclose(matrix[m].T @ matrix[m], np.eye(8), **near)
  assert all(np.abs(matrix[m] - matrix[n]).max() > 0.1 for m, n in itertools.combinations(matrix, 2))  # absolute positions are in it


def test_a_rope_score_is_a_sum_of_cosines_with_amplitudes_and_angles_from_content():
  q, k, f = some(16), some(16, seed=1), rope.frequencies(16)
  a, b = (x[::2] + 1j * x[1::2] for x in (q, k))
  for i, j in ((0, 0), (5, 2), (100, 3), (4000, 1)):
    score = turned(q, i, f) @ turned(k, j, f)
    assert score == pytest.approx((a * b.conj() * np.exp(1j * (i - j) * f)).sum().real, abs=2e-5)
    angle = np.angle(a) - np.angle(b)
    assert score == pytest.approx((np.abs(a) * np.abs(b) * np.cos((i - j) * f + angle)).sum(), abs=2e-5)


def test_a_rope_score_need_not_fall_with_distance():
  """A key turned ahead by r is found best at distance r."""
  q, f = some(32), rope.frequencies(32)
  for r in (0, 7, 200):
    scores = turned(q, np.arange(400), f) @ turned(q, r, f)
    assert np.argmax(scores) == r
    assert scores[r] == pytest.approx(q @ q, rel=1e-5)


def attended(spec, q, k, doc, pos=None):
  """Weights (T, S) of one head, read off values that are unit vectors."""
  n, width = q.shape
  pos = list(range(n)) if pos is None else pos
  return np.asarray(attention_of(spec, width)(*(x.astype(np.float32)[None, :, None] for x in (q, k)), np.array([pos]), np.array([doc])))


@functools.cache
def attention_of(spec, width):
  record = encodings.make(spec, Dims(1, 1, width, width, 64))

  @jax.jit
  def attend(q, k, pos, doc):
    where = Where.forward(pos, doc)
    tables = record.tables({}, where)
    q, k = record.rotate(tables, q, k)
    return attention.attend(record, tables, q, k, jnp.eye(q.shape[1])[None, :, None], where)[0, :, 0]

  return attend


def test_a_rope_weight_depends_on_how_many_keys_there_are():
  """Equal queries and equal keys everywhere: the score at distance 1 is one number, the weight is another in every row."""
  same = np.tile(some(16), (12, 1))
  weight = attended('rope', same, same, [1] * 12)
  at_one = np.diag(weight, -1)
  assert (np.diff(at_one) < 0).all()
  ratio = np.diag(weight, -1) / np.diag(weight)[1:]  # of two weights of a row: the denominator is gone
  np.testing.assert_allclose(ratio, ratio[0], rtol=1e-4)


def test_rope_reads_across_documents_unless_a_mask_separates_them():
  q, k = some(8, 16), some(8, 16, seed=1)
  one, two = [1] * 8, [1] * 4 + [2] * 4
  assert attended('rope', q, k, one)[4:, :4].max() > 0.05
  assert attended('rope', q, k, two)[4:, :4].max() == 0
  # With the mask, whether positions restart is all the same to it.
  np.testing.assert_allclose(attended('rope', q, k, two, [0, 1, 2, 3, 0, 1, 2, 3]), attended('rope', q, k, two), atol=1e-5)


@pytest.mark.parametrize('spec', ['rope', 'alibi'])
def test_no_encoding_hides_the_future_without_a_mask(spec):
  tokens = tiny.tokens(1, 8)
  pos, doc = tiny.row(8, total=8)
  for causal in (True, False):
    params = tiny.made(spec, num_layers=1, causal=causal)[2]
    run = tiny.forward(spec, num_layers=1, causal=causal)
    a, b = (run(params, t, pos, doc)[:, :7] for t in (tokens, tokens.at[:, 7].add(1) % 50))
    assert np.array_equal(a, b) if causal else tiny.error(a, b) > 1e-3


def test_minus_slope_times_distance_would_reward_the_future():
  """-m (i - j) is positive for j > i. Here the distance is |i - j|, and what may be seen is the mask's affair."""
  i, j = np.mgrid[:4, :4]
  slopes = np.asarray([0.1, 0.4])
  by_formula = -slopes[:, None, None] * (i - j)
  assert (by_formula[:, i < j] > 0).all()
  ours = np.asarray(alibi.bias(slopes, i - j))
  np.testing.assert_allclose(ours[:, i >= j], by_formula[:, i >= j], rtol=1e-6)
  assert (ours[:, i < j] < 0).all()
  np.testing.assert_allclose(ours[:, 3], [[-0.3, -0.2, -0.1, 0], [-1.2, -0.8, -0.4, 0]], rtol=1e-6)


def test_the_penalty_at_distance_5000_is_5000_slopes_whatever_the_training_length():
  for train_length in (64, 100_000):
    record = encodings.make('alibi', Dims(8, 8, 8, 64, train_length))
    penalty = np.asarray(record.distance_bias(None, jnp.asarray([5000])))[:, 0]
    np.testing.assert_allclose(penalty, -5000 * 2.0 ** -np.arange(1, 9), rtol=1e-6)
  assert (penalty[0], penalty[-1]) == (-2500, -19.53125)


def test_far_weights_of_a_steep_head_are_exactly_zero():
  """float32 ends at exp(-104): the steepest of eight heads tells nothing apart beyond 208 tokens."""
  weight = softmax(-0.5 * np.arange(1000))
  assert (weight[:170] > 0).all()
  assert (weight[208:] == 0).all()
  assert np.exp(np.float32(-104)) == 0 < np.exp(np.float32(-103))


@pytest.mark.parametrize(('slope', 'tokens'), [(1 / 2, 9), (1 / 4, 18), (1 / 16, 74), (1 / 64, 295), (1 / 256, 1179)])
def test_99_percent_of_alibis_weight_lies_within_ln_100_over_the_slope(slope, tokens):
  assert tokens == round(math.log(100) / slope)
  weight = softmax(-slope * np.arange(20_000))
  assert weight[: tokens + 1].sum() == pytest.approx(0.99, abs=0.005)
  assert weight[: tokens // 2].sum() < 0.91


def test_slopes_without_the_8_end_where_the_right_ones_begin():
  """2^(-h/H) for eight heads is .917 ... .5; 2^(-8h/H) is .5 ... 1/256."""
  wrong, right = 2.0 ** (-np.arange(1, 9) / 8), alibi.slopes(8)
  np.testing.assert_allclose(wrong[[0, -1]], [0.917, 0.5], atol=5e-4)
  assert (wrong.min(), right.max(), right.min()) == (0.5, 0.5, 1 / 256)
  margin = wrong.min() * 48  # nats that content must be better by at distance 48, in the head that sees farthest
  assert (margin, right.min() * 48) == (24, 0.1875)


def test_the_weights_printed_for_the_alibi_example_sum_to_nine_tenths():
  assert sum([0.269, 0.299, 0.332]) == pytest.approx(0.9)
  plain, biased = softmax([1.0, 0.9, 0.8]), softmax(np.array([1.0, 0.9, 0.8]) - 0.2 * np.array([2, 1, 0]))
  np.testing.assert_allclose(biased, [0.3006, 0.3322, 0.3672], atol=5e-5)
  np.testing.assert_allclose(biased, plain[::-1], rtol=1e-6)  # with these numbers the bias mirrors the weights


def test_content_outweighs_the_penalty_if_its_margin_is_larger_and_not_otherwise():
  """At distance 100 and slope 1/2 the margin is 50 nats. Unit-norm queries and keys times sqrt(64) cannot have more than 16."""
  far, near = -0.5 * 100, 0.0
  assert softmax([51 + far, near])[0] > 0.7
  assert softmax([49 + far, near])[0] < 0.3
  width = 64
  q = some(1000, width) / np.linalg.norm(some(1000, width), axis=1, keepdims=True) * math.sqrt(width)
  scores = q @ q.T / math.sqrt(width)
  assert scores.max() - scores.min() <= 2 * math.sqrt(width) + 1e-9 < 50


def test_three_quarters_of_the_pairs_of_a_window_lie_below_half_its_length():
  """A window of L tokens has L - d pairs at distance d: long distances are seldom trained."""
  length = 2048
  pairs = np.bincount(np.subtract.outer(np.arange(length), np.arange(length))[np.tril_indices(length)])
  assert np.array_equal(pairs, length - np.arange(length))
  assert pairs[: length // 2].sum() / pairs.sum() == pytest.approx(0.75, abs=5e-4)


def test_the_entropy_of_bounded_scores_grows_with_the_logarithm_of_the_keys():
  """Scores in [-c, c]: every weight lies between e^-2c / n and e^2c / n, and the entropy between ln n - 2c and ln n."""
  c = 1.5
  for n in (16, 256, 4096):
    weight = softmax(np.random.default_rng(n).uniform(-c, c, n))
    assert math.exp(-2 * c) <= n * weight.min() <= n * weight.max() <= math.exp(2 * c)
    assert math.log(n) - 2 * c <= entropy(weight) <= math.log(n)
  assert entropy(softmax(np.zeros(256))) - entropy(softmax(np.zeros(64))) == pytest.approx(math.log(4), abs=1e-5)
  gaussian = [entropy(softmax(some(2000, n))).mean() for n in (64, 256)]
  np.testing.assert_allclose(gaussian, [3.69, 5.05], atol=0.01)
  sharp = np.where(np.arange(4096) == 7, 20.0, 0.0)  # a head that has found its key need not notice
  assert entropy(softmax(sharp)) < 1e-3


@pytest.mark.parametrize(('slope', 'nats'), [(1 / 2, 1.703), (1 / 256, 6.545)])
def test_the_entropy_of_alibi_without_content_stays_below_a_constant(slope, nats):
  limit = -math.log(1 - math.exp(-slope)) + slope * math.exp(-slope) / (1 - math.exp(-slope))
  assert limit == pytest.approx(nats, abs=5e-4)
  found = [entropy(softmax(-slope * np.arange(n))) for n in (64, 1024, 8192)]
  assert (np.diff(found) > -1e-6).all()
  assert found[-1] == pytest.approx(limit, abs=1e-3)


def test_a_score_of_sums_has_four_terms_and_the_positional_one_is_relative_only_for_some_weights():
  """(e_i + p_i)^T M (e_j + p_j), M = W_Q^T W_K. p_i^T M p_j is a function of i - j if M commutes with the shifts, as 1 does."""
  p = np.asarray(sinusoidal.table(jnp.arange(40), 16), np.float64)
  e, m = some(40, 16), some(16, 16, seed=1)
  terms = [e @ m @ e.T, e @ m @ p.T, p @ m @ e.T, p @ m @ p.T]
  np.testing.assert_allclose(sum(terms), (e + p) @ m @ (e + p).T, atol=1e-9)
  spread = [max(np.ptp(np.diag(p @ x @ p.T, -d)) for d in (1, 5, 20)) for x in (np.eye(16), m)]
  assert spread[0] < 1e-5
  assert spread[1] > 1
  np.testing.assert_allclose((p @ p.T)[20, 15], np.cos(5 * sinusoidal.frequencies(16)).sum(), atol=1e-5)


def test_phases_rounded_to_bfloat16_make_a_score_depend_on_absolute_positions():
  q, k, f = some(64), some(64, seed=1), rope.frequencies(64)

  def score(shift, dtype):
    i, j = (np.outer([position + shift], f) for position in (9, 4))
    parts = [np.asarray(jnp.asarray(x, dtype), np.float64) for angle in (i, j) for x in (np.cos(angle), np.sin(angle))]
    (ci, si, cj, sj), (q0, q1, k0, k1) = parts, (q[::2], q[1::2], k[::2], k[1::2])
    return float(((q0 * ci - q1 * si) * (k0 * cj - k1 * sj) + (q0 * si + q1 * ci) * (k0 * sj + k1 * cj)).sum())

  spread = {dtype: np.ptp([score(shift, dtype) for shift in range(0, 4096, 64)]) for dtype in (jnp.float32, jnp.bfloat16)}
  assert spread[jnp.float32] < 1e-5
  assert spread[jnp.bfloat16] > 1e-2


def test_keys_turned_under_another_length_give_other_scores():
  """Dynamic NTK: a key cached as it was turned at 128 tokens does not fit a query turned at 256."""
  q, k, f = some(64), some(64, seed=1), rope.frequencies(64)
  short, long = (frequency_maps.dynamic_ntk(f, factor=2, original_length=128, length=n)[0] for n in (128, 256))
  right = turned(q, 255, long) @ turned(k, 100, long)
  stale = turned(q, 255, long) @ turned(k, 100, short)
  assert abs(stale - right) > 0.1
  # Nor is the stale score a function of the distance.
  assert abs(turned(q, 155, long) @ turned(k, 0, short) - stale) > 0.1
  assert turned(q, 155, long) @ turned(k, 0, long) == pytest.approx(right, abs=1e-4)


def test_interpolation_moves_neighbours_together_and_yarn_does_not():
  """Angles between neighbours in the fastest pair, and the largest angle of the slowest pair over s L tokens as a share of L's."""
  f, length, s = rope.frequencies(128), 4096, 8
  maps = {
    'rope': f,
    'linear': frequency_maps.linear(f, factor=s)[0],
    'yarn': frequency_maps.yarn(f, factor=s, base=1e4, original_length=length)[0],
    'reversed': frequency_maps.reversed_by_parts(f, factor=s, base=1e4, original_length=length)[0],
  }
  assert {name: (g[0], pytest.approx(s * g[-1] / f[-1])) for name, g in maps.items()} == {
    'rope': (1, 8), 'linear': (1 / 8, 1), 'yarn': (1, 1), 'reversed': (1 / 8, 8),
  }  # fmt: skip


def test_a_table_of_rows_that_is_read_past_its_end_answers_in_jax():
  """Why the length is checked before: indexing clamps, and jnp.take gives NaN."""
  rows = jnp.arange(4.0)
  assert rows[jnp.asarray(100)] == 3
  assert np.isnan(jax.jit(jnp.take)(rows, jnp.asarray(100)))
