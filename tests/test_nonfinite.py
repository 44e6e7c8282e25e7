"""A step that is not finite is never taken and never saved, whatever broke and whenever; it is written down and can be seen again."""

import dataclasses
import functools
import json
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny_runs as runs

from pe_jax import encodings, metrics, model, nonfinite, optim, parallel, resolve, step, train
from pe_jax.checkpoint import Checkpoints
from pe_jax.errors import DataError, NotFinite

KINDS = ('loss', 'gradient', 'params', 'optimizer', 'logits', 'embedding')
STEPS = {'first': 1, 'middle': 3, 'checkpoint step': 4, 'last': 6}
pytestmark = pytest.mark.xdist_group('nonfinite')


@pytest.fixture(autouse=True, scope='module')
def quick():
  with runs.quick_compiles():
    yield


def config(**changes):
  return runs.config(**({'encoding': 'nope', 'num_train_steps': 6, 'checkpoint_every_steps': 2, 'eval_every_steps': 2} | changes))


def break_leaf(x, value, wanted, at=0):
  """One entry of an array replaced, if wanted."""
  return jnp.where(wanted, x.at[(at,) + (0,) * (x.ndim - 1)].set(value), x)


@functools.cache
def broken(mode):
  """A Spread whose compiled step takes two more arguments: what is to break, and at which step."""
  c = resolve.resolve(config(nonfinite=mode))
  enc, tx = encodings.make(c.encoding, model.dims(c)), optim.make(c)
  made = parallel.make(c, step.make(c, enc, tx), step.make_eval(c, enc), jax.devices())
  make_sums = step.make_sums

  def train_step(state, batch, kind, at):
    now = state.step + 1 == at
    bad = {name: now & (kind == n) for n, name in enumerate(KINDS)}
    embed = jax.tree.map(lambda x: break_leaf(x, jnp.nan, bad['params']), state.params['decoder']['embed'])
    decoder = state.params['decoder'] | {'embed': embed}
    opt = jax.tree.map(lambda x: break_leaf(x, jnp.inf, bad['optimizer']) if x.ndim > 1 else x, state.opt)
    state = dataclasses.replace(state, params=state.params | {'decoder': decoder}, opt=opt)

    def sums(config, enc):
      def of_state(state, batch):
        seen = state.params['decoder']
        seen = seen | {'final_norm': jax.tree.map(lambda x: break_leaf(x, jnp.inf, bad['logits']), seen['final_norm'])}
        seen = seen | {'embed': jax.tree.map(lambda x: break_leaf(x, -jnp.inf, bad['embedding'], ord('a')), seen['embed'])}
        (nll, weight), grads = make_sums(config, enc)(dataclasses.replace(state, params=state.params | {'decoder': seen}), batch)
        grads['decoder']['final_norm'] = jax.tree.map(lambda x: break_leaf(x, jnp.nan, bad['gradient']), grads['decoder']['final_norm'])
        return (jnp.where(bad['loss'], jnp.nan, nll), weight), grads

      return of_state

    step.make_sums = sums
    try:
      return step.make(c, enc, tx)(state, batch)
    finally:
      step.make_sums = make_sums

  return made, jax.jit(train_step)


def run(monkeypatch, folder, kind, at, mode='stop', **changes):
  """Trains with something broken at a step; returns the error or None."""
  made, train_step = broken(mode)
  spread = dataclasses.replace(made, step=lambda state, batch: train_step(state, batch, KINDS.index(kind), at))
  monkeypatch.setattr(parallel, 'make', lambda *_: spread)
  try:
    train.run(config(nonfinite=mode, **changes), folder)
  except NotFinite as error:
    return error
  return None


def saved_arrays(folder):
  """(step, every array) of all checkpoints on disk."""
  checkpoints = Checkpoints(folder, read_only=True)
  trees = {s: checkpoints.restore(s, checkpoints._on_one_device(checkpoints._there(s)))[0] for s in checkpoints.steps()}
  return [(s, x) for s, tree in trees.items() for x in jax.tree.leaves(tree)]


@pytest.mark.parametrize('when', STEPS)
@pytest.mark.parametrize('kind', KINDS)
def test_whatever_breaks_whenever_the_run_stops_and_nothing_of_it_is_saved(tmp_path, monkeypatch, kind, when):
  at = STEPS[when]
  error = run(monkeypatch, tmp_path, kind, at)
  assert error is not None
  assert (error.exit_code, f'step {at}: loss' in str(error), '\n' in str(error)) == (7, True, False)
  arrays = saved_arrays(tmp_path)
  assert all(np.isfinite(x).all() for _, x in arrays)
  steps = {s for s, _ in arrays}
  # State that was broken itself cannot be saved: what was there before must do.
  assert steps <= set(range(at)) if kind in ('params', 'optimizer') else max(steps) == at - 1
  told = json.loads((tmp_path / f'nonfinite_{at}.json').read_text())
  assert (told['step'], len(told['rows_sha256']), len(told['batch_sha256'])) == (at, 8, 64)
  broken_arrays = {name.split('.')[0] for name, s in told['arrays'].items() if s['not_finite']}
  assert broken_arrays == {'params': {'params'}, 'optimizer': {'opt'}}.get(kind, set())
  assert all(np.isfinite([v for v in row.values() if v is not None]).all() for row in metrics.read(tmp_path / 'metrics.jsonl'))
  if when != 'middle':
    return
  # Repaired, it goes on where it stopped and ends as if nothing had been.
  assert run(monkeypatch, tmp_path, kind, 0) is None
  assert run(monkeypatch, tmp_path.parent / 'whole', kind, 0) is None
  for name in ('DONE', 'metrics.jsonl'):
    assert (tmp_path / name).read_bytes() == (tmp_path.parent / 'whole' / name).read_bytes()


def test_skip_leaves_out_the_step_counts_it_and_goes_on(tmp_path, monkeypatch, capsys):
  assert run(monkeypatch, tmp_path, 'gradient', 3, 'skip', log_every_steps=1) is None
  assert 'step 3: ' in (said := capsys.readouterr().err)
  assert 'skipped, the 1. in a row and the 1. in all' in said
  rows = metrics.read(tmp_path / 'metrics.jsonl')
  assert [r for r in rows if 'skipped' in r] == [{'step': 3, 'skipped': 1}]
  assert [r['step'] for r in rows if 'loss' in r] == [1, 2, 4, 5, 6]
  rates = [r['learning_rate'] for r in rows if 'loss' in r]
  schedule = optim.schedule(resolve.resolve(config()))
  assert rates == [float(schedule(n)) for n in (0, 1, 2, 3, 4)]  # the optimizer has not seen step 3
  assert json.loads((tmp_path / 'DONE').read_text())['step'] == 6
  assert all(np.isfinite(x).all() for _, x in saved_arrays(tmp_path))
  assert (tmp_path / 'nonfinite_3.json').exists()
  assert '(can be replayed while one of the keep_checkpoints=2 checkpoints is from before it)' in said
  # Those are of steps 4 and 6 by now; what is needed is gone, and said to be.
  assert Checkpoints(tmp_path, read_only=True).steps() == [4, 6]
  before = runs.contents(tmp_path)
  with pytest.raises(
    DataError, match=r'step 3 cannot be taken again, for no checkpoint .* \(there are 4, 6; keep_checkpoints=2 keeps'
  ) as error:
    nonfinite.replay(tmp_path)
  assert (error.value.exit_code, '\n' in str(error.value), runs.contents(tmp_path) == before) == (3, False, True)


def test_a_skipped_step_can_be_replayed_as_long_as_a_checkpoint_from_before_it_is_kept(tmp_path, monkeypatch):
  assert run(monkeypatch, tmp_path, 'gradient', 3, 'skip', keep_checkpoints=3) is None
  monkeypatch.undo()
  found = nonfinite.replay(tmp_path)
  assert (found['step'], found['from'], found['same_batch']) == (3, 2, True)  # what broke it is no part of the program


def test_a_skipped_step_changes_neither_parameters_nor_optimizer():
  _, train_step = broken('skip')
  c = resolve.resolve(config())
  enc, tx = encodings.make(c.encoding, model.dims(c)), optim.make(c)
  state = jax.jit(lambda: step.init(c, enc, tx))()
  one = np.ones((8, 16), np.int32)
  batch = {'tokens': one, 'targets': one, 'weight': one.astype(np.float32), 'doc': one, 'pos': one, 'row': np.arange(8, dtype=np.int32)}
  after, numbers = train_step(state, batch, KINDS.index('loss'), 1)
  assert not numbers['finite']
  assert (bool(after.finite), int(after.step)) == (True, 1)
  for a, b in zip(jax.tree.leaves((state.params, state.opt)), jax.tree.leaves((after.params, after.opt))):
    np.testing.assert_array_equal(a, b)
  assert train_step(after, batch, KINDS.index('loss'), 1)[1]['finite']


def test_skip_stops_after_so_many_in_a_row_even_if_a_resume_lies_between(tmp_path, monkeypatch):
  made, train_step = broken('skip')
  at = types.SimpleNamespace(steps=(3, 4, 5))

  def stepped(state, batch):
    now = int(state.step) + 1
    return train_step(state, batch, KINDS.index('loss'), now if now in at.steps else 0)

  monkeypatch.setattr(parallel, 'make', lambda *_: dataclasses.replace(made, step=stepped))
  with pytest.raises(NotFinite, match=r'step 5: loss nan.*the newest checkpoint is of step 4'):
    train.run(config(nonfinite='skip', nonfinite_in_a_row=3), tmp_path)
  with pytest.raises(NotFinite, match='step 5'):  # from step 4 on, where two had been skipped
    train.run(config(nonfinite='skip', nonfinite_in_a_row=3), tmp_path)
  train.run(config(nonfinite='skip', nonfinite_in_a_row=4), tmp_path)
  assert [r['skipped'] for r in metrics.read(tmp_path / 'metrics.jsonl') if 'skipped' in r] == [1, 2, 3]


def test_the_batch_can_be_replayed(tmp_path):
  c = config(optim__name='sgd', optim__learning_rate=2e9, optim__clip_norm=0.0, optim__weight_decay=1.0, checkpoint_every_steps=0)
  c.eval_every_steps = 0
  with pytest.raises(NotFinite, match=rf'python scripts/replay.py --workdir={tmp_path}') as error:
    train.run(c, tmp_path)
  at = int(str(error.value).split('step ')[1].split(':')[0])
  before = runs.contents(tmp_path)
  found = nonfinite.replay(tmp_path)
  assert (found['step'], found['from'], found['finite']) == (at, at - 1, False)
  assert found['same_batch']
  assert found['same_numbers']
  assert any(name.startswith('gradient.') for name in found['arrays'])
  assert runs.contents(tmp_path) == before
  with pytest.raises(NotFinite):  # the same command comes to the same end
    train.run(c, tmp_path)
  with pytest.raises(DataError, match=rf'no step 99 there that was not finite \(nonfinite_<step>.json: {at}\)'):
    nonfinite.replay(tmp_path, 99)


def test_a_moment_that_overflows_is_seen_though_the_update_is_finite():
  c = resolve.resolve(config())
  enc = encodings.make(c.encoding, model.dims(c))

  def update(grads, opt, params):
    del params
    return jax.tree.map(jnp.zeros_like, grads), {'moment': opt['moment'] * jnp.inf}

  quiet = optax.GradientTransformation(lambda params: {'moment': jnp.ones(3)}, update)
  state = step.init(c, enc, quiet)
  one = np.ones((2, 16), np.int32)
  batch = {'tokens': one, 'targets': one, 'weight': one.astype(np.float32), 'doc': one, 'pos': one, 'row': np.arange(2, dtype=np.int32)}
  after, numbers = jax.jit(step.make(c, enc, quiet))(state, batch)
  assert not numbers['finite']
  np.testing.assert_array_equal(after.opt['moment'], state.opt['moment'])
