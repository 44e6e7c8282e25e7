"""An evaluation with a label: done once, and its rows stand once however often it was begun.

Its rows carry the label, and WORKDIR/eval/<label>.done is written when all of them are there. Begun again before that, or with other
arguments, it first takes away the rows that it left. Rows without that label are never touched. Imports nothing heavy: what is done
already is answered at once. Of several processes that evaluate together the first looks and writes, for all of them.
"""

import contextlib
import json

from pe_jax import metrics, names, process, progress, remote, workdir


def arguments(argv):
  """Those of a command line that say what is measured: all but where, under which label and by which processes."""
  return [arg for arg in argv if not arg.startswith(('--workdir', '--label', '--coordinator', '--process_', '--timeout'))]


def done(folder, label, argv):
  """Whether this evaluation is there, whole."""
  try:
    return json.loads(_marker(folder, label).read_text())['arguments'] == arguments(argv)
  except OSError:
    return False


@contextlib.contextmanager
def doing(folder, label, argv):
  """A context that gives whether there is anything to do; without a label always.

  With one it holds the run's folder and marks the evaluation as done on the way out. Raises WorkdirInUse where another process trains or
  evaluates there.
  """
  if not label:
    yield True
  elif not process.joined():
    with _alone(folder, label, argv) as needed:
      yield needed
  else:
    from pe_jax import hosts

    with contextlib.ExitStack() as held:
      with hosts.together():
        needed = held.enter_context(_alone(folder, label, argv)) if hosts.is_first() else None
      yield hosts.gathered(needed)[0]


@contextlib.contextmanager
def _alone(folder, label, argv):
  names.check(label, '--label')
  workdir.read_config(folder)  # else the lock would make a folder of a misspelt name
  if done(folder, label, argv):
    progress.say(f'{folder}: {label} is evaluated already')
    yield False
    return
  with workdir.locked(folder):
    _marker(folder, label).unlink(missing_ok=True)
    _take_away(folder, label)
    yield True
    workdir.write_json(_marker(folder, label), {'arguments': arguments(argv)})


def _take_away(folder, label):
  """The rows of an attempt that was not finished."""
  for path in sorted((remote.path(folder) / 'eval').glob('*.jsonl')):
    rows = metrics.read(path)
    kept = [row for row in rows if row.get('label') != label]
    if len(kept) < len(rows):
      workdir.write(path, ''.join(json.dumps(row, allow_nan=False) + '\n' for row in kept))


def _marker(folder, label):
  return remote.path(folder) / 'eval' / f'{label}.done'
