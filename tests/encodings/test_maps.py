"""Truths about names, fields and frequency maps that no single formula shows."""

import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from pe_jax import encodings, model
from pe_jax.encodings import frequency_maps, rope
from pe_jax.errors import ConfigError

DIMS = model.dims(tiny.config())


@pytest.mark.parametrize('name', encodings.MAPS)
def test_a_map_with_factor_one_is_rope_bit_for_bit(name):
  spec = f'{name}(factor=1)'
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
    ('yarn(factor=2, beta_fast=1)', 'beta_fast > beta_slow'),
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
    ('__init__', 'is unknown'),
    ('base', 'is unknown'),
  ],
)
def test_a_wrong_setting_gets_a_sentence(text, message):
  with pytest.raises(ConfigError, match=message):
    encodings.make(text, DIMS)
