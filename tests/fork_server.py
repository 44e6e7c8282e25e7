"""Runs many command lines of train.py and eval.py, each in a fork of a process that has imported everything already.

Reads a list of JSON objects {argv, env: variables} and writes a list of [exit code, stdout, stderr, seconds]. A list of objects in the
place of one is run at once, as the processes of one run: none of them outlives the first to end by more than GRACE seconds, nor LIMIT
seconds in all.
"""

import atexit
import importlib
import json
import os
import pathlib
import runpy
import signal
import sys
import tempfile
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMIT, GRACE = 240, 60


class Child:
  """One command line, as if it had been started alone. `leave`: whether what it has registered for its exit is done, which takes time."""

  def __init__(self, case, leave=False):
    self.files = [_file(), _file()]
    self.start, self.status = time.perf_counter(), None
    self.pid = os.fork()
    if not self.pid:
      os.dup2(self.files[0], 1)
      os.dup2(self.files[1], 2)
      os.environ.update(case.get('env', {}))
      sys.argv = case['argv']
      os._exit(_code(sys.argv[0], leave))

  def ended(self, options=os.WNOHANG):
    """Whether it has."""
    if self.status is None:
      pid, status = os.waitpid(self.pid, options)
      if pid:
        self.status, self.seconds = status, time.perf_counter() - self.start
    return self.status is not None

  def result(self):
    """[exit code, stdout, stderr, seconds]"""
    said = []
    for number in self.files:
      with open(number) as file:
        file.seek(0)
        said.append(file.read())
    return [os.waitstatus_to_exitcode(self.status), *said, self.seconds]


def _file():
  """The number of an open file without a name."""
  number, path = tempfile.mkstemp()
  os.unlink(path)
  return number


def _code(script, leave):
  code = 1
  try:
    runpy.run_path(str(ROOT / script), run_name='__main__')
    code = 0
  except SystemExit as stop:
    code = stop.code or 0
  except BaseException:
    sys.excepthook(*sys.exc_info())
  if leave:
    atexit._run_exitfuncs()
  sys.stdout.flush()
  sys.stderr.flush()
  return code


def alone(case):
  """The result of one."""
  child = Child(case)
  child.ended(0)
  return child.result()


def together(cases):
  """The results of several that are run at once."""
  children, end = [Child(case, leave=True) for case in cases], time.monotonic() + LIMIT
  while not all([child.ended() for child in children]):
    if any(child.status is not None for child in children):
      end = min(end, time.monotonic() + GRACE)
    if time.monotonic() >= end:
      for child in children:
        if not child.ended():
          os.kill(child.pid, signal.SIGKILL)
    time.sleep(0.02)
  return [child.result() for child in children]


if __name__ == '__main__':
  sys.path.insert(0, str(ROOT))
  warnings.filterwarnings('ignore', 'os.fork')
  for name in ('pe_jax.train', 'pe_jax.run', 'pe_jax.report.table', 'pe_jax.data.sources.text', 'pe_jax.data.sources.tfds'):
    importlib.import_module(name)
  cases = json.load(sys.stdin)
  json.dump([together(case) if isinstance(case, list) else alone(case) for case in cases], sys.stdout)
