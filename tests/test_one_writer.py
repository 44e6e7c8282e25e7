"""One writer a workdir: by a lock that dies with its holder, and by the token alone where locks mean nothing."""

import errno
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
import tiny_runs as runs

from pe_jax import metrics, owner, resolve, train, workdir
from pe_jax.errors import WorkdirInUse, WriteError

# Takes hold of argv[1], says so, keeps it, and then asks whether it is still its own, as a save would; argv[2]: whether flock works.
START = """
import fcntl, sys, time
from pe_jax import owner, workdir
from pe_jax.errors import WorkdirInUse
if sys.argv[2] == 'nothing':
  fcntl.flock = lambda handle, kind: None
try:
  with workdir.locked(sys.argv[1]) as folder:
    still_mine = owner.claim(folder, settle=1.0)
    print('won', flush=True)
    sys.stdin.readline()
    still_mine()
    print('saved', flush=True)
except WorkdirInUse as error:
  print(f'lost {error.exit_code} {error}', flush=True)
"""


def starts(folder, count, flock='works'):
  """That many processes at once."""
  command = [sys.executable, '-c', START, str(folder), flock]
  pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'text': True}
  return [subprocess.Popen(command, cwd=runs.ROOT, **pipes) for _ in range(count)]


def test_of_eight_simultaneous_starts_exactly_one_wins(tmp_path):
  processes = starts(tmp_path, 8)
  said = [p.stdout.readline().split()[:2] for p in processes]
  winner = said.index(['won'])
  assert sorted(map(str, said)) == sorted(map(str, [['won'], *[['lost', '5']] * 7]))
  assert processes[winner].communicate('\n', timeout=30)[0] == 'saved\n'
  for p in processes:
    p.communicate(timeout=30)


def test_a_holder_that_is_killed_frees_the_folder(tmp_path):
  (first,) = starts(tmp_path, 1)
  assert first.stdout.readline() == 'won\n'
  with pytest.raises(WorkdirInUse, match=f'in use by process {first.pid} on ') as error:
    workdir.check_free(tmp_path)
  assert error.value.exit_code == 5
  first.send_signal(signal.SIGKILL)
  first.communicate(timeout=30)
  with workdir.locked(tmp_path) as folder:
    owner.claim(folder)()


def test_where_locks_mean_nothing_the_token_leaves_one_writer(tmp_path):
  processes = starts(tmp_path, 8, flock='nothing')
  said = [p.stdout.readline().split()[:2] for p in processes]
  alive = [p for p, word in zip(processes, said) if word == ['won']]
  answers = [p.communicate('\n', timeout=30)[0] for p in alive]
  assert [a for a in answers if a == 'saved\n'] == ['saved\n'], answers  # who won and lost it later stops before it writes
  assert all(a.startswith(('saved', 'lost 5')) for a in answers)
  for p in processes:
    p.communicate(timeout=30)


def test_a_later_start_takes_over_and_the_earlier_one_stops_at_its_next_save(tmp_path):
  (tmp_path / 'LOCK').touch()
  first = owner.claim(tmp_path, settle=0)
  first()
  second = owner.claim(tmp_path, settle=0)
  second()
  with pytest.raises(WorkdirInUse, match=f'taken over by process {os.getpid()} on .*let only one train there') as error:
    first()
  assert error.value.exit_code == 5
  kept = (tmp_path / 'OWNER').read_bytes()
  (tmp_path / 'OWNER').unlink()
  with pytest.raises(WorkdirInUse, match='OWNER is gone'):
    second()
  (tmp_path / 'OWNER').write_bytes(kept)
  with pytest.raises(WorkdirInUse, match='OWNER is gone'):  # what it has not written meanwhile is missing
    second()


@pytest.mark.parametrize('number', [errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS])
def test_a_file_system_without_locks_is_no_error(tmp_path, monkeypatch, number):
  def flock(handle, kind):
    raise OSError(number, os.strerror(number))

  monkeypatch.setattr(fcntl, 'flock', flock)
  with workdir.locked(tmp_path) as folder:
    assert not owner.locks_hold(folder)
    start = time.monotonic()
    owner.claim(folder, settle=0.3)()
    assert time.monotonic() - start > 0.3  # the time in which another start would show
  workdir.check_free(tmp_path)


def test_what_a_process_that_died_while_writing_has_left_is_removed_by_the_next_holder(tmp_path):
  with subprocess.Popen([sys.executable, '-c', '']) as over:
    pass
  alive = [f'.metrics.jsonl.{os.getppid()}', '.notes', '.notes.txt', 'metrics.jsonl.7', '.folder.4194304']
  for name in (f'.metrics.jsonl.{over.pid}', f'.DONE.{over.pid}', f'.env.json.{os.getpid()}', *alive[:4]):
    (tmp_path / name).write_text('half')
  (tmp_path / alive[4]).mkdir()
  before = set(runs.contents(tmp_path))
  with workdir.locked(tmp_path):
    pass
  assert before - set(runs.contents(tmp_path)) == {f'.metrics.jsonl.{over.pid}', f'.DONE.{over.pid}', f'.env.json.{os.getpid()}'}
  assert {p.name for p in tmp_path.iterdir()} == {'LOCK', *alive}


def test_who_does_not_get_the_lock_removes_nothing(tmp_path):
  with subprocess.Popen([sys.executable, '-c', '']) as over:
    pass
  with workdir.locked(tmp_path):
    (tmp_path / f'.DONE.{over.pid}').touch()
    with pytest.raises(WorkdirInUse), workdir.locked(tmp_path):
      pass
    assert (tmp_path / f'.DONE.{over.pid}').exists()


def test_a_file_that_cannot_be_written_leaves_nothing_beside_the_one_of_before(tmp_path, monkeypatch):
  workdir.write(tmp_path / 'DONE', 'before')

  def full(number):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  monkeypatch.setattr(os, 'fsync', full)
  with pytest.raises(WriteError, match='cannot be written: No space left on device'):
    workdir.write(tmp_path / 'DONE', 'after')
  assert runs.contents(tmp_path) == {'DONE': b'before'}


def test_locks_hold_here(tmp_path):
  with workdir.locked(tmp_path) as folder:
    assert owner.locks_hold(folder)


def test_no_row_is_written_to_a_log_that_is_another_processs_by_now(tmp_path, monkeypatch):
  """Taken over at step 3: neither the rows up to its next save nor anything at its end goes into the winner's files."""
  write, before = metrics.Log.metrics, {}

  def and_lose(log, row):
    if row['step'] == 3 and not before:
      workdir.write_json(tmp_path / 'OWNER', {'token': 'another', 'process': 1, 'host': 'elsewhere'})
      (tmp_path / 'metrics.jsonl').write_text('{"step": 9}\n')
      before.update(runs.contents(tmp_path))
    write(log, row)

  monkeypatch.setattr(metrics.Log, 'metrics', and_lose)
  with pytest.raises(WorkdirInUse, match='taken over by process 1 on elsewhere'), runs.quick_compiles():
    train.run(runs.config(encoding='nope', num_train_steps=6, checkpoint_every_steps=5, log_batches=True), tmp_path)
  assert before
  after = runs.contents(tmp_path)
  written = {name for name in before | after if before.get(name) != after.get(name)}
  assert written == set()
  log = metrics.Log(tmp_path, 0, resolve.resolve(runs.config(tensorboard=True)), lambda: False)  # lost while a checkpoint was read
  log.metrics({'step': 1})
  log.close()
  assert runs.contents(tmp_path) == after


def test_a_run_that_is_taken_over_writes_nothing_more(tmp_path, monkeypatch):
  claim = owner.claim

  def claimed(folder):
    still_mine = claim(folder)
    workdir.write_json(pathlib.Path(folder) / 'OWNER', {'token': 'another', 'process': 1, 'host': 'elsewhere'})
    return still_mine

  monkeypatch.setattr(owner, 'claim', claimed)
  with pytest.raises(WorkdirInUse, match='taken over by process 1 on elsewhere'), runs.quick_compiles():
    train.run(runs.config(encoding='nope'), tmp_path)
  assert not [p for p in (tmp_path / 'checkpoints').iterdir() if p.name.isdecimal()]
  assert not (tmp_path / 'DONE').exists()
  assert json.loads((tmp_path / 'OWNER').read_text())['token'] == 'another'
