"""SIGTERM and SIGINT in every phase: exit code 75, a whole checkpoint of the step that was reached, and a run that ends as if untouched."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys

import pytest
import tiny_runs as runs
from studies import killing

from pe_jax import saved, signals
from pe_jax.errors import DataError, Preempted

STEPS = 24
# (place, which time it is reached, steps that may have been taken then); two signals come 20 ms apart.
CASES = [
  ('SIGTERM', 'env', 1, (0,)),
  ('SIGINT', 'env', 1, (0,)),
  ('SIGTERM', 'compile', 1, (1,)),
  ('SIGINT', 'compile', 1, (1,)),
  ('SIGTERM', 'step', 3, (3, 4)),
  ('SIGINT', 'step', 3, (3, 4)),
  ('SIGTERM', 'eval', 1, (12,)),
  ('SIGINT', 'eval', 1, (12,)),
  ('SIGTERM', 'save', 1, (6, 7)),
  ('SIGINT', 'save', 1, (6, 7)),
  ('SIGTERM+SIGTERM', 'step', 5, (5, 6)),
  ('SIGTERM+SIGINT', 'commit', 1, tuple(range(6, 14))),  # steps go on meanwhile; the next save waits
]
EARLY = [(names, place, 1, None) for place in ('import', 'read') for names in ('SIGTERM', 'SIGINT', 'SIGINT+SIGTERM')]
RESTORED = [('SIGTERM', 'restore', 1, None), ('SIGINT+SIGTERM', 'restore', 1, None)]


def command(workdir):
  arg = f'rope,corpus={runs.home() / "corpus"},steps={STEPS},accumulate=2'
  fields = ['--config.checkpoint_every_steps=6', '--config.eval_every_steps=12', '--config.keep_checkpoints=9']
  return ['train.py', f'--config={killing.ROOT / "scripts" / "studies" / "kill_points.py"}:{arg}', f'--workdir={workdir}', *fields]


def preempted(cases, folder):
  """[(exit code, stderr)] of runs that get the signals of the cases, each in its own workdir."""
  places = [f'{names} {place} {times}' for names, place, times, _ in cases]
  jobs = [{'argv': command(folder / str(n)), 'env': {'SOAK_AT': place}} for n, place in enumerate(places)]
  return [(code, err) for code, _, err, _ in runs.served(jobs)]


def whole_checkpoint(workdir, step):
  """Whether it has a record that is sealed and of this step."""
  from etils import epath

  return saved.read_record(epath.Path(workdir) / 'checkpoints' / str(step))['step'] == step


def test_a_signal_in_any_phase_saves_the_step_that_was_reached_and_a_second_one_changes_nothing(tmp_path):
  reached = []
  for n, ((names, place, _, may), (code, err)) in enumerate(zip(CASES, preempted(CASES, tmp_path))):
    assert (code, 'Traceback' in err) == (75, False), (names, place, err)
    said = re.search(rf'^ERROR: .*: stopped by {names.split("+")[0]} and saved at step (\d+) \(the same command goes on', err, re.MULTILINE)
    assert said, (names, place, err)
    reached.append(int(said[1]))
    assert reached[-1] in may, (names, place, reached[-1])
    assert whole_checkpoint(tmp_path / str(n), reached[-1])
    log = tmp_path / str(n) / 'metrics.jsonl'
    assert not log.read_text() or json.loads(log.read_text().splitlines()[-1])['step'] <= reached[-1]
    assert not (tmp_path / str(n) / 'DONE').exists()
  # Stopped while it was reading the checkpoint of the run before: that one is there, and is the step that was reached.
  again, first = tmp_path / 'again', 4
  again.mkdir()
  for n in range(2):
    os.rename(tmp_path / str(first + n), again / str(n))
  for n, (code, err) in enumerate(preempted(RESTORED, again)):
    assert (code, f'saved at step {reached[first + n]} ' in err) == (75, True), err
    assert whole_checkpoint(again / str(n), reached[first + n])
  # Whatever it was that stopped them, all end alike.
  ends = [tmp_path / '0', tmp_path / '11', again / '0', tmp_path / 'untouched']
  for code, _, err, _ in runs.served([{'argv': command(folder)} for folder in ends]):
    assert (code, 'Traceback' in err) == (0, False), err
  for name in ('DONE', 'metrics.jsonl', 'batches.jsonl'):
    assert len({(folder / name).read_bytes() for folder in ends}) == 1, name


def test_a_signal_before_anything_is_begun_ends_with_75_and_leaves_nothing(tmp_path):
  for n, ((names, place, _, _), (code, err)) in enumerate(zip(EARLY, preempted(EARLY, tmp_path))):
    first = names.split('+')[0]
    said = f'ERROR: {tmp_path / str(n)}: stopped by {first} before anything was begun (the same command starts it)\n'
    assert (code, err) == (75, said), (names, place)
    assert not (tmp_path / str(n)).exists()


def test_several_seeds_are_stopped_before_anything_is_begun_too(tmp_path):
  argv = [*command(tmp_path / '{seed}'), '--seeds=1,2']
  ((code, _, err, _),) = runs.served([{'argv': argv, 'env': {'SOAK_AT': 'SIGTERM read 1'}}])
  assert (code, err.count('stopped by SIGTERM before anything was begun'), err.count('\n')) == (75, 1, 1), err
  assert list(tmp_path.iterdir()) == []


def kill():
  os.kill(os.getpid(), signal.SIGTERM)


def lost_on_the_way():
  with contextlib.suppress(Preempted):
    kill()


def taken_for_something_else():
  try:
    kill()
  except Preempted as error:
    raise DataError('cannot be read') from error


@pytest.mark.parametrize('work', [kill, lost_on_the_way, taken_for_something_else])
def test_what_is_read_before_a_run_begins_ends_where_it_is(work):
  done = []

  def read(caught):
    with signals.at_once(caught, 'runs/a'):
      work()
      done.append('the rest')

  with signals.noted() as caught:
    with pytest.raises(Preempted, match=r'^runs/a: stopped by SIGTERM before anything was begun'):
      read(caught)
    assert done == (['the rest'] if work is lost_on_the_way else [])
    with pytest.raises(Preempted):
      read(['SIGINT'])  # one that came before
    assert done == (['the rest'] if work is lost_on_the_way else [])
    kill()  # only noted again
    assert caught == ['SIGTERM', 'SIGTERM']


def test_the_restart_loop_of_the_readme_ends_when_the_run_is_done(tmp_path):
  readme = (runs.ROOT / 'README.md').read_text()
  (loop,) = re.findall(r'^until .*done$', readme, re.MULTILINE)
  args = ' '.join(f"'{a}'" for a in command(tmp_path / 'run')[1:])
  script = re.sub(r'python train\.py .*?(?=; do)', lambda _: f'"$PYTHON" train.py {args}', loop)
  assert script != loop
  env = runs.environment(PYTHON=sys.executable, SOAK_AT='SIGTERM step 9')
  done = subprocess.run(['bash', '-c', script], env=env, cwd=runs.ROOT, capture_output=True, text=True, timeout=180, check=False)
  assert done.returncode == 0, done.stderr
  # The signal comes at the ninth row that a start writes: the first start stops there, the second at its ninth, until none is left.
  assert done.stderr.count('stopped by SIGTERM and saved at step') == 2, done.stderr
  assert json.loads((tmp_path / 'run' / 'DONE').read_text())['step'] == STEPS


SAVED = """
import atexit, os, signal
from pe_jax import cli
from pe_jax.errors import Preempted

def main():
  raise Preempted('saved')

atexit.register(lambda: [os.kill(os.getpid(), number) for number in (signal.SIGTERM, signal.SIGINT)])
cli.run(main, '')
"""


def test_once_all_is_saved_another_signal_does_not_turn_75_into_something_else():
  done = subprocess.run([sys.executable, '-c', SAVED], cwd=runs.ROOT, capture_output=True, text=True, timeout=60, check=False)
  assert (done.returncode, done.stderr) == (75, 'ERROR: saved\n')
