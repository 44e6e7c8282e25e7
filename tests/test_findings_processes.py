"""`make findings` as a process: what measures ends with it."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
import tiny_runs as runs

# Two places, each of which would be at work for a minute.
PROGRAM = """
import sys, time
import findings
from pe_jax.sweep import slots

def long(folder, seeds):
  time.sleep(60)

if __name__ == '__main__':
  slots.local = lambda: [slots.Slot(), slots.Slot()]
  findings.measured(sys.argv[1], [1, 2], {'one': (long,)})
"""


def children(process):
  """Numbers of the processes that a process has started, and theirs."""
  try:
    own = list(map(int, pathlib.Path(f'/proc/{process}/task/{process}/children').read_text().split()))
  except OSError:
    return []
  return own + [n for child in own for n in children(child)]


def alive(number):
  """Whether it runs; a zombie does not."""
  try:
    return pathlib.Path(f'/proc/{number}/stat').read_text().rpartition(')')[2].split()[0] != 'Z'
  except OSError:
    return False


@pytest.mark.skipif(sys.platform != 'linux', reason='looks at processes through /proc')
def test_what_measures_ends_with_who_was_killed(tmp_path):
  (tmp_path / 'program.py').write_text(PROGRAM)
  path = os.pathsep.join([str(runs.ROOT), str(runs.ROOT / 'scripts'), os.environ.get('PYTHONPATH', '')])
  environment = runs.environment() | {'PYTHONPATH': path}
  begun = subprocess.Popen([sys.executable, str(tmp_path / 'program.py'), str(tmp_path / 'runs')], cwd=runs.ROOT, env=environment)
  end, found = time.monotonic() + 60, []
  while len(found) < 3 and time.monotonic() < end:  # two that measure, and the one that multiprocessing keeps for itself
    time.sleep(0.2)
    found = children(begun.pid)
  assert len(found) >= 3
  time.sleep(2)
  os.kill(begun.pid, signal.SIGKILL)
  begun.wait()
  while any(map(alive, found)) and time.monotonic() < end + 30:
    time.sleep(0.2)
  assert not [n for n in found if alive(n)]
