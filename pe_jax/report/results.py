"""Runs below a folder, found by looking: what each was, how far it came, and the newest row of everything that was measured of it.

Nothing is kept between two looks and nothing is written into a run, so that a report can be made at any moment of a sweep. Files of others
are read here, and none of them is trusted.
"""

import dataclasses
import functools
import json
import os
import pathlib
import platform
import time

from pe_jax import config as config_lib
from pe_jax import workdir
from pe_jax.errors import DataError, WorkdirInUse
from pe_jax.report.rows import evaluated, left_out, lines, number, whole

INSIDE = {'checkpoints', 'checkpoints_bad', 'tensorboard', 'eval', 'figures'}  # of a run's folder; no runs are in them
FRESH = 600  # seconds since the last sign of a run on another machine, after which it no longer counts as running


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
  """A run's folder as it was seen.

  Attributes:
    name: its path below the folder that was looked through, or that folder's name.
    path: the folder.
    state: 'finished', 'running', 'stopped' (goes on when started again), 'failed' or 'unreadable'.
    error: the line that says why it failed, or ''.
    config: every field of its configuration; empty where there is none.
    env: the machine and the versions; empty where there is none.
    done: what DONE says; empty before.
    metrics, timing: rows of the logs.
    rows: the newest of each thing that was evaluated; `measure` is the protocol's or the probe's name.
    replaced: how many older rows were measured again.
    evaluations: {label: arguments of eval.py} of the evaluations that were given one.
    warnings: sentences.
  """

  name: str
  path: pathlib.Path
  state: str
  error: str = ''
  config: dict = dataclasses.field(default_factory=dict)
  env: dict = dataclasses.field(default_factory=dict)
  done: dict = dataclasses.field(default_factory=dict)
  metrics: tuple = ()
  timing: tuple = ()
  rows: tuple = ()
  replaced: int = 0
  evaluations: dict = dataclasses.field(default_factory=dict)
  warnings: tuple = ()

  @functools.cached_property
  def flat(self):
    """{'optim.learning_rate': .001, ...}"""
    return config_lib.flatten(self.config)

  @property
  def step(self):
    """The last step in its log."""
    return max((row['step'] for row in self.metrics), default=0)

  def of(self, measure):
    """Its rows of one protocol or probe, shorter lengths first."""
    return sorted((r for r in self.rows if r['measure'] == measure), key=lambda r: r['length'])


def scan(folder, advance=lambda: None):
  """The Runs below a folder, in order of their names.

  Args:
    folder: where to look, at any depth; it may be a run itself.
    advance: called after each run.

  Errors: DataError where there is no such folder.
  """
  folder = pathlib.Path(folder)
  if not folder.is_dir():
    raise DataError(f'{folder}: there is no such folder (the one that holds the runs is wanted)')
  found = []
  for path in places(folder):
    run = read(path, _name(folder, path))
    found += [run] if run else []
    advance()
  return found


def places(folder):
  """Folders that may be runs, sorted."""
  out = []
  for path, folders, files in os.walk(folder):
    folders[:] = sorted(name for name in folders if name not in INSIDE and not name.startswith('.'))
    if 'config.json' in files or (path != str(folder) and {'log.txt', 'FAILED'} & {*files}):
      out.append(pathlib.Path(path))
  return sorted(out)


def signature(folder):
  """What changes when a run below the folder writes, begins or is gone: sizes and times of the files that `scan` reads, and who lives."""
  seen = {}
  for place in places(folder):
    seen[str(place)] = _runs(place)
    marks = [place / name for name in ('DONE', 'FAILED', 'LOCK', 'log.txt')]
    for path in [*place.glob('*.json*'), *place.glob('eval/*.jsonl'), *marks]:
      try:
        status = path.stat()
      except OSError:
        continue
      seen[str(path)] = (status.st_size, status.st_mtime_ns)
  return seen


def _name(folder, path):
  """The path below the folder as text that can be shown: names of files may hold bytes that are not."""
  name = path.relative_to(folder).as_posix() if path != folder else folder.resolve().name
  return name.encode('utf-8', 'surrogateescape').decode('utf-8', 'replace')


def read(path, name):
  """The Run in a folder; None where a file only happens to be called config.json or log.txt."""
  config, wrong = _config(path / 'config.json')
  failure, _ = _object(path / 'FAILED')
  error = str(failure.get('reason') or f'exit code {failure.get("code")}') if failure else last_error(path / 'log.txt')
  if not config:
    is_run = any((path / mark).exists() for mark in ('LOCK', 'FAILED', 'metrics.jsonl', 'eval'))
    if wrong and is_run:
      return Run(name, path, 'unreadable', wrong)
    return Run(name, path, 'failed', error) if error and not wrong else None
  done, said = _object(path / 'DONE')
  warnings = [said] if said else []
  env, said = _object(path / 'env.json')
  warnings += [said] if said else []
  logs = []
  for log in ('metrics.jsonl', 'timing.jsonl'):
    rows, bad = lines(path / log)
    good = [row for row in rows if whole(row.get('step'))]
    logs.append(tuple({key: value for key, value in row.items() if number(value) is not None or isinstance(value, str)} for row in good))
    warnings += left_out(log, bad + len(rows) - len(good))
  rows, replaced, said = evaluated(path)
  warnings += said
  steps = sorted({row['step'] for row in rows if whole(row.get('step'))})
  if len(steps) > 1:
    warnings.append(f'evaluated at steps {", ".join(map(str, steps))}: its rows speak of different parameters')
  state = 'finished' if done or (path / 'DONE').exists() else _unfinished(path, error)
  if state == 'finished' and failure:
    warnings.append(f'failed after training: {error}')
  elif state == 'finished' and not rows:
    warnings.append('trained and not evaluated')
  told = error if state == 'failed' else ''
  return Run(name, path, state, told, config, env, done, *logs, rows, replaced, _evaluations(path), tuple(warnings))


def _evaluations(path):
  """{label: arguments} of eval/<label>.done."""
  found = {file.stem: _object(file)[0].get('arguments') for file in sorted((path / 'eval').glob('*.done'))}
  return {label: given for label, given in found.items() if isinstance(given, list) and all(isinstance(arg, str) for arg in given)}


def _config(path):
  """(the complete config, '') or ({}, what is wrong with it)."""
  stored, said = _object(path)
  if said or not path.is_file():
    return {}, said
  length = stored.get('train_length')
  if not (isinstance(stored.get('encoding'), str) and whole(length) and length > 0 and isinstance(stored.get('model'), dict)):
    return {}, 'config.json: not a configuration of this program'
  try:
    return config_lib.completed(stored), ''
  except (AttributeError, TypeError) as error:
    return {}, f'config.json: not a configuration of this program ({error})'


def _object(path):
  """(the JSON object in a file, '') or ({}, what is wrong); a file that is not there is no fault."""
  if not path.is_file():
    return {}, ''
  try:
    text = path.read_text(encoding='utf-8', errors='replace')
    tree = json.loads(text, parse_constant=lambda _: None, parse_float=lambda digits: number(float(digits)))
  except (OSError, ValueError, RecursionError) as error:
    return {}, f'{path.name}: cannot be read: {error}'
  return (tree, '') if isinstance(tree, dict) else ({}, f'{path.name}: no JSON object')


def last_error(path, tail=16_384, near=5):
  """The ERROR line, or the last of a traceback, that a log ends with; '' where a later attempt has written below it."""
  try:
    with path.open('rb') as file:
      file.seek(max(0, path.stat().st_size - tail))
      said = [line.strip() for line in file.read().decode('utf-8', 'replace').splitlines() if line.strip()]
  except OSError:
    return ''
  errors = [line for line in said[-near:] if line.startswith('ERROR')]
  if errors:
    return errors[-1]
  begins = [n for n, line in enumerate(said) if line.startswith('Traceback')]
  goes_on = any('/' in line and ' steps' in line for line in said[begins[-1] :]) if begins else True
  return '' if goes_on else said[-1]


def _unfinished(path, error):
  """'running', 'failed' or 'stopped'."""
  return 'running' if _runs(path) else 'failed' if error else 'stopped'


def _runs(path):
  """Whether the process that LOCK names lives and works there; of another machine's only what it writes can be seen."""
  try:
    holder = (path / 'LOCK').read_text(encoding='utf-8', errors='replace').split()
  except OSError:
    holder = []
  if len(holder) == 4 and holder[0] == 'process' and holder[1].isdigit():
    if holder[3] != platform.node():
      newest = max((p.stat().st_mtime for p in path.glob('*.jsonl')), default=0)
      return time.time() - newest < FRESH
    # The lock is only tried where its holder's number is in use: a run that starts just then must not find it taken.
    if _alive(int(holder[1])):
      try:
        workdir.check_free(path)
      except WorkdirInUse:
        return True
      except OSError:
        pass
  return False


def _alive(process):
  """Whether a process of this machine has this number."""
  try:
    os.kill(process, 0)
  except (ProcessLookupError, OverflowError):
    return False
  except PermissionError:
    return True
  return process > 0
