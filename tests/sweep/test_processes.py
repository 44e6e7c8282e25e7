"""Sweeps as a user starts them: killed, interrupted, begun twice, with runs that crash, hang and run out of memory."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
import tiny_runs as runs
from sweeps import REAL

from pe_jax import metrics

pytestmark = pytest.mark.skipif(sys.platform != 'linux', reason='looks at processes through /proc')

# Every Python process imports this first: what a bad driver, a full machine and a deadlock look like from outside.
PLANTED = """
import os, signal, sys, time
where = [arg.rpartition('/')[2] for arg in sys.orig_argv if arg.startswith('--workdir=')]
if where and any(arg.endswith('train.py') for arg in sys.orig_argv):
  if where == ['crashes']:
    print('Traceback (most recent call last):\\\\nImportError: libcuda.so.1: cannot open shared object file', file=sys.stderr, flush=True)
    os._exit(1)
  if where == ['hangs']:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
  if where == ['memory']:
    os.kill(os.getpid(), signal.SIGKILL)
"""
ENDS = '--only=good,no-text,diverges,crashes,hangs,memory,after'


@pytest.fixture
def place(tmp_path):
  (tmp_path / 'sweep.py').write_text(REAL.replace('CORPUS', repr(str(runs.home() / 'corpus'))))
  (tmp_path / 'planted').mkdir()
  (tmp_path / 'planted' / 'sitecustomize.py').write_text(PLANTED.replace('\\\\n', '\\n'))
  return tmp_path


def start(place, *args):
  """The sweep in place/runs, as a process."""
  path = os.pathsep.join([str(place / 'planted'), *sys.path])
  flags = [f'--config={place}/sweep.py', f'--workdir={place}/runs', '--processes=2', '--stall_minutes=0.75', '--grace_seconds=2', *args]
  return runs.start('scripts/sweep.py', *flags, PYTHONPATH=path)


def processes(place):
  """Command lines of the processes that work on runs in the place."""
  found = []
  for entry in pathlib.Path('/proc').iterdir():
    if entry.name.isdigit():
      try:
        line = (entry / 'cmdline').read_bytes().replace(b'\0', b' ').decode()
      except OSError:
        continue
      if f'--workdir={place}/runs/' in line:
        found.append(line)
  return found


def wait(condition, seconds=120):
  end = time.monotonic() + seconds
  while not condition():
    assert time.monotonic() < end
    time.sleep(0.05)


def steps(place, name):
  return len(metrics.read(place / 'runs' / name / 'metrics.jsonl'))


def test_a_sweep_of_runs_that_end_in_every_way_is_killed_and_finished(place):
  folder = place / 'runs'
  # kill -9 of the sweep: the run that it had started saves and ends.
  first = start(place, '--only=good')
  wait(lambda: steps(place, 'good') > 3 or first.poll() is not None)
  first.kill()
  runs.finish(first)
  wait(lambda: not processes(place))
  assert not (folder / 'good' / 'DONE').exists()
  assert any((folder / 'good' / 'checkpoints').iterdir())

  code, out, err = runs.finish(start(place, ENDS), 300)
  assert (code, processes(place)) == (1, []), err
  table = {line.split()[0]: line for line in out.partition('\n\n')[0].splitlines()[1:]}
  assert re.match(r'good +done +2000 +\d\.\d{4}$', table['good'])
  assert re.match(r'after +done +5 ', table['after'])  # the stage that waited for `good`
  assert re.match(r'long +waiting ', table['long'])
  for name, reason in {
    'no-text': r'.*/nosuch: there is no such file or folder \(',
    'diverges': r'.*: step 2: loss .*(nan|inf) .*\(lower optim.learning_rate',
    'crashes': r'exit code 1: ImportError: libcuda.so.1: cannot open shared object file$',
    'hangs': r'no sign of progress for 45 s, so it was stopped',
    'memory': r'killed by SIGKILL, as the kernel does when memory runs out \(lower batch_size',
  }.items():
    assert re.match(rf'{name} +failed +\d+ +([\d.]+ +)?{reason}', table[name]), table[name]
  assert out.endswith('\n\ntrained or not finite: after diverges good\n')  # what the file's notes() says
  assert 'ERROR: 5 of 8 runs are not done' in err
  assert err.count('going on from step') == 0  # runs speak into their own logs
  log = (folder / 'good' / 'log.txt').read_text()
  assert 'going on from step' in log
  rows = (folder / 'good' / 'eval' / 'nonoverlapping.jsonl').read_bytes()
  assert len(rows.splitlines()) == 2

  # Begun again there is nothing to do for what is done. An evaluation whose mark is gone leaves its rows once.
  done = {name: (folder / name / 'DONE').stat().st_mtime_ns for name in ('good', 'after')}
  (folder / 'good' / 'eval' / 'sweep-0.done').unlink()
  code, _, err = runs.finish(start(place, '--only=good,after'))
  assert code == 0, err
  assert done == {name: (folder / name / 'DONE').stat().st_mtime_ns for name in done}
  more = (folder / 'good' / 'log.txt').read_text().removeprefix(log)
  assert (more.count('$ '), 'train.py' in more) == (1, False)
  assert (folder / 'good' / 'eval' / 'nonoverlapping.jsonl').read_bytes() == rows
  code, _, err = runs.finish(start(place, '--only=diverges'))
  assert code == 7, err  # not tried again: it would come again
  assert (folder / 'diverges' / 'log.txt').read_text().count('$ ') == 1

  # The file has changed: refused before anything starts.
  file = place / 'sweep.py'
  file.write_text(file.read_text().replace("'good', {'seed': 1", "'good', {'seed': 2"))
  code, _, err = runs.finish(start(place, ENDS))
  assert code == 6, err
  assert 'good: - seed: 1; + seed: 2' in err
  assert json.loads((folder / 'good' / 'config.json').read_text())['seed'] == 1


def test_two_sweeps_in_one_folder_and_ctrl_c_leave_no_orphan(place):
  first = start(place, '--only=long')
  wait(lambda: steps(place, 'long') > 3 or first.poll() is not None)
  second = start(place, '--only=long')
  with second.stderr, second.stdout:
    said = second.stderr.readline()
    assert said.startswith('long: elsewhere: another process works on it'), said
    second.send_signal(signal.SIGTERM)
    assert second.wait(20) == 75
  assert (len(processes(place)), first.poll()) == (1, None)
  first.send_signal(signal.SIGINT)
  code, _, err = runs.finish(first)
  assert code == 75, err
  assert 'ERROR: stopped by SIGINT (the same command goes on from here)' in err
  assert processes(place) == []
  assert 'stopped by SIGTERM and saved at step' in (place / 'runs' / 'long' / 'log.txt').read_text()


def test_list_print_and_dry_run_start_nothing(place):
  def said(*args):
    code, out, err = runs.finish(start(place, *args))
    assert code == 0, err
    return out

  text = said('--list', '--only=good,after')
  assert re.search(r'^good +waiting +seed=1 num_train_steps=2000 +256 k +1 k ', text, re.MULTILINE)
  assert re.search(r'^after +later +init_from=', text, re.MULTILINE)
  assert re.search(r'hours of one process, [\d.]+ with 2 at a time', text)
  assert re.search(r'speed: [\d.]+ [MG]FLOP/s a process, measured now, 30 steps of good in one process', text)
  lines = said('--launcher=print', '--only=good,no-text').splitlines()
  assert len(lines) == 3
  assert lines[0].startswith('python train.py --config=configs/default.py --workdir=')
  assert ' && python eval.py --workdir=' in lines[0]
  assert lines[2] == '# 1 runs follow from these: after; the same command prints them when these are done'
  assert not (place / 'runs').exists()


def test_help_is_there_at_once():
  began = time.monotonic()
  done = subprocess.run([sys.executable, 'scripts/sweep.py', '--help'], cwd=runs.ROOT, capture_output=True, text=True, check=True)
  assert time.monotonic() - began < 3  # well below 1 s on an idle machine
  assert '--launcher' in done.stdout
