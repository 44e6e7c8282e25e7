"""A command as a process in a session of its own: its output is appended to a log, and whatever it started ends with it."""

import contextlib
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

from pe_jax import process, workdir

LEASH = pathlib.Path(__file__).with_name('leash.py')
TAIL = 65_536  # bytes of a log that are looked through for an error
MEMORY = 'lower batch_size or raise accumulate, or run fewer at a time with --processes'
OUT_OF_MEMORY = re.compile(r'RESOURCE_EXHAUSTED|MemoryError|bad_alloc|Cannot allocate memory|[Oo]ut of memory')


class Child:
  """A running command.

  Args:
    command: a list of strings.
    log: path of the file that gets the command line and all that it prints.
    cores: those it is pinned to; none: not pinned.
    environment: variables beside those of this process.
  """

  def __init__(self, command, log, cores=(), environment=None):
    self.command, self.log, self.started, self._over = list(command), pathlib.Path(log), time.time(), False
    leash = [sys.executable, '-I', '-S', str(LEASH), str(os.getpid()), ','.join(map(str, cores))]
    with workdir.writing(self.log), self.log.open('a') as file:
      file.write(f'$ {shlex.join(self.command)}\n')
      file.flush()
      self._start = file.tell()
      self._process = subprocess.Popen(
        [*leash, *self.command],
        stdin=subprocess.DEVNULL,
        stdout=file,
        stderr=file,
        env=process.child_environment() | (environment or {}),
        start_new_session=True,  # Ctrl-C reaches this process alone, which decides
      )

  @property
  def pid(self):
    """Of the command, and of its process group."""
    return self._process.pid

  def poll(self):
    """Its exit code (negative: the signal that killed it), None while it runs."""
    code = self._process.poll()
    if code is not None and not self._over:
      self._over = True
      self._signal_group(signal.SIGKILL)  # what it may have started and left
    return code

  def stop(self):
    """Asks it to save and end."""
    if self._process.poll() is None:
      self._signal_group(signal.SIGTERM)

  def kill(self):
    """Ends it at once."""
    if self.poll() is None:
      self._signal_group(signal.SIGKILL)
      self._process.wait()

  def _signal_group(self, number):
    with contextlib.suppress(ProcessLookupError, PermissionError):
      os.killpg(self._process.pid, number)

  def said(self):
    """The end of what it printed."""
    size = self.log.stat().st_size
    with self.log.open('rb') as file:
      file.seek(max(self._start, size - TAIL))
      return file.read().decode('utf-8', 'replace')


def reason(code, said):
  """Why a process ended with that code, in a line: its ERROR line, the exception, or the signal and what it usually means."""
  if code == -signal.SIGKILL:
    return f'killed by SIGKILL, as the kernel does when memory runs out ({MEMORY})'
  lines = [line.strip() for line in said.splitlines() if line.strip()]
  errors = [line.removeprefix('ERROR: ') for line in lines if line.startswith('ERROR: ')]
  raised = [line for line in lines if re.match(r'[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt)\b', line)]
  found = (errors or raised or lines or ['it printed nothing'])[-1][:500]
  hint = f' ({MEMORY})' if OUT_OF_MEMORY.search(said) and not errors else ''
  if code < 0:
    name = signal.Signals(-code).name if -code in {*signal.Signals} else f'signal {-code}'
    return f'killed by {name}: {found}{hint}'
  return f'{found}{hint}' if errors else f'exit code {code}: {found}{hint}'
