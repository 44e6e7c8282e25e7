"""A run's folder: who may write in it, what configuration it holds, and the machine it ran on.

WORKDIR/ config.json  config_history.jsonl  env.json  data.json  LOCK  OWNER  checkpoints/  checkpoints_bad/  metrics.jsonl  timing.jsonl
         batches.jsonl  nonfinite_<step>.json  tensorboard/  eval/  figures/  DONE
"""

import contextlib
import errno
import fcntl
import json
import os
import platform
import re
import time

import ml_collections

from pe_jax import changes, progress, remote
from pe_jax import config as config_lib
from pe_jax.errors import ConfigDiffers, DataError, WorkdirInUse, WriteError

# What flock says where there are no locks.
NO_LOCKS = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL)


def check_config(workdir, config, override=False):
  """Refuses a workdir that holds a run of another configuration, unless `changes` allows it or `override` is set; creates nothing.

  Returns {field: (old, new)} of what changed.
  """
  path = remote.path(workdir) / 'config.json'
  if not path.exists():
    return {}
  old = config_lib.stored(path)
  changed = changes.between(old, config.to_dict())
  if changed and not override and changes.refused(changed, config, newest_step(workdir)):
    way_out = 'choose another workdir, or go on with the new one: --override_config'
    lines = config_lib.diff(old, config.to_dict())
    raise ConfigDiffers(f'{workdir}: holds a run of another configuration ({way_out}):\n  ' + '\n  '.join(lines))
  return changed


def note_changes(workdir, changed, overridden):
  """Tells with which changes the run goes on, and writes them into config_history.jsonl."""
  if changed:
    step = newest_step(workdir)
    lines = [f'{field}: {old!r} -> {new!r}' for field, (old, new) in changed.items()]
    progress.say(f'{workdir}: goes on from step {step} with another configuration:\n  ' + '\n  '.join(lines))
    row = {'step': step, 'overridden': overridden, 'changed': {field: list(pair) for field, pair in changed.items()}}
    path = remote.path(workdir) / 'config_history.jsonl'
    write(path, (path.read_text() if path.exists() else '') + json.dumps(row, allow_nan=False) + '\n')


def newest_step(workdir):
  """The newest step for which there is a checkpoint, by its folder's name; 0 without any."""
  folder = remote.path(workdir) / 'checkpoints'
  return max((int(p.name) for p in folder.iterdir() if p.name.isascii() and p.name.isdecimal()), default=0) if folder.exists() else 0


def read_config(workdir):
  """The config stored there, complete."""
  remote.check(workdir, 'workdir')
  path = remote.path(workdir) / 'config.json'
  if not path.exists():
    raise DataError(f'{workdir}: no config.json there (a folder that train.py has written is wanted)')
  stored = config_lib.stored(path)
  named = stored['data']['tokenizer']
  brought = path.parent / 'tokenizer' / remote.path(named).name  # of an imported run that was moved
  if brought.is_file() and not remote.path(named).is_file():
    stored['data']['tokenizer'] = str(brought.absolute())
  return ml_collections.ConfigDict(stored).lock()


def finished(workdir):
  """What DONE says, None for a run that is not."""
  path = remote.path(workdir) / 'DONE'
  return json.loads(path.read_text()) if path.exists() else None


def check_free(workdir):
  """Refuses a workdir that another process holds; creates nothing."""
  path = remote.path(workdir) / 'LOCK'
  if not remote.is_remote(path) and path.exists():
    with path.open() as handle:
      _flock(handle, workdir, fcntl.LOCK_SH)


def _flock(handle, workdir, kind, attempts=1):
  for left in reversed(range(attempts)):
    try:
      return fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except OSError as error:
      if error.errno in NO_LOCKS:
        return None  # the token of owner.py is what remains
      if left:
        time.sleep(0.1)
  handle.seek(0)
  raise WorkdirInUse(f'{workdir}: in use by {handle.read().strip() or "another process"} (wait for it, or stop it)')


@contextlib.contextmanager
def locked(workdir):
  """Creates the folder and holds it for this process; a dead holder frees it. In a bucket there are no locks, and owner.py remains."""
  folder = remote.path(workdir)
  if remote.is_remote(folder):
    yield folder
    return
  try:
    folder.mkdir(parents=True, exist_ok=True)
    handle = (folder / 'LOCK').open('a+')
  except OSError as error:
    raise WriteError(f'{workdir}: cannot be written: {error.strerror}') from error
  with handle:
    _flock(handle, workdir, fcntl.LOCK_EX, attempts=10)  # another start may be looking, in `check_free`
    handle.truncate(0)
    handle.write(f'process {os.getpid()} on {platform.node()}\n')
    handle.flush()
    _remove_leftovers(folder)
    yield folder


def _remove_leftovers(folder):
  """What `write` of a process that died has left behind; those that live still write here (an import, a note of a sweep)."""
  for path in folder.glob('.*.*'):
    name = re.fullmatch(r'\..+\.(\d{1,9})', path.name)
    if name and path.is_file() and (int(name[1]) == os.getpid() or not _lives(int(name[1]))):
      with contextlib.suppress(OSError):
        path.unlink()


def _lives(process):
  """Whether there is a process of that number on this machine."""
  try:
    os.kill(process, 0)
  except ProcessLookupError:
    return False
  except OSError:  # of somebody else
    return True
  return True


@contextlib.contextmanager
def writing(path):
  """The folder of a file that is about to be written; what then fails is one sentence."""
  try:
    if not remote.is_remote(path):  # a bucket has names and no folders
      path.parent.mkdir(parents=True, exist_ok=True)
    yield
  except OSError as error:
    raise WriteError(f'{path}: cannot be written: {error.strerror or error}') from error


def write(path, text):
  """Writes a whole file or nothing: readers never see a torn one."""
  path = remote.path(path)
  if remote.is_remote(path):  # an object appears whole
    with writing(path):
      path.write_text(text)
    return
  temporary = path.with_name(f'.{path.name}.{os.getpid()}')
  with writing(path):
    try:
      with temporary.open('w') as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
      temporary.unlink(missing_ok=True)  # on a full disk every byte counts
      raise


def write_json(path, tree):
  """Strict JSON, one canonical form."""
  write(path, json.dumps(tree, indent=2, sort_keys=True, allow_nan=False) + '\n')


def check_data(workdir, record):
  """Refuses to go on with other text than the run began with."""
  path = remote.path(workdir) / 'data.json'
  if path.exists():
    lines = config_lib.diff(json.loads(path.read_text()), record)
    if lines:
      raise DataError(f'{workdir}: the run began with other data (choose another workdir):\n  ' + '\n  '.join(lines))


def write_environment(workdir, now):
  """env.json, from `environment.of_process`; a run that goes on under another one is told what that costs.

  A field that the run's env.json has not, since an older release wrote it, counts as another: that release had other sources.
  """
  path = remote.path(workdir) / 'env.json'
  lines = config_lib.diff(json.loads(path.read_text()), now) if path.exists() else []
  if lines:
    edited = ', as far as the edited sources compute the same' if any(line.startswith('+ sources_sha256') for line in lines) else ''
    told = f'goes on in another environment, so equal to rounding and not bit for bit{edited}'
    progress.say(f'{workdir}: {told}:\n  ' + '\n  '.join(lines))
  write_json(path, now)
