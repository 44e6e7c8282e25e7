"""Several seeds in one process: each is the run it would be alone, however they were begun, stopped and continued."""

import json
import os
import signal

import jax
import numpy as np
import pytest
import tiny_runs as runs

import pe_jax
from pe_jax import fingerprint, metrics, owner, seeds, step, train, workdir
from pe_jax.errors import ConfigDiffers, ConfigError, NotFinite, Preempted, WorkdirInUse

pytestmark = pytest.mark.xdist_group('seeds')  # what is made once in a process is used by all of the file

SEEDS = (101, 102, 103)
# Dropout, positions drawn in training and micro-batches: all that a step draws or adds up, for each seed its own.
CHANGES = {'encoding': 'randomized(learned(max_length=32), range=32)', 'batch_size': 16, 'accumulate': 2, 'model__dropout': 0.1}
CHANGES |= {'num_train_steps': 8, 'eval_every_steps': 3, 'checkpoint_every_steps': 2, 'mesh__data': 1}


@pytest.fixture(autouse=True, scope='module')
def quick():
  with runs.quick_compiles():
    yield


def folders(path, which=SEEDS):
  return {seed: path / f'run-{seed}' for seed in which}


def alone(seed):
  """The folder of that seed's run alone, made once."""
  return runs.trained(**CHANGES, seed=seed)


def done(folder):
  return json.loads((folder / 'DONE').read_text())


def assert_same_run(folder, other):
  """The same steps and counts, numbers and parameters to 1e-5."""
  ours, theirs = (metrics.read(f / 'metrics.jsonl') for f in (folder, other))
  assert len(ours) > 6
  for row, want in zip(ours, theirs, strict=True):
    assert row.keys() == want.keys()
    exact = {'step', 'targets', 'learning_rate', 'validation_targets'}
    assert {k: v for k, v in row.items() if k in exact} == {k: v for k, v in want.items() if k in exact}
    assert row == pytest.approx(want, rel=1e-5, abs=1e-5)
  run, want = (pe_jax.load(f) for f in (folder, other))
  assert (run.step, run.config.to_dict()) == (want.step, want.config.to_dict())
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=0), run.params, want.params)


def names(folder):
  return [name for name in runs.contents(folder) if not name.startswith('checkpoints/')] + sorted(
    p.name for p in (folder / 'checkpoints').iterdir()
  )


def test_three_seeds_together_are_the_three_runs_alone(tmp_path, capsys):
  together = folders(tmp_path)
  losses = seeds.run(runs.config(**CHANGES), together)
  for seed, folder in together.items():
    assert_same_run(folder, alone(seed))
    assert names(folder) == names(alone(seed))
    assert losses[seed] == done(folder)['validation_loss'] == pytest.approx(done(alone(seed))['validation_loss'], abs=1e-5)
    assert done(folder)['params_sha256'] == fingerprint.digest(pe_jax.load(folder).params)
    for name in ('config.json', 'data.json'):
      assert (folder / name).read_bytes() == (alone(seed) / name).read_bytes()
    environment = json.loads((folder / 'env.json').read_text())
    assert environment.pop('seeds_together') == list(SEEDS)
    assert environment == json.loads((alone(seed) / 'env.json').read_text())
  assert len({fingerprint.digest(pe_jax.load(folder).params) for folder in together.values()}) == 3
  before = {seed: runs.contents(folder) for seed, folder in together.items()}
  assert seeds.run(runs.config(**CHANGES), together) == losses
  assert train.run(runs.config(**CHANGES, seed=102), together[102]) == losses[102]
  assert capsys.readouterr().err.count('finished already (8 steps)') == 4
  assert {seed: runs.contents(folder) for seed, folder in together.items()} == before


@pytest.mark.parametrize(
  'changes',
  [
    {'encoding': 'drope(rope, last=0.5)', 'mesh__data': 1},  # another record from step 4 on
    {'encoding': 'learned', 'batch_size': 16, 'mesh__data': 4, 'mesh__fsdp': 2},
  ],
)
def test_a_schedule_and_a_mesh_serve_several_seeds_too(tmp_path, changes):
  changes = changes | {'num_train_steps': 7}
  together = folders(tmp_path, (101, 102))
  seeds.run(runs.config(**changes), together)
  assert_same_run(together[102], runs.trained(**changes, seed=102))


def stopping(monkeypatch, at):
  """A SIGTERM when a row of that step is first written."""
  write = metrics.Log.metrics

  def wrapped(log, row):
    write(log, row)
    if row['step'] == at:
      monkeypatch.setattr(metrics.Log, 'metrics', write)
      os.kill(os.getpid(), signal.SIGTERM)

  monkeypatch.setattr(metrics.Log, 'metrics', wrapped)


def newest(folder):
  return max(int(p.name) for p in (folder / 'checkpoints').iterdir())


def test_runs_go_on_together_and_alone_in_turn(tmp_path, monkeypatch, capsys):
  config, together = runs.config(**CHANGES), folders(tmp_path)
  stopping(monkeypatch, 4)
  with pytest.raises(Preempted, match='saved at step 5'):
    train.run(runs.config(**CHANGES, seed=101), together[101])
  stopping(monkeypatch, 1)
  with pytest.raises(Preempted) as error:
    seeds.run(config, together)  # the others begin, and the first waits for them
  assert [str(error.value).count(text) for text in ('run-102: stopped by SIGTERM and saved at step 3', 'run-103: stopped')] == [1, 1]
  said = capsys.readouterr().err
  assert 'run-101: waits at step 5 for the seeds that are behind' in said
  assert 'goes on in another environment, so equal to rounding and not bit for bit:\n  + seeds_together: [101, 102, 103]' in said
  assert [newest(folder) for folder in together.values()] == [5, 3, 3]
  train.run(runs.config(**CHANGES, seed=103), together[103])
  losses = seeds.run(config, together)
  assert 'run-103: finished already' in capsys.readouterr().err
  assert list(losses) == [103, 101, 102]
  for seed in SEEDS:
    assert_same_run(together[seed], alone(seed))


def spoil(monkeypatch, seed):
  """That seed begins with parameters that are not finite."""
  init = step.init

  def spoilt(config, *args):
    state = init(config, *args)
    if config.seed != seed:
      return state
    return step.State(jax.tree.map(lambda x: x * np.inf, state.params), state.opt, state.step, state.key, state.finite)

  monkeypatch.setattr(step, 'init', spoilt)


def take_over(monkeypatch, name):
  """Another process claims the folder of that name as soon as it is claimed here."""
  claim = owner.claim

  def claimed(folder):
    still_mine = claim(folder)
    if folder.name == name:
      workdir.write_json(folder / 'OWNER', {'token': 'another', 'process': 1, 'host': 'elsewhere'})
    return still_mine

  monkeypatch.setattr(owner, 'claim', claimed)


def test_a_seed_that_is_not_finite_ends_and_the_others_do_not(tmp_path, monkeypatch, capsys):
  spoil(monkeypatch, 102)
  together = folders(tmp_path)
  with pytest.raises(NotFinite, match=r'run-102: step 1: loss nan') as error:
    seeds.run(runs.config(**CHANGES), together)
  assert (error.value.exit_code, 'run-101' in str(error.value), '\n' in str(error.value)) == (7, False, False)
  assert 'the other seeds go on' in capsys.readouterr().err
  assert not (together[102] / 'DONE').exists()
  for seed in (101, 103):
    assert_same_run(together[seed], alone(seed))
  with pytest.raises(NotFinite, match='run-102: step 1: '):
    seeds.run(runs.config(**CHANGES), together)


def test_a_seed_whose_folder_is_taken_over_ends_and_the_others_do_not(tmp_path, monkeypatch, capsys):
  take_over(monkeypatch, 'run-102')
  together = folders(tmp_path)
  with pytest.raises(WorkdirInUse) as error:
    seeds.run(runs.config(**CHANGES), together)
  assert 'run-102: taken over by process 1 on elsewhere' in str(error.value)
  assert 'run-101' not in str(error.value)
  assert 'the other seeds go on' in capsys.readouterr().err
  assert not [p for p in (together[102] / 'checkpoints').iterdir() if p.name.isdecimal()]
  for seed in (101, 103):
    assert_same_run(together[seed], alone(seed))


def test_a_seed_that_is_not_finite_beside_one_that_is_taken_over_is_told_with_the_code_of_what_may_be_tried_again(tmp_path, monkeypatch):
  """So that no sweep writes down that both were not finite: once the other is done elsewhere, this one comes to it again, alone."""
  spoil(monkeypatch, 102)
  take_over(monkeypatch, 'run-103')
  together = folders(tmp_path)
  with pytest.raises(WorkdirInUse, match=r'run-102: step 1: loss nan.*; \S+run-103: taken over by process 1') as error:
    seeds.run(runs.config(**CHANGES), together)
  assert error.value.exit_code == 5
  assert_same_run(together[101], alone(101))


def test_what_takes_one_seed_at_a_time_is_refused_before_anything_is_written(tmp_path, monkeypatch):
  together = folders(tmp_path / 'new')
  with pytest.raises(ConfigError, match=r"--seeds: .* under parallel='jit', and this config has 'pmap'"):
    seeds.run(runs.config(parallel='pmap'), together)
  with pytest.raises(ConfigError, match='seed: -1 must be at least 0'):
    seeds.run(runs.config(), folders(tmp_path / 'new', (5, -1)))
  monkeypatch.setattr(jax, 'process_count', lambda: 2)
  with pytest.raises(ConfigError, match=r'--seeds: .* in one process, and this is one of 2'):
    seeds.run(runs.config(), together)
  assert not (tmp_path / 'new').exists()


def test_a_folder_that_is_held_or_holds_something_else_stops_all_before_anything_is_written(tmp_path):
  together = folders(tmp_path / 'held')
  with workdir.locked(together[103]), pytest.raises(WorkdirInUse, match='run-103: in use by process'):
    seeds.run(runs.config(), together)
  assert [p.name for p in (tmp_path / 'held').iterdir()] == ['run-103']
  other = folders(tmp_path / 'other') | {102: alone(101)}
  with pytest.raises(ConfigDiffers, match=r'- seed: 101\n +\+ seed: 102'):
    seeds.run(runs.config(**CHANGES), other)
  assert not (tmp_path / 'other').exists()


def test_seeds_that_are_killed_three_times_end_with_the_bits_of_those_that_are_not(tmp_path):
  command = ['train.py', f'--config={runs.home() / "tiny.py"}:learned', '--seeds=101,102,103', '--config.model.dropout=0.1']
  code, out, err = runs.finish(runs.start(*command, f'--workdir={tmp_path}/whole-{{seed}}'))
  assert (code, out, 'Traceback' in err) == (0, '', False), err
  # The last one comes when the first seed has all its steps and the others have not saved theirs.
  for kill, wanted in (('SIGKILL step 12', -9), ('SIGTERM step 17', 75), ('SIGKILL DONE', -9), ('', 0)):
    code, out, err = runs.finish(runs.start(*command, f'--workdir={tmp_path}/cut-{{seed}}', STOP_AT=kill))
    assert (code, out, 'Traceback' in err) == (wanted, '', False), (kill, err)
    assert err.count('saved at step 19') == (3 if wanted == 75 else 0), err
  for seed in SEEDS:
    cut, whole = (tmp_path / f'{name}-{seed}' for name in ('cut', 'whole'))
    assert done(cut) == done(whole)
    assert (cut / 'metrics.jsonl').read_bytes() == (whole / 'metrics.jsonl').read_bytes()
