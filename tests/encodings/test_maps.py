"""Truths about names, fields and frequency maps that no single formula shows."""

import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from pe_jax import encodings, model
from pe_jax.encodings import frequency_maps, rope
from pe_jax.errors import ConfigError

DIMS = model.dims(tiny.config())


IDENTITIES = [f'{name}(factor=1)' for name in encodings.MAPS if 'factor' in encodings.fields(name) and name != 'longrope']
IDENTITIES += ['dynamic_yarn', 'p_rope(p=1.0)', 'longrope(short_factor=(1, 1, 1, 1), long_factor=(2, 2, 2, 2))']


@pytest.mark.parametrize('spec', IDENTITIES)
def test_a_map_that_scales_by_one_is_rope_bit_for_bit(spec):
  params = tiny.made('rope')[2]
  tokens = tiny.tokens(1, 24)
  pos, doc = tiny.row(16, total=24)  # dynamic maps: a document within the training length
  assert np.array_equal(tiny.forward(spec)(params, tokens, pos, doc), tiny.forward('rope')(params, tokens, pos, doc))


def test_dynamic_ntk_is_rope_up_to_the_training_length_and_not_beyond():
  params = tiny.made('rope')[2]
  tokens = tiny.tokens(1, 24)
  for length, same in ((15, True), (16, True), (17, False)):
    pos, doc = tiny.row(length, total=24)
    a, b = (tiny.forward(s)(params, tokens, pos, doc) for s in ('dynamic_ntk(factor=2)', 'rope'))
    assert np.array_equal(a[:, :length], b[:, :length]) == same


def test_dynamic_ntk_looks_at_each_documents_own_length():
  params = tiny.made('rope')[2]
  tokens = tiny.tokens(1, 40)
  pos, doc = tiny.row(10, 30, total=40)
  a, b = (tiny.forward(s)(params, tokens, pos, doc) for s in ('dynamic_ntk', 'rope'))
  assert np.array_equal(a[:, :10], b[:, :10])
  assert not np.array_equal(a[:, 10:], b[:, 10:])


def test_dynamic_yarn_is_yarn_at_the_documents_length():
  f = rope.frequencies(64)
  for length in (10, 64, 100, 512):
    a, m = frequency_maps.dynamic_yarn(f, base=1e4, original_length=64, length=length)
    b, n = frequency_maps.yarn(f, factor=max(1.0, length / 64), base=1e4, original_length=64)
    assert np.array_equal(a, b)
    assert m == n


def test_by_parts_is_yarn_without_its_factor_and_reversed_is_its_mirror():
  f, s = rope.frequencies(128), 8.0
  yarn, _ = frequency_maps.yarn(f, factor=s, base=1e4, original_length=4096)
  parts, one = frequency_maps.ntk_by_parts(f, factor=s, base=1e4, original_length=4096)
  mirror, _ = frequency_maps.reversed_by_parts(f, factor=s, base=1e4, original_length=4096)
  assert one == 1
  assert np.array_equal(parts, yarn)
  # Llama-2's settings: yarn leaves pairs 0 to 20 and divides 46 to 63; the mirror does the opposite.
  np.testing.assert_allclose(f[:21] / mirror[:21], s)
  assert np.array_equal(mirror[46:], f[46:])
  np.testing.assert_allclose(parts + mirror, f + f / s)


def test_longrope_switches_at_the_original_length():
  f = rope.frequencies(8)
  settings = {'factor': 32.0, 'short_factor': (1, 2, 3, 4), 'long_factor': (5, 6, 7, 8), 'original_length': 4096}
  rows, m = frequency_maps.longrope(f, length=np.asarray([1, 4096, 4097]), **settings)
  for row, divisor in zip(rows, [(1, 2, 3, 4), (1, 2, 3, 4), (5, 6, 7, 8)], strict=True):
    np.testing.assert_allclose(row, [10000 ** (-2 * i / 8) / divisor[i] for i in range(4)])
  assert m == pytest.approx(1.190238, abs=1e-6)  # sqrt(1 + ln 32 / ln 4096) = sqrt(1 + 5/12)


def test_p_rope_stops_the_slowest_pairs():
  f = rope.frequencies(16)
  mapped, _ = frequency_maps.p_rope(f, p=0.75)
  assert np.array_equal(mapped, np.r_[f[:6], 0, 0])


def test_abf_is_rope_with_the_other_base():
  mapped, _ = frequency_maps.abf(rope.frequencies(64), target=5e5, base=1e4)
  np.testing.assert_allclose(mapped, rope.frequencies(64, 5e5), rtol=1e-13)


def test_frequency_maps_are_declared_once():
  public = {n for n in vars(frequency_maps) if not n.startswith('_')} - {'math', 'np', 'ConfigError'}
  assert public == set(encodings.MAPS)


def test_a_layout_is_a_permutation_of_the_other():
  x = np.random.default_rng(0).normal(size=(2, 5, 3, 8)).astype(np.float32)
  pos, frequency = jnp.asarray([[0, 1, 2, 3, 900]] * 2), rope.frequencies(8)
  order = np.arange(8).reshape(4, 2).T.ravel()  # even dimensions first: interleaved pairs become half-split ones
  interleaved = rope.rotate(x, pos, frequency, 'interleaved')
  half = rope.rotate(x[..., order], pos, frequency, 'half')
  np.testing.assert_allclose(half, interleaved[..., order], atol=1e-6)


@pytest.mark.parametrize(
  ('asked', 'trained', 'read'),
  [
    ('yarn(factor=8)', 'rope(base=500000, fraction=0.5)', 'yarn(factor=8, base=500000, fraction=0.5)'),
    ('rope', 'yarn(factor=4, base=500)', 'rope(base=500)'),
    ('rope(base=10)', 'rope(base=500)', 'rope(base=10)'),
    ('t5', 't5(max_distance=32)', 't5(max_distance=32)'),
    ('alibi', 'rope(base=500)', 'alibi'),
  ],
)
def test_what_a_reading_leaves_open_comes_from_training(asked, trained, read):
  assert str(encodings.inherit(encodings.parse(asked), encodings.parse(trained))) == read


def test_a_map_without_a_factor_takes_it_from_the_length():
  assert encodings.make('yarn', DIMS).spec == 'yarn(factor=1)'
  assert encodings.make('yarn', DIMS, 128).spec == 'yarn(factor=8)'
  assert encodings.make('linear', DIMS, 8).spec == 'linear(factor=1)'
  assert encodings.make('yarn(factor=2)', DIMS, 128).spec == 'yarn(factor=2)'
  assert encodings.make('ntk(original_length=32)', DIMS, 128).spec == 'ntk(factor=4, original_length=32)'


def test_one_encoding_has_one_text():
  for text in ('yarn(factor=8)', 'yarn( factor = 8.0 )', "rope(map='yarn', factor=8)", 'yarn(factor=8, base=10000, beta_fast=32)'):
    assert str(encodings.parse(text)) == 'yarn(factor=8)'
  assert str(encodings.parse('rope(base=10000.0)')) == 'rope'


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('roep', "'roep' is unknown .did you mean 'rope'.."),
    ('yarn(factr=8)', "yarn has no field 'factr' .did you mean 'factor'"),
    ('yarn(factor=0.5)', 'factor=0.5 must be at least 1'),
    ("yarn(factor='8')", 'wants float'),
    ('yarn(factor=True)', 'wants float'),
    ('yarn(8)', 'cannot be read'),
    ('yarn(factor=', 'cannot be read'),
    ('yarn(factor=open)', 'wants a number'),
    ('rope, alibi', 'names 2 encodings'),
    ("yarn(factor=2, ramp='rotation')", "'index' or 'rotations'"),
    ('yarn(factor=2, beta_fast=1)', 'must exceed beta_slow=1'),
    ('llama3(low=4, high=1)', 'high > low'),
    ('rope(base=1)', 'must be above 1'),
    ('rope(fraction=0)', r'must be in \(0, 1\]'),
    ('rope(fraction=0.4)', 'cannot split a width of 3'),
    ("rope(layout='neox')", "'half' or 'interleaved'"),
    ("sinusoidal(layout='neox')", "'interleaved', 'concat' or 'tensor2tensor'"),
    ('sinusoidal(base=0.5)', 'must be above 1'),
    ("learned(overflow='clamp')", 'is none of'),
    ('learned(max_length=-1)', 'at least one row'),
    ('t5(num_buckets=1)', 'at least 2'),
    ('t5(num_buckets=7)', 'even number of buckets'),
    ('t5(max_distance=16)', 'must exceed the 16'),
    ('alibi(slopes=(1, 2))', '2 slopes for 4 heads'),
    ('alibi(slopes=(1, 1, 1, -1))', 'not negative'),
    ('longrope', 'needs 4 positive numbers in short_factor'),
    ('longrope(short_factor=(1, 1, 1, 1), long_factor=(1, 1, 0, 1))', 'positive numbers in long_factor'),
    ('p_rope(p=1.5)', r'must be in \[0, 1\]'),
    ('abf(target=1)', 'must be above 1'),
    ("kerple(kind='gauss')", "'log' or 'power'"),
    ('__init__', 'is unknown'),
    ('base', 'is unknown'),
  ],
)
def test_a_wrong_setting_gets_a_sentence(text, message):
  with pytest.raises(ConfigError, match=message):
    encodings.make(text, DIMS)
