"""What a run's folder says of it, by looking: nothing is kept anywhere else.

waiting (nothing there) · running (its LOCK is held) · interrupted (begun) · trained (DONE, with evaluations to come) · done · failed
(FAILED, which the sweep writes when a process of the run ends badly and takes away before it starts another: exit code and reason).
"""

import contextlib
import dataclasses
import json
import math
import os
import pathlib

from pe_jax import once, remote, workdir
from pe_jax.errors import NotFinite, WorkdirInUse

KINDS = ('waiting', 'interrupted', 'running', 'trained', 'done', 'failed')
TAIL = 8192  # bytes at the end of a log of rows


@dataclasses.dataclass(frozen=True)
class State:
  """Attributes:
  kind: one of KINDS.
  step: of the newest row of metrics.jsonl.
  loss: the final validation loss, or the newest training loss, in nats.
  speed: tokens a second by the newest row of timing.jsonl.
  code, reason: of a failure.
  """

  kind: str
  step: int = 0
  loss: float | None = None
  speed: float | None = None
  code: int = 0
  reason: str = ''


def of(folder, evaluations=()):
  """The State of a run; `evaluations`: (label, arguments of eval.py) of those that belong to it."""
  folder = pathlib.Path(folder)
  rows, done, failure = tail(folder / 'metrics.jsonl'), workdir.finished(folder), failed(folder)
  losses = [row['loss'] for row in rows if 'loss' in row]
  numbers = {'step': rows[-1]['step'] if rows else 0, 'loss': losses[-1] if losses else None}
  speeds = [row['tokens_per_second'] for row in tail(folder / 'timing.jsonl')]
  numbers['speed'] = speeds[-1] if speeds else None
  if done:
    numbers |= {'step': done['step'], 'loss': done['validation_loss']}
  if held(folder):
    return State('running', **numbers)
  if done and all(once.done(folder, label, argv) for label, argv in evaluations):
    return State('done', **numbers)
  if failure:
    return State('failed', **numbers, **failure)
  return State('trained' if done else 'interrupted' if (folder / 'config.json').exists() else 'waiting', **numbers)


def held(folder):
  """Whether a process trains or evaluates there."""
  try:
    workdir.check_free(folder)
  except WorkdirInUse:
    return True
  return False


def failed(folder):
  """{'code', 'reason'} of FAILED, None if there is none."""
  with contextlib.suppress(OSError):
    return json.loads((remote.path(folder) / 'FAILED').read_text())


def write_failed(folder, code, reason):
  """Writes FAILED."""
  workdir.write_json(pathlib.Path(folder) / 'FAILED', {'code': code, 'reason': reason})


def clear_failed(folder):
  """Takes FAILED away."""
  with contextlib.suppress(FileNotFoundError):
    (pathlib.Path(folder) / 'FAILED').unlink()


def loss(folder):
  """The final validation loss; inf of a run that was not finite, None of one that is not known yet."""
  if done := workdir.finished(folder):
    return done['validation_loss']
  failure = failed(folder)
  return math.inf if failure and failure['code'] == NotFinite.exit_code else None


def tail(path):
  """The last rows of a .jsonl file that may be long, and may be being written."""
  with contextlib.suppress(OSError), open(path, 'rb') as file:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - TAIL))
    lines = file.read().split(b'\n')
    return [json.loads(line) for line in (lines[1:-1] if size > TAIL else lines[:-1]) if line]
  return []
