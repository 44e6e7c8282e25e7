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
from pe_jax.selfcheck import FOR_KILLS, SECONDS, Row, killed

# Two more processes train what the first has compiled.
KEEP_ALL = {'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0', 'JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES': '-1'}


def run(quick, start):
  """(what is known of the machine, rows of all checks). `start` is of time.monotonic(), from which the time is counted."""
  end = start + SECONDS[quick]
  with tempfile.TemporaryDirectory(prefix='pe_jax_selfcheck_') as name:
    folder = pathlib.Path(name)
    environment = process.child_environment() | {'JAX_COMPILATION_CACHE_DIR': str(folder / 'compiled')} | KEEP_ALL
    killed.write_corpus(folder)
    machine, rows = _inside(folder, environment, quick, end - FOR_KILLS[quick])
    more = killed.rows(folder, environment, 1 if quick else 3, end)
    for row in more:
      _say(row)
      rows.append(row)
  return machine, rows


def _inside(folder, environment, quick, end):
  """What one process finds of the machine, of determinism, kernels and encodings."""
  given = [str(end), str(folder / killed.WHOLE), str(folder / killed.CORPUS), *(['quick'] if quick else [])]
  command = [sys.executable, '-m', 'pe_jax.selfcheck.child', 'checks', *given]
  machine, wanted, rows, ended, late = {}, [], [], False, threading.Event()
  with (folder / 'stderr').open('w+') as errors:
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
    watch = threading.Timer(max(1.0, end - time.monotonic()), lambda: (late.set(), child.kill()))
    watch.start()
    try:
      for line in child.stdout:
        found = json.loads(line) if line.startswith('{') else {}  # a library may print
        machine, wanted, ended = found.get('machine', machine), found.get('wanted', wanted), ended or 'end' in found
        if 'check' in found:
          rows.append(Row(**found))
          _say(rows[-1])
      code = child.wait(timeout=20)
    finally:
      watch.cancel()
      child.kill()
  if not ended and not late.is_set():
    said = [line for line in (folder / 'stderr').read_text().splitlines() if line.strip()]
    rows.append(Row('the process of the checks', False, note=f'ended with {code}: {said[-1][:300] if said else "without a word"}'))
  return machine, rows + left_out(wanted, rows, 'the time was up' if ended or late.is_set() else 'that process ended')


def left_out(wanted, rows, why):
  """A Row, or none, for the checks that nothing came of. `wanted` is empty where nobody could say what they are."""
  if not wanted:
    return [Row('all but the runs that are killed', None, note=why)]
  names = [name for name in wanted if name not in {row.check for row in rows}]
  shown = ', '.join(names[:8]) + (', …' if len(names) > 8 else '')
  return [Row(f'{len(names)} more: {shown}', None, note=why, count=len(names))] if names else []


def _say(row):
  what = {True: 'holds', False: 'DOES NOT HOLD', None: 'not tried'}[row.holds]
  progress.say(f'{row.check}: {what} {row.note} ({row.seconds:.0f} s)'.replace('  ', ' '))


def emit(found):
  """One JSON object on stdout, for the process that reads this one."""
  print(json.dumps(dataclasses.asdict(found) if isinstance(found, Row) else found), flush=True)
