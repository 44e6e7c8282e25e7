"""A run in a bucket: everything but the arrays of checkpoints, on a stand-in that has objects and no files; and early, clear refusals.

The stand-in is fsspec's file system in memory under the name gs://. The arrays of checkpoints stay on disk, for tensorstore reaches buckets
by itself; what is around them (which steps there are, the leftovers of a lost machine, what is set aside) is tried on objects.
"""

import contextlib
import errno
import functools
import json
import os
import re
import signal
import subprocess
import sys

import pytest
import saved_runs as saves
import tiny_runs as runs
from etils.epath import backend
from fsspec.implementations import memory
from orbax.checkpoint._src.path import gcs_utils

import pe_jax
from pe_jax import checkpoint, config, evaluate, metrics, once, owner, remote, resolve, train, workdir
from pe_jax import run as run_lib
from pe_jax.data.sources import text
from pe_jax.errors import ConfigDiffers, ConfigError, DataError, Preempted, WorkdirInUse


class Bucket(memory.MemoryFileSystem):
  """gs://mine, in this process."""

  protocol = ('gs', 'gcs')
  store, pseudo_dirs = {}, ['']

  @classmethod
  def _strip_protocol(cls, path):
    path = os.fspath(path).removeprefix('gs://').strip('/')
    return f'/{path}' if path else ''


@pytest.fixture
def bucket(monkeypatch):
  """The stand-in, with nothing in it."""
  Bucket.store.clear()
  Bucket.pseudo_dirs[:] = ['']
  found = Bucket()
  found.mkdir('/mine')
  monkeypatch.setattr(backend.fsspec_backend, 'fs', lambda path: found)
  monkeypatch.setattr(gcs_utils, 'is_hierarchical_namespace_enabled', lambda path: False)  # would ask Google
  real = remote.importlib.util.find_spec
  monkeypatch.setattr(remote.importlib.util, 'find_spec', lambda name, *more: name == 'gcsfs' or real(name, *more))
  return found


@pytest.fixture(autouse=True, scope='module')
def quick():
  with runs.quick_compiles():
    yield


def test_a_whole_run_in_a_bucket_writes_what_one_on_a_disk_writes(tmp_path, monkeypatch, bucket, capsys):
  settings = runs.config(
    encoding='rope', num_train_steps=12, checkpoint_every_steps=4, eval_every_steps=6, tensorboard=True, log_batches=True
  )
  monkeypatch.setattr(owner, 'claim', functools.partial(owner.claim, settle=0))
  train.run(settings, tmp_path / 'disk')
  real = checkpoint.Checkpoints
  for module in (checkpoint, run_lib):
    monkeypatch.setattr(module, 'Checkpoints', lambda folder, *more, **named: real(tmp_path / 'of_bucket', *more, **named))
  write = metrics.Log.metrics

  def and_stop(log, row):
    write(log, row)
    if row['step'] == 7:
      os.kill(os.getpid(), signal.SIGTERM)

  monkeypatch.setattr(metrics.Log, 'metrics', and_stop)
  with pytest.raises(Preempted, match='gs://mine/run: stopped by SIGTERM and saved at step 8'):
    train.run(settings, 'gs://mine/run')
  assert [r['step'] for r in metrics.read('gs://mine/run/metrics.jsonl') if 'loss' in r] == list(range(1, 9))
  monkeypatch.setattr(metrics.Log, 'metrics', write)
  train.run(settings, 'gs://mine/run')
  for name in ('config.json', 'data.json', 'metrics.jsonl', 'batches.jsonl', 'DONE'):
    assert bucket.cat(f'gs://mine/run/{name}') == (tmp_path / 'disk' / name).read_bytes(), name
  said = capsys.readouterr().err
  assert 'gs://mine/run: TensorBoard is written on local disks only' in said
  written = {path.removeprefix('/mine/run/') for path in bucket.find('gs://mine/run')}
  logs = {'metrics.jsonl', 'timing.jsonl', 'batches.jsonl'}
  assert written == {'config.json', 'env.json', 'data.json', 'OWNER', 'DONE'} | logs

  train.run(settings, 'gs://mine/run')
  assert 'gs://mine/run: finished already (12 steps)' in capsys.readouterr().err
  with pytest.raises(ConfigDiffers, match='gs://mine/run: holds a run of another configuration'):
    train.run(runs.config(encoding='alibi'), 'gs://mine/run')
  loaded = pe_jax.load('gs://mine/run')
  rows = loaded.evaluate([16], max_targets=300)
  for _ in range(2):
    evaluate.write('gs://mine/run', rows)
  assert [r['length'] for r in metrics.read('gs://mine/run/eval/nonoverlapping.jsonl')] == [16, 16]
  assert not (tmp_path / 'gs:').exists()


SWEEP = """
from pe_jax.config import default

def get_config(arg=''):
  c = default()
  c.train_length, c.num_train_steps = 16, 10
  return c

def sweep(done, folder):
  for name in 'abc':
    yield name, {'encoding': 'rope', 'seed': ord(name)}
  if 'a' in done:
    yield 'after', {'init_from': f'{folder}/a'}, ()

def evaluation():
  return {'lengths': [16]}
"""
# A bucket in which `a` is done and `b` is trained, and then the script.
PRINT = """
import runpy, sys
import test_remote
from pe_jax import remote, workdir
from etils.epath import backend
bucket, real = test_remote.Bucket(), remote.importlib.util.find_spec
bucket.mkdir('/mine')
backend.fsspec_backend.fs = lambda path: bucket
remote.importlib.util.find_spec = lambda name, *more: name == 'gcsfs' or real(name, *more)
for name in 'ab':
  workdir.write_json(f'gs://mine/x/{name}/DONE', {'step': 10, 'validation_loss': 1.5, 'params_sha256': ''})
workdir.write_json('gs://mine/x/a/eval/sweep-0.done', {'arguments': ['--lengths=16']})
sys.argv[0] = 'scripts/sweep.py'
runpy.run_path(sys.argv[0], run_name='__main__')
"""


def test_the_lines_of_a_sweep_in_a_bucket_are_those_of_the_runs_that_are_not_done_there(tmp_path):
  (tmp_path / 'sweep.py').write_text(SWEEP)
  program = f'import sys\nsys.path.insert(0, {str(runs.ROOT / "tests")!r})\n{PRINT}'
  flags = [f'--config={tmp_path / "sweep.py"}', '--workdir=gs://mine/x', '--launcher=print']
  done = subprocess.run([sys.executable, '-c', program, *flags], cwd=runs.ROOT, env=runs.environment(), capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  assert re.findall(r'--workdir=gs://mine/x/(\w+)', done.stdout) == ['b', 'b', 'c', 'c', 'after']


def test_the_lines_of_a_sweep_in_a_bucket_that_cannot_be_read_are_all_and_this_is_said(tmp_path):
  (tmp_path / 'sweep.py').write_text(SWEEP)
  program = "import importlib.util, runpy, sys\nreal = importlib.util.find_spec\nsys.argv[0] = 'scripts/sweep.py'\n"
  program += "importlib.util.find_spec = lambda name, *more: None if name == 'gcsfs' else real(name, *more)\n"
  program += "runpy.run_path(sys.argv[0], run_name='__main__')\n"
  flags = [f'--config={tmp_path / "sweep.py"}', '--workdir=gs://mine/x', '--launcher=print']
  done = subprocess.run([sys.executable, '-c', program, *flags], cwd=runs.ROOT, env=runs.environment(), capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  first, *lines = done.stdout.splitlines()
  assert first.startswith('# --workdir: gs://mine/x needs the gcsfs package (')
  assert first.endswith('; so all runs of the first stage are printed, also finished ones, and none of later stages')
  assert re.findall(r'train.py \S+ --workdir=gs://mine/x/(\w+)', '\n'.join(lines)) == ['a', 'b', 'c']


def put(bucket, step, of=4, leave_out=()):
  """A checkpoint as objects; `of`: the step whose files it has."""
  root = saves.written() / 'checkpoints' / str(of)
  for name in saves.files(saves.written(), of):
    if name not in leave_out:
      bucket.pipe(f'/mine/run/checkpoints/{step}/{name}', (root / name).read_bytes())


def objects(bucket, folder):
  """{name: bytes} below a folder of the run."""
  root = f'/mine/run/{folder}/'
  return {path.removeprefix(root): bucket.cat(path) for path in bucket.find(root)}


def test_checkpoints_of_a_run_in_a_bucket_are_there_and_not_on_the_machine(bucket, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  put(bucket, 4)
  with contextlib.closing(checkpoint.Checkpoints('gs://mine/run')) as checkpoints:
    assert (checkpoints.steps(), checkpoints.best()) == ([4], 4)
  assert workdir.newest_step('gs://mine/run') == 4
  assert list(tmp_path.iterdir()) == []


CUT = {
  'arrays only': ('commit_success.txt', 'progress/metadata', 'state/_METADATA'),
  'nothing but its mark missing': ('commit_success.txt',),
}


@pytest.mark.parametrize('missing', CUT.values(), ids=CUT)
def test_what_a_machine_lost_while_saving_leaves_in_a_bucket_is_removed(bucket, missing, capsys):
  put(bucket, 6, leave_out=missing)
  with contextlib.closing(checkpoint.Checkpoints('gs://mine/run')) as checkpoints:  # at the first save
    assert (checkpoints.steps(), objects(bucket, 'checkpoints'), objects(bucket, 'checkpoints_bad')) == ([], {}, {})
    assert checkpoints.restore_newest(saves.state(0)) is None
  put(bucket, 2, 2)
  put(bucket, 4)
  put(bucket, 6, leave_out=missing)
  reading = checkpoint.Checkpoints('gs://mine/run', read_only=True)
  assert (reading.steps(), reading.latest(), reading.best()) == ([2, 4], 4, 4)
  assert objects(bucket, 'checkpoints/6')  # who only reads removes nothing, the save may be under way
  kept = objects(bucket, 'checkpoints/2'), objects(bucket, 'checkpoints/4')
  with contextlib.closing(checkpoint.Checkpoints('gs://mine/run')) as checkpoints:
    assert (checkpoints.steps(), checkpoints.latest()) == ([2, 4], 4)
  assert objects(bucket, 'checkpoints/6') == {}
  assert not bucket.exists('/mine/run/checkpoints_bad')
  assert kept == (objects(bucket, 'checkpoints/2'), objects(bucket, 'checkpoints/4'))
  assert 'WARNING' not in capsys.readouterr().err


def test_a_damaged_checkpoint_in_a_bucket_is_set_aside_whole(bucket, capsys):
  put(bucket, 2, 2)
  for aside in ('4', '4.1'):  # the second finds the folder there
    put(bucket, 4)
    bucket.pipe('/mine/run/checkpoints/4/progress/metadata', b'{"torn')
    was = objects(bucket, 'checkpoints/4')
    with contextlib.closing(checkpoint.Checkpoints('gs://mine/run')) as checkpoints:
      assert checkpoints.steps() == [2]
    assert 'checkpoints/4: progress/metadata: ' in (said := capsys.readouterr().err)
    assert said.endswith(f'moved to gs://mine/run/checkpoints_bad/{aside}\n')
    assert (objects(bucket, 'checkpoints/4'), objects(bucket, f'checkpoints_bad/{aside}')) == ({}, was)


def test_a_folder_that_cannot_be_renamed_is_copied(tmp_path, monkeypatch):
  (tmp_path / 'a' / 'inner').mkdir(parents=True)
  (tmp_path / 'a' / 'inner' / 'x').write_text('x')

  def rename(*_):
    raise OSError(errno.EXDEV, 'Invalid cross-device link')

  monkeypatch.setattr(os, 'rename', rename)
  remote.move(tmp_path / 'a', tmp_path / 'b')
  assert [p.relative_to(tmp_path).as_posix() for p in sorted(tmp_path.rglob('*'))] == ['b', 'b/inner', 'b/inner/x']


def test_rows_wait_for_the_checkpoint_and_those_past_a_restored_one_are_dropped(bucket):
  settings = resolve.resolve(runs.config())
  log = metrics.Log('gs://mine/log', 0, settings)
  for n in (1, 2, 3):
    log.metrics({'step': n, 'loss': 1.0})
  assert metrics.read('gs://mine/log/metrics.jsonl') == []
  log.flush()
  log.metrics({'step': 4, 'loss': 1.0})
  log.close()
  assert [r['step'] for r in metrics.read('gs://mine/log/metrics.jsonl')] == [1, 2, 3, 4]
  metrics.Log('gs://mine/log', 2, settings).close()
  assert [r['step'] for r in metrics.read('gs://mine/log/metrics.jsonl')] == [1, 2]


def test_rows_that_wait_are_dropped_once_the_bucket_is_another_writers(bucket):
  writer = owner.Writer(owner.claim('gs://mine/taken', settle=0))
  log = metrics.Log('gs://mine/taken', 0, resolve.resolve(runs.config()), writer.holds)
  log.metrics({'step': 1})
  log.flush()
  log.metrics({'step': 2})
  owner.claim('gs://mine/taken', settle=0)
  log.flush()
  log.metrics({'step': 3})
  log.close()
  assert metrics.read('gs://mine/taken/metrics.jsonl') == [{'step': 1}]
  with pytest.raises(WorkdirInUse):
    writer()


def test_in_a_bucket_the_token_alone_leaves_one_writer(bucket):
  with workdir.locked('gs://mine/two') as folder:
    assert not owner.locks_hold(folder)
    first, second = (owner.claim(folder, settle=0) for _ in range(2))
    second()
    with pytest.raises(WorkdirInUse, match=r'gs://mine/two: taken over by process .*let only one train there') as error:
      first()
  assert error.value.exit_code == 5
  assert [path.removeprefix('/mine/two/') for path in bucket.find('gs://mine/two')] == ['OWNER']


def test_an_evaluation_with_a_label_is_done_once_in_a_bucket_too(bucket):
  workdir.write('gs://mine/once/config.json', config.to_json(resolve.resolve(runs.config())))
  for needed in (True, False):
    with once.doing('gs://mine/once', 'mine', ['--lengths=16']) as wanted:
      assert wanted == needed
  with once.doing('gs://mine/once', 'mine', ['--lengths=32']) as wanted:  # something else: its rows of before go
    assert wanted
    rows = [{'protocol': 'prefix', 'label': name} for name in ('mine', 'other')]
    evaluate.write('gs://mine/once', rows)
  with once.doing('gs://mine/once', 'mine', ['--lengths=64']) as wanted:
    assert metrics.read('gs://mine/once/eval/prefix.jsonl') == rows[1:]


def test_changes_of_a_configuration_are_kept_in_a_bucket(bucket):
  for n in (1, 2):
    workdir.note_changes('gs://mine/changed', {'log_every_steps': (n, n + 1)}, overridden=False)
  rows = metrics.read('gs://mine/changed/config_history.jsonl')
  assert [row['changed'] for row in rows] == [{'log_every_steps': [1, 2]}, {'log_every_steps': [2, 3]}]


def test_another_environment_and_other_data_are_seen_in_a_bucket_too(bucket, capsys):
  with workdir.locked('gs://mine/env') as folder:
    workdir.write_environment(folder, {'cores': 2})
    workdir.write_environment(folder, {'cores': 4})
    workdir.write_json(folder / 'data.json', {'sha256': 'a'})
  assert '- cores: 2\n  + cores: 4' in capsys.readouterr().err
  with pytest.raises(DataError, match='the run began with other data'):
    workdir.check_data('gs://mine/env', {'sha256': 'b'})
  with pytest.raises(DataError, match=r'gs://mine/env: no config.json there'):
    workdir.read_config('gs://mine/env')
  assert json.loads(bucket.cat('gs://mine/env/env.json')) == {'cores': 4}


@pytest.mark.parametrize(
  ('raised', 'kind', 'says'),
  [
    (FileNotFoundError('gone'), DataError, 'workdir: there is no bucket gs://mine, or it may not be seen'),
    (
      OSError('Anonymous caller does not have storage.objects.list access'),
      DataError,
      'cannot be used: OSError: Anonymous .*auth application',
    ),
    (RuntimeError('HttpError 403: forbidden'), DataError, r'403: forbidden \(gcloud auth application-default login, or GOOGLE_APP'),
    (ConnectionError('no route to host'), DataError, r'no route to host \(try: gcloud storage ls gs://mine\)'),
    (None, DataError, r'gs://mine has not answered within 0\.2 s'),
  ],
)
def test_a_bucket_that_cannot_be_used_is_a_sentence_at_once(monkeypatch, bucket, raised, kind, says):
  import threading

  def ls(*_, **__):
    if raised is None:
      threading.Event().wait(5)
    raise raised or TimeoutError

  monkeypatch.setattr(remote, 'SECONDS', 0.2)
  monkeypatch.setattr(bucket, 'ls', ls)
  with pytest.raises(kind, match=says) as error:
    train.run(runs.config(), 'gs://mine/run')
  assert '\n' not in str(error.value)
  with pytest.raises(kind, match=says):
    pe_jax.load('gs://mine/run')


def test_a_bucket_without_gcsfs_is_refused_before_anything_is_asked_of_it(monkeypatch):
  real = remote.importlib.util.find_spec
  monkeypatch.setattr(remote.importlib.util, 'find_spec', lambda name, *more: None if name == 'gcsfs' else real(name, *more))
  monkeypatch.setattr(remote, '_within', lambda seconds, call: pytest.fail('the bucket was asked'))
  with pytest.raises(ConfigError, match=r"^workdir: gs://mine/run needs the gcsfs package \(pip install -e '\.\[gcs\]'\)$"):
    train.run(runs.config(), 'gs://mine/run')


def test_other_places_are_refused():
  for scheme in ('s3://', 'http://'):
    with pytest.raises(ConfigError, match=f"workdir: '{scheme}' is no place"):
      train.run(runs.config(), f'{scheme}somewhere/x')
  for place in ('gs://', 'gs:///folder'):
    with pytest.raises(ConfigError, match=rf'^workdir: {place} names no bucket \(gs://bucket/folder\)$'):
      remote.check(place, 'workdir')
  settings = config.default()
  settings.data.update(source='text', path='gs://b/text')
  with pytest.raises(ConfigError, match=r'data\.path: gs://b/text is in a bucket'):
    text.documents(settings.data, 'train')
