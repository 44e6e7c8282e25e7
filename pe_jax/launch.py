"""Training runs on this machine, as many at a time as there are cores, each a process on a core of its own.

An interrupted run goes on where it was, a finished one says so, and one with another config refuses, so that calling this again is always
right.
"""

import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from pe_jax import metrics, process, progress
from pe_jax.errors import UserError

ROOT = pathlib.Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
class Job:
  """A run: its folder, what --config gets, overrides of its fields, and how many steps it takes."""

  workdir: pathlib.Path
  config: str
  steps: int
  fields: dict = dataclasses.field(default_factory=dict)

  def command(self):
    """train.py with its arguments."""
    fields = [f'--config.{name}={value}' for name, value in self.fields.items()]
    return [sys.executable, str(ROOT / 'train.py'), f'--config={self.config}', f'--workdir={self.workdir}', *fields]


def train(jobs, label):
  """Trains all jobs. One that fails ends the others, which save what they have."""
  cores = sorted(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else list(range(os.cpu_count()))
  waiting, running = list(jobs), {}
  with progress.bar(sum(job.steps for job in jobs), label=label) as bar:
    seen = 0
    try:
      while waiting or running:
        for core in [core for core in cores if core not in running][: len(waiting)]:
          job = waiting.pop(0)
          running[core] = (job, _start(job, core))
        for core, (job, child) in list(running.items()):
          if child.poll() is not None:
            del running[core]
            if child.returncode:
              raise UserError(f'training {job.workdir.name} {ended(child.returncode)}; {job.workdir / "log.txt"} says why')
        done = sum(_steps_done(job.workdir) for job in jobs)
        bar.advance(done - seen)
        seen = done
        time.sleep(0.5)
    finally:
      for _, child in running.values():
        child.terminate()  # train.py saves and stops; the next call goes on


def ended(code):
  """What the exit code of a process says."""
  if code == -signal.SIGKILL:
    return 'was killed by the system, nearly always for lack of memory (lower batch_size, train_length or the model)'
  return f'ended with exit code {code}'


def _start(job, core):
  """Huge pages make it faster and change no number."""
  job.workdir.mkdir(parents=True, exist_ok=True)
  pinned = ['taskset', '-c', str(core)] if shutil.which('taskset') else []
  with (job.workdir / 'log.txt').open('w') as log:
    return subprocess.Popen([*pinned, *job.command()], stdout=log, stderr=log, env=process.child_environment())


def _steps_done(workdir):
  """The last step in the run's log."""
  rows = metrics.read(workdir / 'metrics.jsonl')
  return rows[-1]['step'] if rows else 0
