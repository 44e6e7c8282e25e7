"""A run's folder: who may write in it, what configuration it holds, and the machine it ran on.

WORKDIR/ config.json  env.json  data.json  LOCK  checkpoints/  metrics.jsonl  timing.jsonl  tensorboard/  eval/  figures/  DONE
"""

import contextlib
import fcntl
import importlib.metadata
import json
import os
import pathlib
import platform

import ml_collections

from pe_jax import config as config_lib
from pe_jax import process, progress
from pe_jax.errors import ConfigDiffers, DataError, WorkdirInUse, WriteError

PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'tensorflow-datasets', 'numpy', 'pe_jax')


def check_config(workdir, config):
  """Refuses a workdir that holds a run of another configuration; creates nothing."""
  path = pathlib.Path(workdir) / 'config.json'
  if path.exists():
    lines = config_lib.diff(config_lib.stored(path), config.to_dict())
    if lines:
      raise ConfigDiffers(f'{workdir}: holds a run of another configuration (choose another workdir):\n  ' + '\n  '.join(lines))


def read_config(workdir):
  """The config stored there, complete."""
  path = pathlib.Path(workdir) / 'config.json'
  if not path.exists():
    raise DataError(f'{workdir}: no config.json there (a folder that train.py has written is wanted)')
  stored = config_lib.stored(path)
  named = stored['data']['tokenizer']
  brought = path.parent / 'tokenizer' / pathlib.Path(named).name  # of an imported run that was moved
  if brought.is_file() and not pathlib.Path(named).is_file():
    stored['data']['tokenizer'] = str(brought.absolute())
  return ml_collections.ConfigDict(stored).lock()


def finished(workdir):
  """What DONE says, None for a run that is not."""
  path = pathlib.Path(workdir) / 'DONE'
  return json.loads(path.read_text()) if path.exists() else None


def check_free(workdir):
  """Refuses a workdir that another process holds; creates nothing."""
  path = pathlib.Path(workdir) / 'LOCK'
  if path.exists():
    with path.open() as handle:
      _flock(handle, workdir, fcntl.LOCK_SH)


def _flock(handle, workdir, kind):
  try:
    fcntl.flock(handle, kind | fcntl.LOCK_NB)
  except OSError:
    handle.seek(0)
    raise WorkdirInUse(f'{workdir}: in use by {handle.read().strip() or "another process"} (wait for it, or stop it)') from None


@contextlib.contextmanager
def locked(workdir):
  """Creates the folder and holds it for this process; a dead holder frees it."""
  folder = pathlib.Path(workdir)
  try:
    folder.mkdir(parents=True, exist_ok=True)
    handle = (folder / 'LOCK').open('a+')
  except OSError as error:
    raise WriteError(f'{workdir}: cannot be written: {error.strerror}') from error
  with handle:
    _flock(handle, workdir, fcntl.LOCK_EX)
    handle.truncate(0)
    handle.write(f'process {os.getpid()} on {platform.node()}\n')
    handle.flush()
    yield folder


@contextlib.contextmanager
def writing(path):
  """The folder of a file that is about to be written; what then fails is one sentence."""
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    yield
  except OSError as error:
    raise WriteError(f'{path}: cannot be written: {error.strerror or error}') from error


def write(path, text):
  """Writes a whole file or nothing: readers never see a torn one."""
  path = pathlib.Path(path)
  temporary = path.with_name(f'.{path.name}.{os.getpid()}')
  with writing(path), temporary.open('w') as file:
    file.write(text)
    file.flush()
    os.fsync(file.fileno())
    temporary.replace(path)


def write_json(path, tree):
  """Strict JSON, one canonical form."""
  write(path, json.dumps(tree, indent=2, sort_keys=True, allow_nan=False) + '\n')


def check_data(workdir, record):
  """Refuses to go on with other text than the run began with."""
  path = pathlib.Path(workdir) / 'data.json'
  if path.exists():
    lines = config_lib.diff(json.loads(path.read_text()), record)
    if lines:
      raise DataError(f'{workdir}: the run began with other data (choose another workdir):\n  ' + '\n  '.join(lines))


def write_environment(workdir, now):
  """env.json, from `environment`; a run that goes on under another one is told what that costs."""
  path = pathlib.Path(workdir) / 'env.json'
  lines = config_lib.diff(json.loads(path.read_text()), now) if path.exists() else []
  if lines:
    progress.say(f'{workdir}: goes on in another environment, so equal to rounding and not bit for bit:\n  ' + '\n  '.join(lines))
  write_json(path, now)


def environment(path, long):
  """What bit-exact repetition depends on. `path`: the attention's, as from `attention.paths`; `long`: whether the length is blockwise's."""
  import jax

  device = jax.devices()[0]
  return {
    'packages': {name: importlib.metadata.version(name) for name in PACKAGES},
    'python': platform.python_version(),
    'machine': platform.machine(),
    'xla_flags': os.environ.get('XLA_FLAGS', ''),
    'compiler_options': process.options(long),
    'attention': path,
    'backend': device.platform,
    'device_kind': device.device_kind,
    'device_count': jax.device_count(),
    'process_count': jax.process_count(),
    'cores': len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count(),
  }
