"""The step is the same on any number of devices, under jit and pmap, in one piece or in micro-batches, with and without dropout."""

import functools

import jax
import numpy as np
import optax
import pytest
import tiny_runs as runs

from pe_jax import encodings, model, optim, parallel, process, resolve, step
from pe_jax.data import packing
from pe_jax.errors import ConfigError

ROWS, LENGTH, STEPS = 16, 16, 20

pytestmark = pytest.mark.xdist_group('parallel')  # what is made once in a process is used by all of the file


@pytest.fixture(autouse=True, scope='module')
def quick():
  with runs.quick_compiles():
    yield


@functools.cache
def config(**changes):
  return resolve.resolve(runs.config(**({'encoding': 'learned', 'batch_size': ROWS, 'num_train_steps': STEPS} | changes)))


def made(c, devices):
  """(spread, state) of a config on some devices."""
  enc, tx = encodings.make(c.encoding, model.dims(c)), optim.make(c)
  spread = parallel.make(c, step.make(c, enc, tx), step.make_eval(c, enc), devices)
  return spread, spread.put_state(step.init(c, enc, tx))


@functools.cache
def batches():
  """Ragged packed rows. In every second batch the odd rows, which are one of two micro-batches, and rows 6 to 9 have no target."""
  rng, out = np.random.default_rng(0), []
  for n in range(STEPS):
    rows = packing.windows([rng.integers(0, 256, size).astype(np.int32) for size in rng.integers(1, 40, 40)], LENGTH, 256)
    rows = rows.take(rng.permutation(len(rows))[:ROWS])
    assert len(rows) == ROWS
    batch = {k: v.copy() for k, v in rows.as_dict().items() if k != 'source'} | {'row': np.arange(ROWS, dtype=np.int32)}
    empty = np.r_[np.arange(1, ROWS, 2), 6:10] if n % 2 else []
    for name in ('doc', 'weight'):
      batch[name][empty] = 0
    out.append(batch)
  return out


def losses(devices, **changes):
  """(loss, targets, gradient norm) of twenty steps, and the validation sums after them."""
  spread, state = made(config(**changes), devices)
  numbers = []
  for batch in batches():
    state, m = spread.step(state, spread.put_batch(batch))
    numbers.append((float(m['loss']), float(m['targets']), float(m['gradient_norm'])))
  if changes.get('parallel') != 'pmap':
    assert spread.step._cache_size() == 1  # no second compilation when the first state comes back
  params = spread.get_state(state).params
  return np.asarray(numbers), np.asarray(spread.evaluate(params, batches()[0])), jax.device_get(params)


@functools.cache
def reference(dropout):
  return losses(jax.devices()[:1], model__dropout=dropout, mesh__data=1)


SPREADS = {
  'one device': (1, {'mesh__data': 1}),
  'eight': (8, {}),
  'four by fsdp': (8, {'mesh__data': 4, 'mesh__fsdp': 2}),
  'pmap': (8, {'parallel': 'pmap'}),
  'pmap on one': (1, {'parallel': 'pmap'}),
}


@pytest.mark.parametrize(
  ('name', 'accumulate', 'dropout'),
  [
    ('one device', 2, 0.0),
    ('eight', 1, 0.0),
    ('eight', 2, 0.2),
    ('four by fsdp', 1, 0.2),
    ('four by fsdp', 2, 0.0),
    ('pmap', 1, 0.0),
    ('pmap', 2, 0.2),
    ('pmap on one', 2, 0.0),
  ],
)
def test_twenty_steps_have_the_same_losses_however_they_are_spread(name, accumulate, dropout):
  count, changes = SPREADS[name]
  numbers, sums, params = losses(jax.devices()[:count], model__dropout=dropout, accumulate=accumulate, **changes)
  want, want_sums, want_params = reference(dropout)
  np.testing.assert_array_equal(numbers[:, 1], want[:, 1])
  np.testing.assert_allclose(numbers[:, 0], want[:, 0], atol=1e-5, rtol=1e-5)
  np.testing.assert_allclose(numbers[:, 2], want[:, 2], atol=1e-4, rtol=1e-4)
  np.testing.assert_allclose(sums, want_sums, rtol=1e-5)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-4), params, want_params)


def test_a_step_takes_its_state_over():
  """Parameters and optimizer are in memory once."""
  spread, state = made(config(), jax.devices())
  before = jax.tree.leaves((state.params, state.opt))
  spread.step(state, spread.put_batch(batches()[0]))
  assert all(x.is_deleted() for x in before)


def test_the_step_is_compiled_with_the_options(monkeypatch):
  monkeypatch.setattr(process, 'options', lambda long: {'xla_no_such_option': True})
  assert parallel.options(config(parallel='pmap')) == {}
  spread, state = made(config(), jax.devices())
  with pytest.raises(Exception, match='xla_no_such_option'):
    spread.step(state, spread.put_batch(batches()[0]))


def test_dropout_changes_the_losses_and_its_seed_too():
  none, some = reference(0.0)[0][:, 0], reference(0.2)[0][:, 0]
  assert np.abs(none - some).min() > 1e-4
  c = config(model__dropout=0.2, mesh__data=1)
  enc, tx = encodings.make(c.encoding, model.dims(c)), optax.sgd(0.0)
  one = jax.jit(step.make(c, enc, tx))
  state = step.init(c, enc, tx)
  same = {k: np.repeat(v[:1], ROWS, 0) for k, v in batches()[0].items() if k != 'row'}
  # The same text in every row: with equal rows numbers one mask, otherwise one for each row; and another mask at each step.
  first, m0 = one(state, same | {'row': np.zeros(ROWS, np.int32)})
  _, m1 = one(state, same | {'row': np.arange(ROWS, dtype=np.int32)})
  _, m2 = one(first, same | {'row': np.zeros(ROWS, np.int32)})
  assert len({float(m['loss']) for m in (m0, m1, m2)}) == 3


def test_p26_ten_targets_of_loss_1_and_a_hundred_of_2_are_210_over_110(monkeypatch):
  monkeypatch.setattr(step.loss, 'nll', lambda logits, targets: targets + 0.0 * logits.sum(-1))
  for accumulate in (1, 2):
    c = config(encoding='nope', train_length=100, batch_size=2, accumulate=accumulate, mesh__data=1)
    enc, tx = encodings.make('nope', model.dims(c)), optax.sgd(0.1)
    one = np.ones((2, 100), np.int32)
    batch = {'tokens': one, 'doc': one, 'pos': np.cumsum(one, 1) - 1, 'row': np.arange(2)}
    batch |= {'targets': one * [[1], [2]], 'weight': (np.arange(100) < [[10], [100]]).astype(np.float32)}
    _, m = jax.jit(step.make(c, enc, tx))(step.init(c, enc, tx), batch)
    assert (float(m['loss']), float(m['targets'])) == (pytest.approx(210 / 110, abs=1e-6), 110)


def gradients(batch, accumulate, rows):
  """What one step of SGD at rate 1 takes off the parameters."""
  c = config(batch_size=rows, accumulate=accumulate, mesh__data=1)
  enc, tx = encodings.make(c.encoding, model.dims(c)), optax.sgd(1.0)
  state = step.init(c, enc, tx)
  after, m = jax.jit(step.make(c, enc, tx))(state, batch)
  return jax.tree.map(lambda a, b: a - b, state.params, after.params), m


def test_the_gradient_of_micro_batches_is_that_of_the_joined_batch_and_an_empty_one_changes_nothing():
  batch = batches()[1]
  joined, m1 = gradients(batch, 1, ROWS)
  for accumulate in (2, 16):
    split, m = gradients(batch, accumulate, ROWS)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), split, joined)
    assert float(m['loss']) == pytest.approx(float(m1['loss']), rel=1e-6)
  without = {k: v[batch['weight'].sum(1) > 0] for k, v in batch.items()}
  alone, _ = gradients(without, 1, len(without['row']))
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), alone, joined)
  nothing, m = gradients(batch | {'weight': np.zeros_like(batch['weight']), 'doc': np.zeros_like(batch['doc'])}, 2, ROWS)
  assert (float(m['loss']), float(m['targets']), bool(m['finite'])) == (0, 0, True)
  assert all(not x.any() for x in jax.tree.leaves(nothing))


def test_fsdp_splits_parameters_and_optimizer_state_and_steps_leave_them_so():
  c = config(accumulate=2, mesh__data=4, mesh__fsdp=2)
  spread, state = made(c, jax.devices())
  before = jax.tree.map(lambda x: x.sharding, state)
  for batch in batches()[:3]:
    state, _ = spread.step(state, spread.put_batch(batch))
  assert jax.tree.map(lambda x, s: x.sharding.is_equivalent_to(s, x.ndim), state, before) == jax.tree.map(lambda _: True, before)
  for tree in (state.params, optax.tree.get(state.opt, 'mu'), optax.tree.get(state.opt, 'nu')):
    for path, x in jax.tree_util.tree_flatten_with_path(tree)[0]:
      assert x.addressable_shards[0].data.size * 2 == x.size, (jax.tree_util.keystr(path), x.sharding)
  held = sum(s.data.nbytes for x in jax.tree.leaves(state) for s in x.addressable_shards if s.device == jax.devices()[0])
  assert held < 0.55 * sum(x.nbytes for x in jax.tree.leaves(state))


def test_what_fsdp_cannot_divide_is_whole_everywhere():
  grid = parallel.mesh(config(mesh__data=4, mesh__fsdp=2), jax.devices())
  for shape, want in {(3,): (), (): (), (5, 4): (None, 'fsdp'), (6, 4): ('fsdp', None), (4, 8, 2): (None, 'fsdp', None)}.items():
    assert tuple(parallel.sharding(grid, shape).spec) == want


def test_every_device_works_on_its_own_rows():
  spread, _ = made(config(mesh__data=4, mesh__fsdp=2), jax.devices())
  rows = spread.put_batch(batches()[0])['row']
  assert sorted(int(r) for s in rows.addressable_shards for r in s.data) == list(range(ROWS))


@pytest.mark.parametrize(
  ('changes', 'match'),
  [
    ({'batch_size': 12}, r'12 rows \(accumulate=1\) cannot be divided over 8 devices \(use a multiple of 8'),
    ({'batch_size': 8, 'accumulate': 2}, 'use a multiple of 16'),
    ({'batch_size': 12, 'parallel': 'pmap'}, 'over 8 devices'),
    ({'mesh__fsdp': 3}, 'data=-1 x fsdp=3 does not fit 8 devices'),
    ({'mesh__data': 8, 'mesh__fsdp': 2}, 'data=8 x fsdp=2 does not fit 8 devices'),
    ({'mesh__data': 2, 'mesh__fsdp': 3, 'batch_size': 16}, 'over 6 devices'),
    ({'parallel': 'pmap', 'mesh__fsdp': 2}, 'has no meaning under pmap'),
    ({'parallel': 'pmap', 'mesh__data': 1}, 'has no meaning under pmap'),
  ],
)
def test_a_batch_or_mesh_that_does_not_fit_is_refused(changes, match):
  with pytest.raises(ConfigError, match=match):
    parallel.check(config(**changes), jax.devices())
