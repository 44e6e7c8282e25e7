"""What is checked when, in processes of their own: a TPU belongs to one process at a time, and a crash must not take the table with it."""

import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

from pe_jax import process, progress
from pe_jax.selfcheck import FOR_ENCODINGS, FOR_KILLS, SECONDS, Row, killed


def run(quick, start):
  """(what is known of the machine, rows of all checks). `start` is of time.monotonic(), from which the time is counted."""
  end = start + SECONDS[quick]
  with tempfile.TemporaryDirectory(prefix='pe_jax_selfcheck_') as name:
    folder = pathlib.Path(name)
    environment = process.child_environment() | {'JAX_COMPILATION_CACHE_DIR': str(folder / 'compiled')}
    machine, rows = _inside(folder, environment, quick, end - FOR_KILLS[quick])
    more = killed.rows(folder, environment, 1 if quick else 3, end)
    for row in more:
      _say(row)
      rows.append(row)
  return machine, rows


def _inside(folder, environment, quick, end):
  """What one process finds of the machine, of determinism, kernels and encodings."""
  command = [sys.executable, '-m', 'pe_jax.selfcheck.child', 'checks', str(FOR_ENCODINGS[quick]), *(['quick'] if quick else [])]
  machine, rows, ended, late = {}, [], False, threading.Event()
  with (folder / 'stderr').open('w+') as errors:
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
    watch = threading.Timer(max(1.0, end - time.monotonic()), lambda: (late.set(), child.kill()))
    watch.start()
    try:
      for line in child.stdout:
        found = json.loads(line) if line.startswith('{') else {}  # a library may print
        machine, ended = found.get('machine', machine), ended or 'end' in found
        if 'check' in found:
          rows.append(Row(**found))
          _say(rows[-1])
      code = child.wait(timeout=20)
    finally:
      watch.cancel()
      child.kill()
  if late.is_set():
    rows.append(Row('the rest', None, note='the time was up'))
  elif not ended:
    said = [line for line in (folder / 'stderr').read_text().splitlines() if line.strip()]
    rows.append(Row('the process of the checks', False, note=f'ended with {code}: {said[-1][:300] if said else "without a word"}'))
  return machine, rows


def _say(row):
  what = {True: 'holds', False: 'DOES NOT HOLD', None: 'not tried'}[row.holds]
  progress.say(f'{row.check}: {what} {row.note} ({row.seconds:.0f} s)'.replace('  ', ' '))


def emit(found):
  """One JSON object on stdout, for the process that reads this one."""
  print(json.dumps(dataclasses.asdict(found) if isinstance(found, Row) else found), flush=True)
