"""The library against the printed values of the specification, and against the float64 oracle over grids."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from pe_jax import encodings
from pe_jax.encodings import alibi, base, frequency_maps, phases, rope, sinusoidal, t5

WIDTHS = (4, 6, 16, 64, 128)
BASES = (10.0, 1e4, 5e5)
FACTORS = (1.0, 2.0, 3.3, 4.0, 8.0, 32.0)
LENGTHS = (64, 128, 1000, 4096, 8192)
MILLION = 2**20
LAYOUTS = ('half', 'interleaved')


def near(actual, expected, atol=1e-6):
  actual, expected = np.asarray(actual), np.asarray(expected)
  assert actual.shape == expected.shape
  np.testing.assert_allclose(actual.astype(np.float64), expected, rtol=0, atol=atol)


def relatively_near(actual, expected, rtol):
  actual, expected = np.asarray(actual), np.asarray(expected)
  assert actual.shape == expected.shape
  np.testing.assert_allclose(actual.astype(np.float64), expected, rtol=rtol, atol=0)


def same_map(actual, expected):
  """Frequencies are made in float64 on the host: a float32 one would be wrong by whole radians at a million."""
  assert np.asarray(actual[0]).dtype == np.float64
  relatively_near(actual[0], expected[0], rtol=1e-12)
  assert float(actual[1]) == pytest.approx(expected[1], rel=1e-6)


def softmax(scores):
  weights = np.exp(scores - np.max(scores, -1, keepdims=True))
  return weights / weights.sum(-1, keepdims=True)


def int32(values):
  return jnp.asarray(np.asarray(values), jnp.int32)


def turn(x, position, frequency, layout='half', attention_factor=1.0):
  """rope.rotate for one vector (K,) at one position."""
  x_BTHK = jnp.asarray(np.asarray(x, np.float32)[None, None, None])
  return np.asarray(rope.rotate(x_BTHK, int32([[position]]), frequency, layout, attention_factor))[0, 0, 0]


def test_sinusoidal_of_width_four_has_the_printed_values():
  near(sinusoidal.table(int32([0, 1]), 4), [[0, 1, 0, 1], [0.841471, 0.540302, 0.0099998, 0.99995]])


def test_sinusoidal_of_width_eight_has_the_printed_values():
  printed = [0.841471, 0.540302, 0.099833, 0.995004, 0.01, 0.99995, 0.001, 1]
  near(sinusoidal.table(int32([1]), 8)[0], printed, atol=1.5e-6)


@pytest.mark.parametrize('width', [4, 64, 128])
def test_every_sinusoidal_row_has_norm_root_of_half_the_width(width):
  table = np.asarray(sinusoidal.table(int32(np.arange(0, 5001, 50)), width), np.float64)
  relatively_near(np.linalg.norm(table, axis=-1), np.full(101, math.sqrt(width / 2)), rtol=1e-6)


@pytest.mark.parametrize('shift', [1, 7, 1000])
def test_a_shift_of_sinusoidal_positions_is_a_block_rotation(shift):
  positions = np.array([0, 1, 5, 63, 512, 4000])
  before = np.asarray(sinusoidal.table(int32(positions), 16), np.float64)
  after = np.asarray(sinusoidal.table(int32(positions + shift), 16), np.float64)
  for i, omega in enumerate(oracle.frequencies(16)):
    cos, sin = math.cos(shift * omega), math.sin(shift * omega)
    block = np.array([[cos, sin], [-sin, cos]])
    near(after[:, 2 * i : 2 * i + 2], before[:, 2 * i : 2 * i + 2] @ block.T, atol=3e-6)


@pytest.mark.parametrize('layout', ['interleaved', 'concat', 'tensor2tensor'])
@pytest.mark.parametrize('width', [4, 6, 128])
def test_sinusoidal_equals_its_formula(width, layout):
  rng = np.random.default_rng(width)
  positions = np.concatenate([[0, 1, 2, 4999, 5000], rng.integers(0, 5001, 20)])
  for b in BASES:
    table = sinusoidal.table(int32(positions), width, base=b, layout=layout)
    assert table.dtype == np.float32
    near(table, oracle.sinusoidal(positions, width, b, layout))


def learned(max_length, width):
  """(encoding, its parameters) for a model of that width."""
  dims = base.Dims(num_heads=1, num_kv_heads=1, head_dim=width, embed_dim=width, train_length=max_length)
  encoding = encodings.make(f'learned(max_length={max_length})', dims)
  return encoding, encoding.init(jax.random.key(0))


def test_learned_adds_the_row_of_the_position():
  encoding, params = learned(max_length=2, width=2)
  rows = jnp.asarray([[0.0, 0.4], [0.5, 0.1]], jnp.float32)
  params = jax.tree.map(lambda leaf: rows.reshape(leaf.shape), params)
  x_BTD = jnp.asarray([[[0.2, 0.1], [0.7, 0.3]]], jnp.float32)
  ids, docs = int32([[0, 1]]), int32([[1, 1]])
  where = base.Where.forward(ids, docs)
  near(encoding.embed(params, x_BTD, where), [[[0.2, 0.5], [1.2, 0.4]]])


def test_learned_has_exactly_max_length_times_width_parameters():
  _, params = learned(max_length=24, width=10)
  assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 24 * 10


def test_rope_turns_one_to_four_into_the_printed_values():
  frequency = rope.frequencies(4)
  x = [1.0, 2.0, 3.0, 4.0]
  near(turn(x, 1, frequency, 'half'), [-1.984111, 1.959901, 2.462378, 4.0198], atol=1.5e-6)
  near(turn(x, 1, frequency, 'interleaved'), [-1.14264, 1.922076, 2.959851, 4.0298], atol=1.5e-6)


def test_rope_turns_three_rows_into_the_printed_values():
  x = np.array([[1, 0, 0, 1], [0, 1, 1, 0], [1, 1, 0.5, -0.5]], np.float32)
  turned = rope.rotate(jnp.asarray(x[None, :, None]), int32([[0, 1, 2]]), rope.frequencies(4), 'interleaved')
  printed = [x[0], [-0.841471, 0.540302, 0.999950, 0.010000], [-1.325444, 0.493151, 0.509899, -0.489901]]
  near(turned[0, :, 0], printed)


@pytest.mark.parametrize('positions', [(1, 2), (11, 12)])
def test_rope_score_of_equal_vectors_one_apart_is_cos_one(positions):
  q, k = (turn([1.0, 0.0], position, rope.frequencies(2)) for position in positions)
  near(q @ k, 0.540302)


def test_rope_score_is_not_in_general_a_cosine_of_the_distance():
  k = turn([0.0, 1.0], 10, rope.frequencies(2))
  scores = np.array([turn([1.0, 0.0], 10 + distance, rope.frequencies(2)) @ k for distance in range(4)])
  near(scores, [0, 0.841, 0.909, 0.141], atol=6e-4)
  near(scores, np.sin(np.arange(4)))


def test_rope_frequencies_equal_their_formula():
  for d, b in itertools.product((2, *WIDTHS), BASES):
    frequency = rope.frequencies(d, b)
    assert isinstance(frequency, np.ndarray)
    assert frequency.dtype == np.float64
    relatively_near(frequency, oracle.frequencies(d, b), rtol=1e-13)
  assert np.array_equal(rope.frequencies(64), rope.frequencies(64, 10000.0))


@pytest.mark.parametrize('layout', LAYOUTS)
@pytest.mark.parametrize(('head_dim', 'd'), [(4, 4), (6, 6), (128, 128), (64, 16)])
def test_rope_equals_its_formula(head_dim, d, layout):
  rng = np.random.default_rng(head_dim + d)
  position = np.array([[0, 1, 2, 4999, 5000], rng.integers(0, 5001, 5)])
  for b, attention_factor in ((10.0, 1.0), (1e4, 1.277259), (5e5, 1.0)):
    # |x| ≤ .5 / attention_factor: cos and sin, each right to 1e-6, then leave at most 1e-6
    x = (rng.uniform(-0.5, 0.5, (2, 5, 3, head_dim)) / attention_factor).astype(np.float32)
    frequency = rope.frequencies(d, b)
    turned = np.asarray(rope.rotate(jnp.asarray(x), int32(position), frequency, layout, attention_factor))
    assert turned.shape == x.shape
    for row, head in itertools.product(range(2), range(3)):
      expected = oracle.rotate(x[row, :, head], position[row], oracle.frequencies(d, b), layout, attention_factor)
      near(turned[row, :, head], expected)


def test_the_two_rope_layouts_differ_by_a_permutation_of_dims():
  x = np.random.default_rng(0).uniform(-0.5, 0.5, (2, 5, 3, 128)).astype(np.float32)
  position = int32([[0, 1, 2, 77, 1000], [5000, 4999, 3, 2, 1]])
  to_half = np.concatenate([np.arange(0, 128, 2), np.arange(1, 128, 2)])
  interleaved = np.asarray(rope.rotate(jnp.asarray(x), position, rope.frequencies(128), 'interleaved'))
  half = rope.rotate(jnp.asarray(x[..., to_half]), position, rope.frequencies(128), 'half')
  near(half, interleaved[..., to_half])


def test_rope_at_position_zero_changes_nothing():
  x = np.random.default_rng(1).normal(size=(2, 5, 3, 128)).astype(np.float32)
  assert np.array_equal(rope.rotate(jnp.asarray(x), int32(np.zeros((2, 5))), rope.frequencies(128)), x)


def test_a_quarter_of_head_dim_sixty_four_turns_at_the_printed_frequencies():
  printed = [1, 0.316228, 0.1, 0.0316228, 0.01, 0.00316228, 0.001, 0.000316228]
  relatively_near(rope.frequencies(16), printed, rtol=2e-6)


@pytest.mark.parametrize('attention_factor', [1.0, 1.25])
@pytest.mark.parametrize('layout', LAYOUTS)
def test_partial_rope_leaves_the_other_dims_bit_identical(layout, attention_factor):
  x = np.random.default_rng(2).normal(size=(2, 5, 3, 64)).astype(np.float32)
  position = int32([[1, 2, 3, 4000, 5000], [5, 6, 7, 8, 9]])
  turned = np.asarray(rope.rotate(jnp.asarray(x), position, rope.frequencies(16), layout, attention_factor))
  assert np.array_equal(turned[..., 16:], x[..., 16:])
  assert np.all(np.any(turned[..., :16] != x[..., :16], axis=-1))


def test_linear_puts_position_402_at_100_and_a_half():
  frequency, attention_factor = frequency_maps.linear(rope.frequencies(64), factor=4)
  cos, sin = phases.cos_sin(int32([400, 402]), frequency)
  near(cos[:, 0], [math.cos(100), 0.999521])
  near(sin[:, 0], [math.sin(100), math.sin(100.5)])
  assert attention_factor == 1


@pytest.mark.parametrize('d', WIDTHS)
def test_linear_equals_its_formula(d):
  for b, s in itertools.product(BASES, FACTORS):
    same_map(frequency_maps.linear(rope.frequencies(d, b), factor=s), oracle.linear(oracle.frequencies(d, b), s))


@pytest.mark.parametrize('d', WIDTHS)
def test_ntk_equals_its_formula(d):
  for b, s in itertools.product(BASES, FACTORS):
    same_map(frequency_maps.ntk(rope.frequencies(d, b), factor=s), oracle.ntk(oracle.frequencies(d, b), s, b))


@pytest.mark.parametrize('d', WIDTHS)
def test_ntk_keeps_the_fastest_pair_and_divides_the_slowest_by_the_factor(d):
  for b, s in itertools.product(BASES, FACTORS):
    plain = rope.frequencies(d, b)
    mapped, _ = frequency_maps.ntk(plain, factor=s)
    assert mapped[0] == plain[0] == 1
    assert mapped[-1] == pytest.approx(plain[-1] / s, rel=1e-12)


@pytest.mark.parametrize(('length', 'printed'), [(100, 10000.0), (129, 10161.33), (256, 31082.24)])
def test_dynamic_ntk_reaches_the_printed_base(length, printed):
  mapped, _ = frequency_maps.dynamic_ntk(rope.frequencies(64), factor=2, original_length=128, length=length)
  assert mapped[1] ** (-64 / 2) == pytest.approx(printed, abs=0.0051)
  assert mapped[-1] ** (-64 / 62) == pytest.approx(printed, abs=0.0051)


@pytest.mark.parametrize('d', WIDTHS)
def test_dynamic_ntk_equals_its_formula(d):
  for b, s, trained, ratio in itertools.product(BASES, FACTORS, LENGTHS, (0.5, 1, 2, 3.5, 32)):
    sizes = dict(original_length=trained, length=int(ratio * trained) + (ratio == 2))
    expected = oracle.dynamic_ntk(oracle.frequencies(d, b), s, b, **sizes)
    same_map(frequency_maps.dynamic_ntk(rope.frequencies(d, b), factor=s, **sizes), expected)


@pytest.mark.parametrize('fraction', [0.01, 0.99, 1])
def test_dynamic_ntk_is_rope_bit_for_bit_up_to_the_trained_length(fraction):
  # 1.6·1536/1536 − (1.6 − 1) is not 1 in floating point: the formula alone would not do
  for d, b, s, trained in itertools.product(WIDTHS, BASES, (1.6, *FACTORS), (1536, *LENGTHS)):
    plain = rope.frequencies(d, b)
    sizes = dict(original_length=trained, length=int(fraction * trained))
    mapped, attention_factor = frequency_maps.dynamic_ntk(plain, factor=s, **sizes)
    assert np.array_equal(mapped, plain)
    assert attention_factor == 1


@pytest.mark.parametrize(
  ('factor', 'printed', 'logits'),
  [(4, 1.138629, 1.296477), (8, 1.207944, 1.459129), (16, 1.277259, 1.631390), (1, 1.0, 1.0)],
)
def test_yarn_attention_factor_has_the_printed_values(factor, printed, logits):
  _, m = frequency_maps.yarn(rope.frequencies(64), factor=factor, base=1e4, original_length=128)
  assert m == pytest.approx(printed, abs=1e-6)
  assert m * m == pytest.approx(logits, abs=1e-6)


@pytest.mark.parametrize('factor', [2, 4, 16, 32])
def test_yarn_of_llama_two_keeps_pairs_to_20_and_divides_those_from_46(factor):
  plain = rope.frequencies(128)
  mapped, _ = frequency_maps.yarn(plain, factor=factor, base=1e4, original_length=4096)
  assert np.array_equal(mapped[:21], plain[:21])
  relatively_near(mapped[46:], plain[46:] / factor, rtol=1e-12)
  between = plain[21:46] / mapped[21:46]
  assert np.all((between > 1) & (between < factor))
  assert np.all(np.diff(between) > 0)


def test_yarn_divides_the_slowest_pair_of_64_dims_by_four():
  plain = rope.frequencies(64)
  mapped, _ = frequency_maps.yarn(plain, factor=4, base=1e4, original_length=128)
  relatively_near(plain[-1], 1.333521e-4, rtol=1e-6)
  relatively_near(mapped[-1], 3.333804e-5, rtol=1e-6)


@pytest.mark.parametrize('d', WIDTHS)
@pytest.mark.parametrize('fields', [{}, {'truncate': False}, {'ramp': 'rotations'}, {'beta_fast': 16.0, 'beta_slow': 2.0}], ids=str)
def test_yarn_equals_its_formula(d, fields):
  betas = {name: value for name, value in fields.items() if name.startswith('beta')}
  for b, s, trained in itertools.product(BASES, FACTORS, LENGTHS):
    low, high = oracle.yarn_range(d, b, trained, truncate=fields.get('truncate', True), **betas)
    if low > high:
      continue  # only base 10 with 4 dims, not truncated: high is capped below low and the formula has no meaning
    sizes = dict(factor=s, base=b, original_length=trained)
    expected = oracle.yarn(oracle.frequencies(d, b), **sizes, **fields)
    same_map(frequency_maps.yarn(rope.frequencies(d, b), **sizes, **fields), expected)


def test_yarn_ramps_over_indices_and_over_rotations_differ_only_between_the_ends():
  plain = rope.frequencies(128)
  sizes = dict(factor=8, base=1e4, original_length=4096)
  by_index, _ = frequency_maps.yarn(plain, **sizes)
  by_rotations, _ = frequency_maps.yarn(plain, **sizes, ramp='rotations')
  differs = np.flatnonzero(~np.isclose(by_index, by_rotations, rtol=1e-9, atol=0))
  assert differs.min() == 21
  assert differs.max() == 45


def test_a_given_yarn_attention_factor_replaces_the_formula():
  sizes = dict(factor=8, base=1e4, original_length=4096)
  plain = rope.frequencies(64)
  formula, m = frequency_maps.yarn(plain, **sizes)
  given, one = frequency_maps.yarn(plain, **sizes, attention_factor=1.0)
  _, most = frequency_maps.yarn(plain, **sizes, attention_factor=1.5, mscale=1.0, mscale_all_dim=0.5)
  assert np.array_equal(formula, given)
  assert (one, most) == (1.0, 1.5)
  assert m > 1.2


@pytest.mark.parametrize('pair', [(1.0, 1.0), (0.707, 0.707), (1.0, 0.707), (0.707, 1.0), (0.1, 2.0)])
def test_a_pair_of_mscales_gives_the_quotient_of_two_attention_factors(pair):
  for s in FACTORS:
    sizes = dict(factor=s, base=1e4, original_length=4096, mscale=pair[0], mscale_all_dim=pair[1])
    expected = (0.1 * pair[0] * math.log(s) + 1) / (0.1 * pair[1] * math.log(s) + 1)
    _, m = frequency_maps.yarn(rope.frequencies(64), **sizes)
    assert m == pytest.approx(expected, abs=1e-6)
    same_map(frequency_maps.yarn(rope.frequencies(64), **sizes), oracle.yarn(oracle.frequencies(64), **sizes))


def test_llama3_divides_the_pairs_of_a_small_model_by_the_printed_numbers():
  plain = rope.frequencies(64)
  mapped, attention_factor = frequency_maps.llama3(plain, factor=8, low=1, high=4, original_length=128)
  printed = [1.0] * 6 + [1.12366, 1.598253, 2.339117, 3.585459, 5.971417] + [8.0] * 21
  near(plain / mapped, printed)
  assert attention_factor == 1


def test_llama3_divides_the_pairs_of_llama_3_2_by_the_printed_numbers():
  plain = rope.frequencies(64, 5e5)
  mapped, _ = frequency_maps.llama3(plain, factor=32, original_length=8192)
  near(plain / mapped, [1.0] * 15 + [1.651329, 3.292262, 9.666729] + [32.0] * 14)


@pytest.mark.parametrize('d', WIDTHS)
def test_llama3_equals_its_formula(d):
  for b, s, trained, (low, high) in itertools.product(BASES, FACTORS, LENGTHS, ((1, 4), (1, 32), (2, 8))):
    fields = dict(factor=s, low=float(low), high=float(high), original_length=trained)
    same_map(frequency_maps.llama3(rope.frequencies(d, b), **fields), oracle.llama3(oracle.frequencies(d, b), **fields))


def assert_rope(mapped, plain):
  assert np.array_equal(mapped[0], plain)
  assert mapped[1] == 1


@pytest.mark.parametrize(('d', 'b'), list(itertools.product(WIDTHS, BASES)))
def test_every_map_with_factor_one_is_rope_bit_for_bit(d, b):
  plain = rope.frequencies(d, b)
  assert_rope(frequency_maps.linear(plain, factor=1.0), plain)
  assert_rope(frequency_maps.ntk(plain, factor=1.0), plain)
  assert_rope(frequency_maps.llama3(plain, factor=1.0, original_length=128), plain)
  for fields in ({}, {'truncate': False}, {'ramp': 'rotations'}, {'mscale': 1.0, 'mscale_all_dim': 0.707}):
    assert_rope(frequency_maps.yarn(plain, factor=1.0, base=b, original_length=128, **fields), plain)


@pytest.mark.parametrize(
  ('num_heads', 'printed'),
  [
    (4, [0.25, 0.0625, 0.015625, 0.00390625]),
    (6, [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]),
    (8, [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625]),
    (
      12,
      [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625, 0.707107, 0.353553, 0.176777, 0.088388],
    ),
  ],
)
def test_alibi_slopes_have_the_printed_values(num_heads, printed):
  near(alibi.slopes(num_heads), printed)


def test_alibi_slopes_equal_their_formula_for_every_number_of_heads():
  for num_heads in range(1, 65):
    slopes = alibi.slopes(num_heads)
    assert isinstance(slopes, np.ndarray)
    assert slopes.dtype == np.float32
    relatively_near(slopes, oracle.alibi_slopes(num_heads), rtol=1e-6)


@pytest.mark.parametrize('shape', [(), (3, 5), (2, 3, 4)])
def test_alibi_bias_is_minus_slope_times_distance(shape):
  distance = np.random.default_rng(3).integers(0, 5001, shape)
  for num_heads in (1, 6, 8):
    bias = alibi.bias(alibi.slopes(num_heads), int32(distance))
    relatively_near(bias, oracle.alibi_bias(oracle.alibi_slopes(num_heads), distance), rtol=1e-6)


def test_alibi_turns_the_printed_scores_and_weights_around():
  scores = np.array([1.0, 0.9, 0.8])
  biased = scores + np.asarray(alibi.bias(np.array([0.2], np.float32), int32([2, 1, 0])))[0]
  near(biased, [0.6, 0.7, 0.8])
  near(softmax(biased), [0.3006, 0.3322, 0.3672], atol=5.1e-5)
  near(softmax(scores), [0.3672, 0.3322, 0.3006], atol=5.1e-5)


@pytest.mark.parametrize('head_dim', [1, 8, 64])
def test_alibi_weights_without_content_do_not_depend_on_head_width(head_dim):
  q, k = np.zeros((1, head_dim)), np.zeros((4, head_dim))
  bias = np.asarray(alibi.bias(np.array([0.25], np.float32), int32([[3, 2, 1, 0]])))[0]
  printed = [[0.165296, 0.212244, 0.272527, 0.349932]]
  near(softmax(q @ k.T / math.sqrt(head_dim) + bias), printed)
  near(oracle.attention(q, k, np.eye(4), bias, np.ones((1, 4), bool)), printed)


def test_t5_buckets_have_the_printed_values():
  printed = {distance: distance for distance in range(16)}
  printed |= {16: 16, 17: 16, 18: 16, 19: 17, 20: 17, 31: 21, 32: 21, 63: 26, 64: 26, 100: 30, 112: 30}
  printed |= {113: 31, 127: 31, 128: 31, 129: 31, 100000: 31, -1: 0, -5: 0, -1000: 0}
  assert np.array_equal(t5.bucket(int32(list(printed))), list(printed.values()))


@pytest.mark.parametrize(('num_buckets', 'max_distance'), [(32, 128), (32, 256), (32, 2048), (16, 64), (8, 20), (64, 1024), (2, 128)])
def test_t5_buckets_equal_their_formula_to_a_hundred_thousand(num_buckets, max_distance):
  buckets = np.asarray(t5.bucket(int32(np.arange(-10, 100_001)), num_buckets, max_distance))
  expected = [oracle.t5_bucket(distance, num_buckets, max_distance) for distance in range(-10, 100_001)]
  assert buckets.dtype == np.int32
  assert np.array_equal(buckets, expected)


def test_t5_buckets_keep_the_shape_of_the_distances():
  for shape in ((), (2, 3, 4)):
    assert t5.bucket(jnp.zeros(shape, jnp.int32)).shape == shape


def assert_accurate(cos_sin, positions, frequency):
  angle = positions[..., None].astype(np.float64) * frequency
  for actual, expected in zip(cos_sin, (np.cos(angle), np.sin(angle))):
    assert actual.dtype == np.float32
    near(actual, expected)


def some_positions(seed):
  ends = [0, 1, 2, 1023, 1024, 1025, 2047, 2048, 4095, 32767, MILLION - 1025, MILLION - 1024, MILLION - 1, MILLION]
  return np.concatenate([ends, np.random.default_rng(seed).integers(0, MILLION + 1, 4000)])


@pytest.mark.parametrize('d', [64, 128])
@pytest.mark.parametrize('b', [1e4, 5e5])
def test_phases_are_right_to_a_millionth_up_to_a_million(d, b):
  positions, frequency = some_positions(d), rope.frequencies(d, b)
  assert_accurate(phases.cos_sin(int32(positions), frequency), positions, frequency)


def test_phases_are_right_to_a_millionth_under_jit():
  positions, frequency = some_positions(5), rope.frequencies(64)
  assert_accurate(jax.jit(lambda p: phases.cos_sin(p, frequency))(int32(positions)), positions, frequency)


def test_phases_of_mapped_frequencies_are_right_to_a_millionth():
  positions, plain = some_positions(6), rope.frequencies(64)
  for frequency, _ in (
    frequency_maps.linear(plain, factor=3.0),
    frequency_maps.ntk(plain, factor=8.0),
    frequency_maps.yarn(plain, factor=8.0, base=1e4, original_length=128),
  ):
    assert_accurate(phases.cos_sin(int32(positions), frequency), positions, frequency)


@pytest.mark.parametrize('shape', [(), (2, 3, 4)])
def test_phases_take_positions_of_any_shape(shape):
  positions = np.random.default_rng(7).integers(0, MILLION + 1, shape)
  assert_accurate(phases.cos_sin(int32(positions), rope.frequencies(16)), np.asarray(positions), rope.frequencies(16))


@pytest.mark.parametrize('platform', ['cpu', 'cuda', 'tpu'])
def test_the_program_of_phases_has_no_matrix_product(platform):
  """Matrix units round to bfloat16 or TF32; integer products are the same everywhere."""
  lowered = jax.jit(lambda p: phases.cos_sin(p, rope.frequencies(64))).trace(jnp.arange(8)).lower(lowering_platforms=(platform,))
  assert 'dot' not in lowered.as_text()
