"""Field cases: maps of rotary frequencies, biases and windows, with the numbers that were computed for them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from attending import alone, attended, dims, turned

from pe_jax import attention, encodings
from pe_jax import cache as kv
from pe_jax.encodings import alibi, fire, frequency_maps, kerple, rope, t5
from pe_jax.encodings.base import scores
from pe_jax.errors import ConfigError
from pe_jax.selfcheck import properties


@pytest.mark.parametrize(
  ('fields', 'squared'),
  [
    ('factor=8', 1.459129),
    ('factor=4', 1.296477),
    ('factor=16', 1.631390),
    ('factor=1', 1),
    ('factor=8, attention_factor=1.5', 2.25),
    ('factor=8, attention_factor=1.0', 1),
  ],
)
def test_p15_the_attention_factor_of_yarn_multiplies_a_score_by_its_square_once(fields, squared):
  """Equal unit vectors at position 0: the score is 1.207944^2 = 1.459129 of the plain one at s = 8; a given factor takes its place.

  More: tests/encodings/test_values.py::test_yarn_attention_factor_has_the_printed_values
  """
  unit = jnp.eye(64)[0].reshape(1, 1, 1, 64)
  *_, q, k = turned(f'yarn({fields})', dims(), alone(1), unit, unit)
  ratio = float(scores(q, k).ravel()[0] / scores(unit, unit).ravel()[0])
  assert ratio == 1 if squared == 1 else ratio == pytest.approx(squared, rel=1e-6)


def test_p16_yarn_is_on_at_every_length_and_a_given_factor_wins():
  """Static YaRN with factor 4 divides the slowest pair to 3.333804e-5 at length 128 as at 256; no second length can switch it off.

  More: tests/test_hf_config.py::test_a_factor_that_the_lengths_contradict_is_told
  """
  mapped_F, _ = frequency_maps.yarn(rope.frequencies(64), factor=4, base=1e4, original_length=128)
  assert mapped_F[-1] == pytest.approx(3.333804e-5, rel=1e-6)
  x = jnp.ones((1, 3, 1, 64))
  for length in (128, 256):
    enc = encodings.make('yarn(factor=4)', dims(), length)
    assert enc.spec == 'yarn(factor=4)'
    (cos, _), _ = enc.tables({}, alone(3))
    np.testing.assert_allclose(cos[0, 2, -1] / cos[0, 0, -1], np.cos(2 * mapped_F[-1]), rtol=1e-6)
    *_, q, _ = turned('yarn(factor=4)', dims(), alone(3), x, x)
    assert not np.allclose(q, turned('rope', dims(), alone(3), x, x)[2])


def test_p17_a_dynamic_base_is_that_of_the_declared_length_in_the_cache_too():
  """The base is 10000 up to L = 128, 10161.33 at 129, 31082.24 at 256; cached decoding equals one forward under the declared length.

  More: tests/test_decode.py::test_a_dynamic_map_decodes_across_the_training_length_as_one_forward
  """
  plain_F = rope.frequencies(64)
  for length, base in ((100, 10_000), (128, 10_000), (129, 10_161.33), (256, 31_082.24)):
    mapped_F, _ = frequency_maps.dynamic_ntk(plain_F, factor=2, original_length=128, length=length)
    assert mapped_F[-1] ** (-64 / 62) == pytest.approx(base, rel=1e-6)
    assert length > 128 or np.array_equal(mapped_F, plain_F)
  assert properties.cached_decoding_equals_one_forward_under_the_declared_length('dynamic_ntk(factor=2)') < 1e-4
  config, enc, _ = tiny.made('dynamic_ntk(factor=2)')
  with pytest.raises(TypeError, match='length'):
    kv.create(config.model, enc, 1, 32)


def test_p19_alibi_has_the_authors_slopes_for_every_number_of_heads():
  """Slopes of 4, 6, 8 and 12 heads as the authors' code gives them; the bias is 0 at distance 0 and falls with it.

  More: tests/encodings/test_values.py::test_alibi_slopes_equal_their_formula_for_every_number_of_heads
  """
  four, eight = [0.25, 0.0625, 0.015625, 0.00390625], [2.0**-n for n in range(1, 9)]
  assert alibi.slopes(4).tolist() == four
  assert alibi.slopes(6).tolist() == [*four, 0.5, 0.125]
  assert alibi.slopes(8).tolist() == eight
  np.testing.assert_allclose(alibi.slopes(12), [*eight, 0.707107, 0.353553, 0.176777, 0.088388], rtol=1e-5)
  bias_HX = np.asarray(alibi.bias(alibi.slopes(6), jnp.arange(50)))
  assert not bias_HX[:, 0].any()
  assert (np.diff(bias_HX) < 0).all()


def test_p20_the_bias_is_made_of_integer_distances_in_float32():
  """Slope .5 over 4096 distances gives 4096 biases, neighbours differ by the slope exactly, and a bfloat16 model has them in float32 too.

  More: tests/encodings/test_contract.py::test_bfloat16_activations_keep_float32_phases_and_biases
  """
  bias_X = np.asarray(alibi.bias([0.5], jnp.arange(4096)))[0]
  assert bias_X.dtype == np.float32
  assert len(np.unique(bias_X)) == 4096
  assert np.diff(bias_X).tolist() == [-0.5] * 4095
  _, enc, _ = tiny.made('alibi', dtype='bfloat16')
  assert enc.distance_bias(None, 4095 - jnp.arange(4090, 4096)).dtype == jnp.float32


@pytest.mark.parametrize('spec', ['hard_alibi(windows=(3,))', 'lm_infinite(first=0, window=3)', 'sinks(first=0, window=3)'])
def test_p37_a_window_of_three_is_the_token_itself_and_two_before_it(spec):
  """Uniform scores over values 0 .. 4 give 0, .5, 1, 2, 3 under every window of 3; a cache has a slot a token, so that nothing wraps.

  More: tests/encodings/test_wrappers.py::test_hard_alibi_sees_its_last_tokens
  """
  v = jnp.broadcast_to(jnp.arange(5.0).reshape(1, 5, 1, 1), (1, 5, 1, 4))
  zero = jnp.zeros((1, 5, 1, 4))
  np.testing.assert_allclose(attended(spec, zero, zero, v, alone(5))[0, :, 0, 0], [0, 0.5, 1, 2, 3], atol=1e-6)


def test_p37_after_eleven_tokens_a_window_of_eight_holds_positions_3_to_10():
  """Six tokens and then five one at a time: the last sees the keys of positions 3 .. 10, each at its own place."""
  config, _, _ = tiny.made('nope')
  enc = encodings.make('hard_alibi(windows=(8, 8, 8, 8))', dims(4, 8))
  cache = kv.create(config.model, enc, 1, 11, 11)
  for start, size in ((0, 6), *((n, 1) for n in range(6, 11))):
    new = alone(size, start)
    where, cache, _ = kv.extend(cache, new.i_BT, new.qdoc_BT)
  seen = (where.visible_BTS()[:, None] & enc.visible(None, where))[0, 0, 0]
  assert np.asarray(where.j_BS[0])[seen].tolist() == list(range(3, 11))


@pytest.mark.parametrize(
  ('base', 'factor', 'length', 'kept', 'between', 'divided_from'),
  [
    (1e4, 8, 128, 6, [1.12366, 1.598253, 2.339117, 3.585459, 5.971417], 11),
    (5e5, 32, 8192, 15, [1.651329, 3.292262, 9.666729], 18),
  ],
)
def test_p38_llama3_divides_each_pair_by_the_computed_number(base, factor, length, kept, between, divided_from):
  """Fast pairs stay, slow ones are divided by the factor, those between by the blend; a key that is not a field is refused by name.

  More: tests/test_hf_config.py::test_the_encoding_has_the_frequencies_of_transformers
  """
  plain_F = rope.frequencies(64, base)
  divisor_F = plain_F / frequency_maps.llama3(plain_F, factor=factor, low=1, high=4, original_length=length)[0]
  np.testing.assert_allclose(divisor_F, [1] * kept + between + [factor] * (32 - divided_from), rtol=1e-5)
  with pytest.raises(ConfigError, match="llama3 has no field 'rope_type'"):
    encodings.parse("llama3(rope_type='llama3')")


def test_p42_buckets_of_t5_are_the_printed_ones_and_the_future_falls_in_the_first():
  """32 buckets, largest distance 128: a bucket each up to 15, then the printed logarithmic ones, 31 from 113 on, 0 for the future.

  More: tests/encodings/test_values.py::test_t5_buckets_equal_their_formula_to_a_hundred_thousand
  """
  printed = {16: 16, 18: 16, 19: 17, 20: 17, 31: 21, 32: 21, 63: 26, 64: 26, 100: 30, 112: 30, 113: 31, 1000: 31, -1: 0, -50: 0}
  assert t5.bucket(jnp.asarray(list(printed))).tolist() == list(printed.values())
  assert t5.bucket(jnp.arange(16)).tolist() == list(range(16))


def test_p50_what_is_masked_away_leaves_no_nan_in_a_gradient():
  """A hidden score of 100, a negative distance under KERPLE and FIRE: values and gradients are finite, and the hidden one gets none.

  More: tests/test_attention.py::test_fully_random_masks_give_finite_gradients
  """
  visible = jnp.asarray([True, True, False])
  gradient = jax.grad(lambda s: attention.softmax(s, visible)[0])(jnp.asarray([1.0, 1, 100]))
  np.testing.assert_allclose(gradient, [0.25, -0.25, 0], atol=1e-6)
  distance = jnp.arange(-20, 21)
  numbers = jnp.asarray([0.5, 1.5]), jnp.asarray([0.1, 2.0])
  for kind in ('log', 'power'):
    found = jax.grad(lambda p, a, kind=kind: kerple.bias(p, a, distance, kind).sum(), (0, 1))(*numbers)
    assert np.isfinite(found).all()
  found = jax.grad(lambda c, t: (fire.psi(c, distance) / fire.span(c, t, jnp.arange(41))).sum(), (0, 1))(0.1, 5.0)
  assert np.isfinite(found).all()
