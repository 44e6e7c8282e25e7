"""Training positions that are drawn: what a draw is, per document, and that nobody else's draw depends on it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny

from pe_jax import encodings, model, step
from pe_jax.encodings import draws
from pe_jax.encodings.base import Dims, Where
from pe_jax.errors import ConfigError

DIMS = Dims(num_heads=4, num_kv_heads=2, head_dim=8, embed_dim=32, train_length=16, num_layers=2)
KEY = jax.random.PRNGKey(3)


def placed(spec, pos, doc, key=KEY, **options):
  enc = encodings.make(spec, DIMS)
  return np.asarray(jax.jit(lambda p, d: enc.placed(Where.forward(p, d), key=key, **options).i_BT)(pos, doc))


def many(rows, *lengths, total):
  return tuple(jnp.tile(x, (rows, 1)) for x in tiny.row(*lengths, total=total))


def test_randomized_positions_increase_strictly_within_each_document_and_stay_below_the_range():
  pos, doc = many(50, 5, 9, total=16)
  got = placed('randomized(nope, range=20)', pos, doc)
  assert got.min() >= 0
  assert got.max() <= 19
  for start, end in ((0, 5), (5, 14)):
    assert (np.diff(got[:, start:end], axis=1) > 0).all()
  assert len(np.unique(got[:, :5], axis=0)) > 45


def test_every_subset_is_as_likely():
  """Documents of 2 tokens out of 5 positions: 10 subsets, 4000 draws in each place of the row; chi square below its .999 quantile."""
  _, doc = many(4000, 1, 2, 2, total=5)
  got = np.asarray(draws.subset(jax.random.split(KEY, 4000), doc, 5))
  for start in (1, 3):
    number = got[:, start] * 5 + got[:, start + 1]
    _, count = np.unique(number, return_counts=True)
    assert len(count) == 10
    assert ((count - 400) ** 2 / 400).sum() < 27.9


def test_randomized_is_drawn_anew_in_training_and_fixed_at_evaluation():
  pos, doc = many(3, 12, total=16)
  a, b = (placed('randomized(nope, range=64)', pos, doc, key=k) for k in (KEY, jax.random.PRNGKey(4)))
  assert not np.array_equal(a, b)
  a, b = (placed('randomized(nope, range=64)', pos, doc, key=None) for _ in range(2))
  assert np.array_equal(a, b)
  assert not np.array_equal(a[0], a[1])


def test_a_draw_depends_on_the_rows_number_alone():
  """On any number of devices a row gets the same positions."""
  pos, doc = many(4, 5, 9, total=16)
  for spec in ('randomized(nope, range=64)', 'pose(nope, range=64)', 'shifted(nope, range=64)'):
    whole = placed(spec, pos, doc)
    half = placed(spec, pos[2:], doc[2:], row_B=jnp.asarray([2, 3]))
    assert np.array_equal(whole[2:], half)


def test_pose_skips_once_in_the_first_half_and_reaches_every_distance_below_the_range():
  pos, doc = many(3000, 6, 10, total=16)
  got = placed('pose(nope, range=20)', pos, doc)
  for start, n in ((0, 6), (6, 10)):
    own = got[:, start : start + n]
    steps = np.diff(own, axis=1)
    assert (own[:, 0] == 0).all()
    assert ((steps > 1).sum(axis=1) <= 1).all()
    cut = np.argmax(steps > 1, axis=1)[(steps > 1).any(axis=1)] + 1
    assert set(cut) == set(range(1, (n + 1) // 2 + 1))
    assert set(own[:, -1]) == set(range(n - 1, 20))


def test_shifted_moves_each_document_by_its_own_offset():
  pos, doc = many(3000, 6, 10, total=16)
  got = placed('shifted(nope, range=20)', pos, doc)
  for start, n in ((0, 6), (6, 10)):
    own = got[:, start : start + n]
    assert (np.diff(own, axis=1) == 1).all()
    assert set(own[:, 0]) == set(range(20 - n + 1))
  assert np.corrcoef(got[:, 0], got[:, 6])[0, 1] < 0.1


@pytest.mark.parametrize('spec', ['pose(sinusoidal, range=64)', 'shifted(sinusoidal, range=64)'])
def test_pose_and_shifted_are_evaluated_at_plain_positions(spec):
  pos, doc = many(2, 12, total=16)
  assert np.array_equal(placed(spec, pos, doc, key=None), pos)


def test_a_shift_means_nothing_to_a_relative_encoding_and_something_to_a_table():
  tokens = tiny.tokens(2, 16)
  pos, doc = many(2, 16, total=16)
  for inner, relative in (('rope', True), ('alibi', True), ('sinusoidal', False)):
    enc = encodings.make(f'shifted({inner}, range=512)', DIMS)
    params = tiny.made(inner)[2]
    where = Where.forward(pos, doc)
    drawn, plain = (model.apply(tiny.config(), enc, params, tokens, w) for w in (enc.placed(where, key=KEY), where))
    assert tiny.error(drawn, plain) < 1e-4 if relative else tiny.error(drawn, plain) > 1e-3


def test_training_draws_at_each_step_and_evaluation_always_sees_the_same_positions():
  config = tiny.config()
  enc = encodings.make('randomized(sinusoidal, range=64)', DIMS)
  tokens = tiny.tokens(2, 16)
  pos, doc = many(2, 16, total=16)
  batch = {'tokens': tokens, 'targets': tokens, 'weight': jnp.ones((2, 16)), 'pos': pos, 'doc': doc, 'row': jnp.arange(2)}
  tx = optax.sgd(0.0)
  state = step.init(config, enc, tx, tiny.made('sinusoidal')[2])
  train, evaluate = jax.jit(step.make(config, enc, tx)), jax.jit(step.make_eval(config, enc))
  states = [dataclasses.replace(state, step=jnp.int32(n)) for n in (0, 1, 0)]
  first, second, again = (float(train(s, batch)[1]['loss']) for s in states)
  assert first == again != second
  assert evaluate(state.params, batch) == evaluate(state.params, batch)
  assert enc.traits.positions == '1 seeded draw of increasing positions below 64'
  assert encodings.make('pose(rope, range=64)', DIMS).traits.positions == 'from 0 in each window'


@pytest.mark.parametrize(
  ('spec', 'message'),
  [
    ('randomized(sinusoidal, range=8)', 'range=8 must be at least the training length 16'),
    ('pose(rope, range=15)', 'range=15 must be at least'),
    ('shifted(learned(max_length=32), range=64)', r"'learned\(max_length=32\)' has 32 positions and range=64 asks for more"),
    ('randomized(pose(rope))', 'one encoding draws the positions'),
    ('randomized', r'randomized needs an encoding inside, as in randomized\(rope\)'),
    ('randomized(rope, alibi)', 'randomized takes one encoding inside and got 2'),
  ],
)
def test_settings_that_cannot_work_are_refused(spec, message):
  with pytest.raises(ConfigError, match=message):
    encodings.make(spec, DIMS)


def test_a_text_longer_than_the_range_is_refused():
  enc = encodings.make('randomized(nope, range=20)', DIMS)
  pos, doc = tiny.row(24, total=24)
  with pytest.raises(ConfigError, match='range=20 is smaller than the length 24'):
    enc.placed(Where.forward(pos, doc))
