"""Folders in a bucket (gs://…) beside folders on a disk: which of them a name means, and early whether it can be used.

A bucket has whole objects instead of files: no appending, no renaming, no locks. What is written there is written whole. Access is through
etils.epath and gcsfs; arrays of checkpoints go through tensorstore.
"""

import importlib.util
import pathlib
import queue
import shutil
import threading

from pe_jax.errors import ConfigError, DataError

SECONDS = 60  # that a bucket may take to answer; without credentials its clients try for minutes
WITHOUT_CREDENTIALS = ('credential', 'anonymous', 'unauthenticated', 'permission', 'forbidden', 'denied', '401', '403')


def is_remote(name):
  """Whether it is in a bucket."""
  return str(name).startswith('gs://')


def path(name):
  """A pathlib.Path, or what serves as one for gs://."""
  if not is_remote(name):
    return pathlib.Path(name)
  from etils import epath

  return epath.Path(name)


def move(source, target):
  """Gives a folder another name; the folder above that must exist on a disk. What cannot be renamed is copied, then deleted.

  So it is on another disk and on some mounted drives, and in a bucket wherever its client asks for a folder above, which a bucket has not.
  """
  if not is_remote(source):
    shutil.move(source, target)
    return
  try:
    source.rename(target)
  except OSError:
    _copy(source, target)
    source.rmtree()


def _copy(source, target):
  """All objects below a name, to another one. There is no walking: etils takes what fsspec then names for a local path."""
  if not source.is_dir():
    source.copy(target, overwrite=True)
    return
  for inner in source.iterdir():
    _copy(inner, target / inner.name)


def local(name, field):
  """The pathlib.Path of what can only be on a disk."""
  check_scheme(name, field)
  if is_remote(name):
    raise ConfigError(f'{field}: {name} is in a bucket, and this is read and written on local disks only (copy it)')
  return pathlib.Path(name)


def check_scheme(name, field):
  """Refuses places that are neither."""
  scheme, colon, rest = str(name).partition('://')
  if colon and scheme != 'gs':
    raise ConfigError(f"{field}: '{scheme}://' is no place that this can use (a folder on a disk, or gs://bucket/folder)")
  if colon and not rest.partition('/')[0]:
    raise ConfigError(f'{field}: {name} names no bucket (gs://bucket/folder)')


def check(name, field):
  """Refuses, within a minute, a bucket that cannot be used: no gcsfs, no credentials, no such bucket, no answer."""
  check_scheme(name, field)
  if not is_remote(name):
    return
  if importlib.util.find_spec('gcsfs') is None:
    raise ConfigError(f"{field}: {name} needs the gcsfs package (pip install -e '.[gcs]')")
  _look_each_time()
  bucket = '/'.join(str(name).split('/')[:3])
  error = _within(SECONDS, lambda: next(iter(path(bucket).iterdir()), None))
  if isinstance(error, TimeoutError):
    raise DataError(f'{field}: {bucket} has not answered within {SECONDS} s (look at the network and the credentials)')
  if isinstance(error, FileNotFoundError):
    raise DataError(f'{field}: there is no bucket {bucket}, or it may not be seen (make it with: gcloud storage buckets create {bucket})')
  if error is not None:
    said = ' '.join(f'{type(error).__name__}: {error}'.split())[:200]
    missing = any(word in said.lower() for word in WITHOUT_CREDENTIALS)
    way_out = 'gcloud auth application-default login, or GOOGLE_APPLICATION_CREDENTIALS=key.json; the account needs to list, read and write'
    raise DataError(f'{field}: {bucket} cannot be used: {said} ({way_out if missing else "try: gcloud storage ls " + bucket})')


def _look_each_time():
  """gcsfs would remember listings, and the sizes in them, of what other processes write over."""
  from fsspec import config

  for scheme in ('gs', 'gcs'):
    config.conf.setdefault(scheme, {}).setdefault('use_listings_cache', False)


def _within(seconds, call):
  """What the call raises, None for nothing, a TimeoutError if it does not come back."""
  ended = queue.Queue()

  def work():
    try:
      call()
      ended.put(None)
    except Exception as error:  # of the bucket's client, of the network, of the credentials: they have no common type
      ended.put(error)

  threading.Thread(target=work, daemon=True).start()
  try:
    return ended.get(timeout=seconds)
  except queue.Empty:
    return TimeoutError()
