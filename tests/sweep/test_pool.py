"""Processes side by side: what fails, hangs or is killed says why and touches no other, and nothing is left running."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from pe_jax.errors import Preempted
from pe_jax.sweep import child, slots, view
from pe_jax.sweep.pool import Limits, Pool, Task

QUICK = Limits(stall=2.0, grace=0.4, again=2)


@dataclasses.dataclass
class Shell(Task):
  """Shell commands, one after the other; `busy` for as long as a file is there."""

  name: str
  folder: pathlib.Path
  lines: list
  told: list = dataclasses.field(default_factory=list)

  def next(self, last):
    done = 0 if last is None else self.lines.index(last[-1]) + 1
    return ['sh', '-c', self.lines[done]] if done < len(self.lines) else None

  def held(self):
    return (self.folder / 'busy').exists()

  def failed(self, code, reason):
    self.told.append((code, reason))


def tasks(tmp_path, **named):
  return [Shell(name, tmp_path / name, [lines] if isinstance(lines, str) else lines) for name, lines in named.items()]


def finished(pool, seconds=20):
  """Steps the pool to its end."""
  end = time.monotonic() + seconds
  while pool.busy:
    assert time.monotonic() < end, (pool.running, pool.waiting, pool.held)
    pool.step()
    time.sleep(0.01)


def alive(pid):
  """Whether a process runs; a zombie does not."""
  try:
    return pathlib.Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[0] != 'Z'
  except OSError:
    return False


def gone(pids, seconds=10):
  end = time.monotonic() + seconds
  while any(map(alive, pids)) and time.monotonic() < end:
    time.sleep(0.02)
  return not any(map(alive, pids))


def test_each_ends_in_its_own_way_and_the_others_go_on(tmp_path, monkeypatch):
  given = tasks(
    tmp_path,
    good=['echo one >> ran', 'echo two >> ran'],
    says='echo reading; echo "ERROR: data.path: no text (give some)" >&2; exit 3',
    raises='echo "Traceback (most recent call last):"; echo "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: 80 GiB"; echo ---; exit 1',
    silent='exit 9',
    memory='kill -9 $$',
    broken='kill -SEGV $$',
    hangs='trap "" TERM; echo here; sleep 60 & sleep 60',
    again='echo x >> tries; test $(wc -l < tries) = 3 || exit 75',
    never='exit 75',
    lazy=['true', 'true'],
  )
  monkeypatch.chdir(tmp_path)
  with Pool([slots.Slot()] * 4, QUICK) as pool:
    for task in given:
      pool.add(task)
    finished(pool)
  assert sorted(pool.finished) == ['again', 'good']
  assert (tmp_path / 'ran').read_text() == 'one\ntwo\n'
  reasons = {name: failure.reason for name, failure in pool.failed.items()}
  assert reasons['says'] == 'data.path: no text (give some)'
  assert reasons['raises'].startswith('exit code 1: jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: 80 GiB (lower batch_size')
  assert reasons['silent'] == 'exit code 9: it printed nothing'
  assert reasons['memory'].startswith('killed by SIGKILL, as the kernel does when memory runs out (lower batch_size')
  assert reasons['broken'] == 'killed by SIGSEGV: it printed nothing'
  assert reasons['hangs'] == 'no sign of progress for 2 s, so it was stopped (--stall_minutes gives it longer)'
  assert reasons['never'] == 'stopped by a signal 3 times'
  assert reasons['lazy'] == 'ended with exit code 0 and left nothing done'
  assert {task.name: task.told for task in given if task.told} == {n: [(f.code, f.reason)] for n, f in pool.failed.items()}
  assert (tmp_path / 'says' / 'log.txt').read_text().splitlines()[0].startswith('$ sh -c ')
  assert len((tmp_path / 'tries').read_text().split()) == 3


def test_a_process_that_shows_progress_is_not_stopped(tmp_path):
  (slow,) = tasks(tmp_path, slow='for i in 1 2 3 4 5 6 7 8; do sleep 0.2; echo $i; done')
  with Pool([slots.Slot()], Limits(stall=1.0)) as pool:
    pool.add(slow)
    finished(pool)
  assert [*pool.finished] == ['slow']


def test_what_another_process_holds_is_left_alone_and_taken_when_it_is_let_go(tmp_path, monkeypatch):
  monkeypatch.setattr('pe_jax.sweep.pool.LOOK', 0.05)
  monkeypatch.setattr('pe_jax.sweep.pool.QUIET', 0.2)
  held, late = tasks(tmp_path, held='true', late='test -e seen || { touch seen; exit 5; }')
  (tmp_path / 'held').mkdir()
  (tmp_path / 'held' / 'busy').touch()
  monkeypatch.chdir(tmp_path)
  with Pool([slots.Slot()], QUICK) as pool:
    pool.add(held)
    pool.add(late)
    for _ in range(100):
      pool.step()
      time.sleep(0.01)
    assert ([*pool.held], [*pool.finished]) == (['held'], ['late'])  # exit code 5: somebody was quicker
    assert not (tmp_path / 'held' / 'log.txt').exists()
    (tmp_path / 'held' / 'busy').unlink()
    finished(pool)
  assert [*pool.finished] == ['late', 'held']


def test_what_another_process_takes_each_time_is_left_to_it(tmp_path, monkeypatch):
  """As where locks do not hold: who starts later takes over, and two sweeps could take a run from each other for ever."""
  monkeypatch.setattr('pe_jax.sweep.pool.LOOK', 0.01)
  monkeypatch.setattr('pe_jax.sweep.pool.QUIET', 0.1)
  (lost, *others) = tasks(tmp_path, lost='echo x >> tries; exit 5', good='true')
  monkeypatch.chdir(tmp_path)
  with Pool([slots.Slot()], QUICK) as pool:
    for task in (lost, *others):
      pool.add(task)
    began = time.monotonic()
    finished(pool)
  assert time.monotonic() - began > 0.2
  assert (tmp_path / 'tries').read_text().split() == ['x'] * 3
  assert ([*pool.left], [*pool.finished], [*pool.held], pool.failed, lost.told) == (['lost'], ['good'], [], {}, [])
  assert view.counts(pool) == '1 done, 1 held elsewhere'


def test_what_another_process_took_is_not_taken_back_while_that_one_writes(tmp_path, monkeypatch):
  monkeypatch.setattr('pe_jax.sweep.pool.LOOK', 0.01)
  monkeypatch.setattr('pe_jax.sweep.pool.QUIET', 0.5)
  (lost,) = tasks(tmp_path, lost='test -e seen || { touch seen; exit 5; }')
  monkeypatch.chdir(tmp_path)
  with Pool([slots.Slot()], QUICK) as pool:
    pool.add(lost)
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
      pool.step()
      if pool.held:
        (tmp_path / 'lost' / 'metrics.jsonl').write_text('{}\n')
      time.sleep(0.01)
    assert [*pool.held] == ['lost']
    finished(pool)
  assert [*pool.finished] == ['lost']


def test_a_folder_that_cannot_be_written_is_its_own_tasks_trouble(tmp_path):
  bad, good = tasks(tmp_path, bad='true', good='true')
  (tmp_path / 'bad').write_text('a file')
  with Pool([slots.Slot()], QUICK) as pool:
    pool.add(bad)
    pool.add(good)
    finished(pool)
  assert 'cannot be written' in pool.failed['bad'].reason
  assert [*pool.finished] == ['good']


def test_ctrl_c_stops_everything_that_was_started(tmp_path):
  given = tasks(tmp_path, one='sleep 60 & echo $!; sleep 60', deaf='trap "" TERM; sleep 60 & echo $!; sleep 60', waits='true')
  pids = []

  def interrupted():
    with Pool([slots.Slot()] * 2, QUICK) as pool:
      for task in given:
        pool.add(task)
      pool.step()
      while not all(len((task.folder / 'log.txt').read_text().splitlines()) == 2 for task in given[:2]):
        time.sleep(0.01)
      pids.extend(work.child.pid for work in pool.running.values())
      pids.extend(int((task.folder / 'log.txt').read_text().split()[-1]) for task in given[:2])
      assert all(map(alive, pids))
      waiting.append(pool)
      os.kill(os.getpid(), signal.SIGINT)
      pool.step()

  waiting = []
  with pytest.raises(Preempted, match='stopped by SIGINT'):
    interrupted()
  (pool,) = waiting
  assert gone(pids, 1)
  assert sorted(pool.waiting) == ['deaf', 'one', 'waits']
  assert not pool.failed
  assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.skipif(sys.platform != 'linux', reason='the kernel tells a child of its parent’s death on Linux alone')
def test_kill_9_of_the_parent_stops_its_children(tmp_path):
  program = f'import time; from pe_jax.sweep.child import Child; print(Child(["sleep", "60"], {str(tmp_path / "log")!r}).pid, flush=True)\n'
  parent = subprocess.Popen([sys.executable, '-c', program + 'time.sleep(60)'], stdout=subprocess.PIPE, text=True)
  pid = int(parent.stdout.readline())
  time.sleep(0.3)  # sleep(1) has been exec'ed by then
  assert alive(pid)
  parent.kill()
  parent.wait()
  parent.stdout.close()
  assert gone([pid])


def test_only_what_the_last_process_said_is_its_reason(tmp_path):
  log = tmp_path / 'log.txt'
  for text in ('ERROR: the first', 'nothing special'):
    one = child.Child(['sh', '-c', f'echo "{text}"; exit 1'], log)
    while one.poll() is None:
      time.sleep(0.01)
  assert child.reason(1, one.said()) == 'exit code 1: nothing special'
  assert log.read_text().count('$ sh') == 2


def test_a_child_is_pinned_to_its_cores(tmp_path):
  core = min(os.sched_getaffinity(0))
  one = child.Child(
    [sys.executable, '-c', 'import os; print(*os.sched_getaffinity(0), os.environ["A"])'], tmp_path / 'log', [core], {'A': 'b'}
  )
  while one.poll() is None:
    time.sleep(0.01)
  assert one.said() == f'{core} b\n'


@pytest.mark.parametrize(
  ('environment', 'processes', 'cores', 'wanted'),
  [
    ({'JAX_PLATFORMS': 'cpu'}, 0, [0, 1], [((0,), {}), ((1,), {})]),
    ({'JAX_PLATFORMS': 'cpu'}, 1, [0, 1, 2], [((0, 1, 2), {})]),
    ({'JAX_PLATFORMS': 'cpu'}, 3, [0, 1], [((), {})] * 3),
    ({'CUDA_VISIBLE_DEVICES': '2,5'}, 0, [0, 1, 2, 3], [((0, 1), {'CUDA_VISIBLE_DEVICES': '2'}), ((2, 3), {'CUDA_VISIBLE_DEVICES': '5'})]),
    (
      {'CUDA_VISIBLE_DEVICES': '7'},
      2,
      [0, 1],
      [((k,), {'CUDA_VISIBLE_DEVICES': '7', 'XLA_PYTHON_CLIENT_MEM_FRACTION': '0.450'}) for k in (0, 1)],
    ),
  ],
)
def test_slots_share_cores_and_gpus(environment, processes, cores, wanted, monkeypatch):
  for name in ('JAX_PLATFORMS', 'CUDA_VISIBLE_DEVICES', 'XLA_PYTHON_CLIENT_MEM_FRACTION'):
    monkeypatch.delenv(name, raising=False)
  for name, value in environment.items():
    monkeypatch.setenv(name, value)
  monkeypatch.setattr(slots, '_cores', lambda: cores)
  assert [(slot.cores, slot.environment) for slot in slots.local(processes)] == wanted
