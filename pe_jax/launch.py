"""Training runs on this machine, as many at a time as there are cores (or GPUs), for scripts that train what they then measure.

An interrupted run goes on where it was, a finished one says so, and one with another config refuses, so that calling this again is always
right. A sweep (pe_jax/sweep) is the same with evaluations, and one that fails there touches no other.
"""

import dataclasses
import pathlib
import sys
import time

from pe_jax import metrics, progress
from pe_jax.errors import UserError
from pe_jax.sweep import pool, slots
from pe_jax.sweep.commands import ROOT


@dataclasses.dataclass(frozen=True)
class Job(pool.Task):
  """A run: its folder, what --config gets, overrides of its fields, and how many steps it takes."""

  workdir: pathlib.Path
  config: str
  steps: int
  fields: dict = dataclasses.field(default_factory=dict)

  @property
  def name(self):
    """Of its folder, which no other job has."""
    return str(self.workdir)

  @property
  def folder(self):
    """The same."""
    return pathlib.Path(self.workdir)

  def command(self):
    """train.py with its arguments."""
    fields = [f'--config.{name}={value}' for name, value in self.fields.items()]
    return [sys.executable, str(ROOT / 'train.py'), f'--config={self.config}', f'--workdir={self.workdir}', *fields]

  def next(self, last):
    """Once: train.py says by itself that a run is finished, or that it is another."""
    return None if last else self.command()


def train(jobs, label):
  """Trains all jobs. One that fails ends the others, which save what they have; so does Ctrl-C."""
  with progress.bar(sum(job.steps for job in jobs), label=label) as bar, pool.Pool(slots.local()) as running:
    seen = 0
    for job in jobs:
      running.add(job)
    while running.busy:
      running.step()
      for name, failure in running.failed.items():
        folder = pathlib.Path(name)
        raise UserError(f'training {folder.name}: {failure.reason} ({folder / "log.txt"} has all it said)')
      done = sum(_steps_done(job.folder) for job in jobs)
      bar.advance(done - seen)
      seen = done
      time.sleep(0.5)


def _steps_done(workdir):
  """The last step in the run's log."""
  rows = metrics.read(workdir / 'metrics.jsonl')
  return rows[-1]['step'] if rows else 0
