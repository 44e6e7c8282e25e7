"""A run: killed and continued, its folder, its checkpoints, and runs that start from another one."""

import json
import os
import random
import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_runs as runs

import pe_jax
from pe_jax import encodings, fingerprint, init_from, metrics, model, optim, parallel, resolve, signals, step, train, workdir
from pe_jax.checkpoint import Checkpoints
from pe_jax.errors import ConfigDiffers, ConfigError, DataError, NotFinite, Preempted, WorkdirInUse, WriteError


@pytest.fixture(autouse=True, scope='module')
def quick():
  with runs.quick_compiles():
    yield


def final(folder):
  """What must be equal to the last bit: the parameters' digest, the final loss, the log."""
  done = json.loads((folder / 'DONE').read_text())
  return done, (folder / 'metrics.jsonl').read_bytes()


def test_a_run_that_is_stopped_eight_times_ends_with_the_bits_of_one_that_is_not(tmp_path):
  overrides = ['--config.model.dropout=0.1', '--config.accumulate=2', '--config.model.num_kv_heads=1', '--config.log_every_steps=1']
  command = ['train.py', f'--config={runs.home() / "tiny.py"}:learned', *overrides]
  seed = int(os.environ.get('PE_JAX_TEST_SEED', '0'))
  rng = random.Random(seed)
  steps = [rng.choice(places) for places in ((6, 7, 11, 12), (15, 16, 17, 20), (23, 25, 26, 27), (30, 31, 32, 37))]
  kills = [f'SIGKILL step {steps[0]}', f'SIGTERM step {steps[1]}', f'TORN step {steps[2]}', f'SIGINT step {steps[3]}']
  kills = ['SIGTERM env.json', 'FULL step 8', *kills, 'SIGKILL validation 40', 'SIGKILL DONE']
  whole = runs.finish(runs.start(*command, f'--workdir={tmp_path / "whole"}'))
  assert whole[0] == 0, whole
  with runs.start(*command, f'--workdir={tmp_path / "other"}', '--config.eval_every_steps=3', '--config.checkpoint_every_steps=0') as other:
    for kill in kills:
      code, _, err = runs.finish(runs.start(*command, f'--workdir={tmp_path / "cut"}', STOP_AT=kill))
      assert code == {'SIGTERM': 75, 'SIGINT': 75, 'FULL': 4}.get(kill.split()[0], -9), (seed, kill, err)
      assert 'Traceback' not in err or code == 4, err  # a full disk makes threads of orbax talk beside the ERROR line
      if code == 4:
        assert re.search(r'^ERROR: .*checkpoint.* could not be written: .*$', err, re.MULTILINE), err
      if code == 75:
        saved = int(re.search(rf'stopped by {kill.split()[0]} and saved at step (\d+) ', err)[1])
        assert saved - (0 if kill.endswith('json') else int(kill.split()[-1])) in (
          0,
          1,
        )  # a row is written one step late, but at once before a checkpoint
        assert max(int(p.name) for p in (tmp_path / 'cut' / 'checkpoints').iterdir()) == saved
      assert not (tmp_path / 'cut' / 'DONE').exists()
    code, _, err = runs.finish(runs.start(*command, f'--workdir={tmp_path / "cut"}'))
    assert (code, 'Traceback' in err) == (0, False), err
    assert final(tmp_path / 'cut') == final(tmp_path / 'whole'), (seed, kills)
    # Validation changes nothing: with other boundaries the same parameters come out.
    code, _, err = runs.finish(other)
  assert code == 0, err
  assert final(tmp_path / 'other')[0]['params_sha256'] == final(tmp_path / 'whole')[0]['params_sha256']
  rows = metrics.read(tmp_path / 'cut' / 'metrics.jsonl')
  assert [r['step'] for r in rows if 'validation_loss' in r] == [10, 20, 30, 40]
  assert [r['step'] for r in rows if 'loss' in r] == list(range(1, 41))


@pytest.mark.parametrize(
  ('changes', 'taken'),
  [
    ({}, 'dense'),
    ({'model__attention': 'blockwise'}, 'blockwise'),
    ({'model__attention': 'blockwise', 'encoding': 'layers(rope, cope)', 'model__num_layers': 2}, 'blockwise, chunked'),
    ({'train_length': 256, 'encoding': 'drope(rope)'}, 'chunked, then chunked'),
  ],
)
def test_the_environment_of_a_run_names_the_path_of_its_attention(changes, taken):
  assert train.environment(resolve.resolve(runs.config(**changes)))['attention'] == taken


def test_started_again_a_finished_run_says_so_and_writes_nothing(capsys):
  folder = runs.trained('rope')
  before = runs.contents(folder)
  loss = train.run(runs.config(encoding='rope'), folder)
  assert loss == json.loads(before['DONE'])['validation_loss']
  assert 'finished already (4 steps)' in capsys.readouterr().err
  assert runs.contents(folder) == before


def test_another_config_is_refused_with_a_diff_and_nothing_is_touched():
  folder = runs.trained('rope')
  before = runs.contents(folder)
  with pytest.raises(ConfigDiffers, match='another configuration') as error:
    train.run(runs.config(encoding='rope', optim__learning_rate=5e-4, model__num_layers=3), folder)
  assert error.value.exit_code == 6
  lines = [line.strip() for line in str(error.value).splitlines()[1:]]
  assert lines == ['- model.num_layers: 1', '+ model.num_layers: 3', '- optim.learning_rate: 0.001', '+ optim.learning_rate: 0.0005']
  assert runs.contents(folder) == before


def test_other_text_under_the_same_path_is_refused(tmp_path):
  runs.corpus(tmp_path / 'text')
  config = runs.config(encoding='rope', data__path=str(tmp_path / 'text'))
  train.run(config, tmp_path / 'run')
  (tmp_path / 'run' / 'DONE').unlink()
  runs.corpus(tmp_path / 'text', seed=1)
  with pytest.raises(DataError, match='the run began with other data') as error:
    train.run(config, tmp_path / 'run')
  assert 'train.sha256' in str(error.value)


def test_a_workdir_has_one_trainer(tmp_path):
  with workdir.locked(tmp_path):
    before = runs.contents(tmp_path)
    with pytest.raises(WorkdirInUse, match=f'in use by process {os.getpid()} on ') as error:
      train.run(runs.config(), tmp_path)
    assert error.value.exit_code == 5
    with pytest.raises(WorkdirInUse), workdir.locked(tmp_path):
      pass
    assert runs.contents(tmp_path) == before
  with workdir.locked(tmp_path):
    pass  # free again


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(WriteError, match='cannot be written') as error:
    train.run(runs.config(), tmp_path / 'file' / 'run')
  assert error.value.exit_code == 4
  if os.geteuid():  # root writes anywhere
    tmp_path.chmod(0o500)
    with pytest.raises(WriteError, match='cannot be written: Permission denied'):
      train.run(runs.config(), tmp_path / 'run')


@pytest.mark.parametrize('name', ['adamw', 'sgd'])
def test_a_run_that_is_not_finite_stops_and_saves_only_finite_numbers(tmp_path, name):
  config = runs.config(encoding='rope', optim__name=name, optim__learning_rate=2e9, optim__clip_norm=0.0, num_train_steps=60)
  config.update_from_flattened_dict({'checkpoint_every_steps': 1, 'eval_every_steps': 1, 'optim.weight_decay': 1.0})
  with pytest.raises(NotFinite, match=r'step \d+: (loss|validation loss) .*learning_rate') as error:
    train.run(config, tmp_path)
  assert (error.value.exit_code, '\n' in str(error.value)) == (7, False)
  checkpoints = Checkpoints(tmp_path, read_only=True)
  for saved in checkpoints.steps():
    tree, _ = checkpoints.restore(saved, checkpoints._on_one_device(checkpoints._there(saved)))  # parameters and optimizer
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(tree))
  checkpoints.close()
  assert all(np.isfinite(list(r.values())).all() for r in metrics.read(tmp_path / 'metrics.jsonl'))


@pytest.mark.parametrize('where', ['loss', 'update'])
def test_what_is_not_finite_is_not_applied(where):
  config = resolve.resolve(runs.config(encoding='nope', optim__name='sgd', optim__clip_norm=0.0))
  enc, tx = encodings.make('nope', model.dims(config)), optim.make(config)
  if where == 'update':  # loss and gradient are finite, the new parameters would not be
    tx = tx._replace(update=lambda g, opt, params: (jax.tree.map(lambda x: x + jnp.inf, g), opt))
  state = step.init(config, enc, tx)
  if where == 'loss':
    decoder = state.params['decoder'] | {'final_norm': {'scale': jnp.full(16, jnp.nan)}}
    state = step.State(state.params | {'decoder': decoder}, state.opt, state.step, state.key, state.finite)
  after, numbers = jax.jit(step.make(config, enc, tx))(state, batch_of_ones())
  assert not numbers['finite']
  assert not after.finite
  kept = [(state.params, after.params), (state.opt, after.opt), (state.step, after.step)]
  for a, b in zip(jax.tree.leaves([k[0] for k in kept]), jax.tree.leaves([k[1] for k in kept])):
    np.testing.assert_array_equal(a, b)


def batch_of_ones(rows=2, length=16):
  one = np.ones((rows, length), np.int32)
  pos = np.broadcast_to(np.arange(length, dtype=np.int32), one.shape)
  return {'tokens': one, 'targets': one, 'weight': one.astype(np.float32), 'doc': one, 'pos': pos, 'row': np.arange(rows, dtype=np.int32)}


def test_the_newest_and_the_best_checkpoints_are_kept(tmp_path):
  checkpoints = Checkpoints(tmp_path, keep=2)
  for n, loss in enumerate([3.0, 1.0, 2.0, None, 5.0, None], 1):
    checkpoints.save(n, {'params': {'decoder': {'x': jnp.full(3, n)}, 'encoding': {}}}, {'position': {}, 'targets': n}, loss)
  checkpoints.close()
  again = Checkpoints(tmp_path, keep=2)
  assert (again.steps(), again.best(), again.latest()) == ([2, 5, 6], 2, 6)
  again.save(7, {'params': {'decoder': {'x': jnp.full(3, 7)}, 'encoding': {}}}, {'position': {}, 'targets': 7}, 0.5)
  again.close()
  reader = Checkpoints(tmp_path, read_only=True)
  assert (reader.steps(), reader.best()) == ([6, 7], 7)
  np.testing.assert_array_equal(reader.restore_params(7)['decoder']['x'], [7, 7, 7])
  reader.close()


def test_a_state_saved_on_four_devices_is_the_same_on_one_and_on_eight(tmp_path):
  config = resolve.resolve(runs.config(encoding='learned', batch_size=8))
  enc, tx = encodings.make(config.encoding, model.dims(config)), optim.make(config)

  def on(data, fsdp):
    c = config.copy_and_resolve_references()
    c.unlock()
    c.update_from_flattened_dict({'mesh.data': data, 'mesh.fsdp': fsdp})
    spread = parallel.make(c, step.make(c, enc, tx), step.make_eval(c, enc), jax.devices())
    return spread, spread.put_state(step.init(c, enc, tx))

  spread, state = on(2, 2)
  state, _ = spread.step(state, spread.put_batch(batch_of_ones(8)))
  digest = fingerprint.digest(state)
  checkpoints = Checkpoints(tmp_path)
  checkpoints.save(1, state, {'position': {}, 'targets': 8})
  # The save is asynchronous and the next step donates the state it was given.
  state, _ = spread.step(state, spread.put_batch(batch_of_ones(8)))
  checkpoints.close()
  assert fingerprint.digest(state) != digest
  for shape in [(1, 1), (8, 1), (4, 2)]:
    reader = Checkpoints(tmp_path, read_only=True)
    like = on(*shape)[1]
    restored, progress = reader.restore(1, like)
    assert (fingerprint.digest(restored), progress['targets']) == (digest, 8)
    assert {name: [p.dtype, list(p.shape), p.sum] for name, p in fingerprint.of(restored).items()} == progress['arrays']
    assert jax.tree.structure(restored) == jax.tree.structure(like)
    for a, b in zip(jax.tree.leaves(restored), jax.tree.leaves(like)):
      assert (a.sharding, a.shape, a.dtype) == (b.sharding, b.shape, b.dtype)
    reader.close()


def test_a_checkpoint_of_another_shape_is_refused(tmp_path):
  checkpoints = Checkpoints(tmp_path)
  checkpoints.save(1, {'params': {'x': jnp.ones((4, 2))}}, {'targets': 1})
  checkpoints.close()
  reader = Checkpoints(tmp_path, read_only=True)
  for wrong in [{'x': jnp.ones((6, 2))}, {'x': jnp.ones((4, 2)), 'y': jnp.ones(1)}, {}]:
    with pytest.raises(ConfigDiffers, match='1: holds other arrays than this run'):
      reader.restore(1, {'params': wrong})
  reader.close()


def test_a_foreign_folder_among_the_checkpoints_is_set_aside_and_the_run_goes_on(tmp_path, capsys):
  folder = tmp_path / 'run'
  shutil.copytree(runs.trained('rope'), folder)
  (folder / 'DONE').unlink()
  (folder / 'checkpoints' / '7').mkdir()
  train.run(runs.config(encoding='rope'), folder)
  said = re.findall(r'^WARNING: .*', capsys.readouterr().err, re.MULTILINE)
  assert len(said) == 1
  assert re.search(r'checkpoints/7: not a whole checkpoint .*; moved to .*checkpoints_bad/7$', said[0])
  assert final(folder) == final(runs.trained('rope'))


def test_load_gives_the_parameters_alone():
  run = pe_jax.load(runs.trained('rope'))
  assert fingerprint.digest(run.params) == json.loads((runs.trained('rope') / 'DONE').read_text())['params_sha256']
  assert set(run.params) == {'decoder', 'encoding'}
  assert (run.step, run.params['encoding'], pe_jax.load(runs.trained('rope'), 'best').step) == (4, {}, 4)
  assert all(x.devices() == {jax.devices()[0]} for x in jax.tree.leaves(run.params))
  with pytest.raises(DataError, match=r'no checkpoint of step 3 \(there are 4\)') as error:
    pe_jax.load(runs.trained('rope'), 3)
  assert error.value.exit_code == 3


def test_a_folder_without_checkpoints_is_a_sentence(tmp_path):
  shutil.copy(runs.trained('rope') / 'config.json', tmp_path)
  for wanted in (None, 'best', 3):
    with pytest.raises(DataError, match='no checkpoint'):
      pe_jax.load(tmp_path, wanted)
  assert [p.name for p in tmp_path.iterdir()] == ['config.json']


def test_encodings_without_parameters_own_no_arrays():
  sizes = {}
  for name in ('nope', 'rope', 'alibi', 'sinusoidal', 'yarn(factor=2)'):
    config = resolve.resolve(runs.config(encoding=name))
    enc, tx = encodings.make(config.encoding, model.dims(config)), optim.make(config)
    state = jax.eval_shape(lambda config=config, enc=enc, tx=tx: step.init(config, enc, tx))
    assert state.params['encoding'] == {}
    sizes[name] = [x.shape for x in jax.tree.leaves(state)]
  assert len({str(s) for s in sizes.values()}) == 1


def test_the_decoder_starts_equal_under_every_encoding():
  started = []
  for name in ('nope', 'rope', 'learned', 't5'):
    config = resolve.resolve(runs.config(encoding=name))
    started.append(model.init(config, encodings.make(name, model.dims(config)), jax.random.PRNGKey(config.seed))['decoder'])
  assert len({fingerprint.digest(s) for s in started}) == 1


def starting_params(**changes):
  """(params of a new run with init_from, what they would be without)"""
  config = resolve.resolve(runs.config(**changes))
  init_from.check(config)
  fresh = model.init(config, encodings.make(config.encoding, model.dims(config)), jax.random.PRNGKey(7))
  return init_from.params(config, fresh), fresh


def test_a_run_starts_from_another_under_a_map_at_four_times_the_length(tmp_path):
  source = runs.trained('rope')
  run = pe_jax.load(source)
  started, _ = starting_params(encoding='yarn(factor=4)', train_length=64, init_from=str(source))
  assert fingerprint.digest(started) == fingerprint.digest(run.params)
  config = runs.config(encoding='yarn(factor=4)', train_length=64, init_from=str(source), eval_every_steps=1, optim__learning_rate=1e-5)
  loss = train.run(config, tmp_path)
  fresh = pe_jax.load(tmp_path)
  assert (fresh.config.encoding, fresh.config.train_length, np.isfinite(loss)) == ('yarn(factor=4)', 64, True)
  # It began where the other ended, so after four careful steps the parameters are near, and they did move.
  far = [float(jnp.abs(a - b).max()) for a, b in zip(jax.tree.leaves(fresh.params), jax.tree.leaves(run.params))]
  assert 0 < max(far) < 1e-4


def test_a_position_table_grows_only_by_name():
  source = str(runs.trained('learned'))
  old = np.asarray(pe_jax.load(source).params['encoding']['table'])
  with pytest.raises(ConfigError, match=r"has 16 rows there and 32 here \(init_resize='extend' or 'interpolate'"):
    starting_params(encoding='learned', train_length=32, init_from=source)
  started, fresh = starting_params(encoding='learned', train_length=32, init_from=source, init_resize='extend')
  table = np.asarray(started['encoding']['table'])
  np.testing.assert_array_equal(table[:16], old)
  np.testing.assert_array_equal(table[16:], fresh['encoding']['table'][16:])
  started, _ = starting_params(encoding='learned', train_length=31, init_from=source, init_resize='interpolate')
  table = np.asarray(started['encoding']['table'])
  np.testing.assert_array_equal(table[[0, -1]], old[[0, -1]])
  np.testing.assert_allclose(table[::2], old, atol=1e-6)
  np.testing.assert_allclose(table[1::2], (old[1:] + old[:-1]) / 2, atol=1e-6)
  shorter, _ = starting_params(encoding='learned', train_length=8, init_from=source, init_resize='extend')
  np.testing.assert_array_equal(shorter['encoding']['table'], old[:8])


@pytest.mark.parametrize(
  ('changes', 'match'),
  [
    ({'model__embed_dim': 32}, 'model.embed_dim=16, this run 32'),
    ({'model__num_layers': 2}, 'model.num_layers=1, this run 2'),
    ({'model__mlp': 'relu'}, 'model.mlp=gelu, this run relu'),
    ({'encoding': 'learned'}, r'model.embed_scale=1.0, this run 4.0 \(set model.embed_scale=1.0'),
    ({'init_from': '/nowhere'}, 'no config.json there'),
  ],
)
def test_a_source_that_cannot_serve_is_refused_before_anything_is_written(tmp_path, changes, match):
  config = runs.config(**({'encoding': 'rope', 'init_from': str(runs.trained('rope'))} | changes))
  with pytest.raises((ConfigError, DataError), match=match):
    train.run(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_a_parameter_that_would_be_dropped_is_refused(tmp_path):
  source = runs.trained('rope', model__tie_head=False)
  with pytest.raises(ConfigError, match=r"has the parameter \['decoder'\]\['head'\]\['kernel'\] and this run has none"):
    train.run(runs.config(encoding='rope', init_from=str(source)), tmp_path / 'run')
  with pytest.raises(ConfigError, match='16 rows there and 32 here'):
    train.run(runs.config(encoding='learned', train_length=32, init_from=str(runs.trained('learned'))), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_the_embedding_keeps_the_scale_it_was_trained_at():
  # sqrt(D) where a table is added to the embeddings; reading such a checkpoint as 'nope' must not shrink them.
  assert pe_jax.load(runs.trained('learned')).config.model.embed_scale == 4.0
  assert pe_jax.load(runs.trained('rope')).config.model.embed_scale == 1.0


def test_a_second_signal_changes_nothing_and_none_is_left_behind(tmp_path):
  import signal

  before = signal.getsignal(signal.SIGTERM)
  with signals.noted() as caught:
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    assert caught == ['SIGTERM', 'SIGINT']
  assert signal.getsignal(signal.SIGTERM) == before
  assert Preempted('').exit_code == 75
