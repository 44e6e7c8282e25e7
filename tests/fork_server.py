"""Runs many command lines of train.py and eval.py, each in a fork of a process that has imported everything already.

Reads one JSON object {argv, env, name: code of config files} and writes one list of [exit code, stdout, stderr, seconds].
"""

import importlib
import json
import os
import pathlib
import runpy
import sys
import tempfile
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(argv, env):
  """One command line in a child, as if it had been started alone."""
  with tempfile.TemporaryFile('w+') as out, tempfile.TemporaryFile('w+') as err:
    start = time.perf_counter()
    pid = os.fork()
    if not pid:
      os.dup2(out.fileno(), 1)
      os.dup2(err.fileno(), 2)
      os.environ.update(env)
      sys.argv = argv
      code = 1
      try:
        runpy.run_path(str(ROOT / argv[0]), run_name='__main__')
        code = 0
      except SystemExit as stop:
        code = stop.code or 0
      except BaseException:
        sys.excepthook(*sys.exc_info())
      sys.stdout.flush()
      sys.stderr.flush()
      os._exit(code)
    _, status = os.waitpid(pid, 0)
    out.seek(0)
    err.seek(0)
    return os.waitstatus_to_exitcode(status), out.read(), err.read(), time.perf_counter() - start


if __name__ == '__main__':
  sys.path.insert(0, str(ROOT))
  warnings.filterwarnings('ignore', 'os.fork')
  for name in ('pe_jax.train', 'pe_jax.run', 'pe_jax.report.table', 'pe_jax.data.sources.text', 'pe_jax.data.sources.tfds'):
    importlib.import_module(name)
  cases = json.load(sys.stdin)
  json.dump([run(case['argv'], case.get('env', {})) for case in cases], sys.stdout)
