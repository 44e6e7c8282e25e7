"""One checkpoint on disk: is it whole, does it fit, and are its arrays what was saved?

<step>/progress/metadata is a record: where the data stood, the step, the validation loss and the fingerprint of every array, sealed by a
hash. orbax keeps no checksum of what arrays hold: a flipped bit in a data file is restored without a word, and found here.
Checkpoints from before there was a record still load, with a note that nothing can be verified.
"""

import contextlib
import gc
import hashlib
import json
import math
import os
import sys
import types

import jax
import orbax.checkpoint as ocp

from pe_jax import fingerprint, progress, remote
from pe_jax.errors import ConfigDiffers, WriteError

WITHOUT_RECORD = {'position', 'targets'}  # all that progress held before
FORGED = 100  # times the bytes of its files: more than that no state of a model can be compressed


class Damaged(Exception):
  """A checkpoint that cannot be trusted; the text says why, in one line."""


def line(error):
  """orbax's pages in one line."""
  return ' '.join(str(error).split())[:300] or type(error).__name__


def is_there(path):
  """Whether a folder looks like a checkpoint; nothing in it is verified."""
  return not cut_off(path) and (path / 'state' / '_METADATA').exists() and (path / 'progress' / 'metadata').exists()


def cut_off(path):
  """Whether a save has not come to its end there, or not yet. On a disk the folder has no step's name until then; in a bucket orbax writes
  into it from the first, and this mark last.
  """
  return remote.is_remote(path) and not (path / 'commit_success.txt').exists()


def sealed(progress_, step, prints, validation_loss):
  """The record that is written beside the arrays."""
  arrays = {name: [p.dtype, list(p.shape), p.sum] for name, p in prints.items()}
  record = progress_ | {'step': step, 'validation_loss': validation_loss, 'arrays': arrays}
  return record | {'sha256': _seal(record)}


def _seal(record):
  return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def read_record(path):
  """The record of the checkpoint in the folder `path`, whose name is its step; Damaged if it is not whole."""
  if not is_there(path):
    raise Damaged('not a whole checkpoint (its description, its progress or the mark of its end is missing)')
  for extra in ('_CHECKPOINT_METADATA', 'state/_METADATA'):
    if (path / extra).exists():
      _json(path / extra)
  record = _json(path / 'progress' / 'metadata')
  measured = _json(path / 'metrics' / 'metrics').get('validation_loss') if (path / 'metrics' / 'metrics').exists() else None
  if set(record) == WITHOUT_RECORD:
    return record | {'validation_loss': measured}
  seal = record.pop('sha256', None)
  if seal != _seal(record):
    raise Damaged('progress: differs from the hash that was saved with it')
  if record['step'] != int(path.name):
    raise Damaged(f'progress: of step {record["step"]}, in a folder for step {path.name}')
  if record['validation_loss'] != measured:
    raise Damaged(f'metrics: validation loss {measured}, and {record["validation_loss"]} was saved')
  return record


def _json(path):
  try:
    tree = json.loads(path.read_text())
  except (OSError, ValueError) as error:
    raise _blamed(f'{path.parent.name}/{path.name}: {line(error)}') from error
  if not isinstance(tree, dict):
    raise Damaged(f'{path.parent.name}/{path.name}: a {type(tree).__name__} where an object was wanted')
  return tree


def shapes(path):
  """({name: (type, shape)} of the arrays by their description on disk, the tree of that description). No array is read."""
  tree = _tried(lambda: ocp.StandardCheckpointHandler().metadata(path / 'state').tree)
  leaves, need = fingerprint.by_name(tree), 0
  for name, leaf in leaves.items():
    chunk = getattr(getattr(leaf, 'storage', None), 'chunk_shape', None) or ()
    if any(c > max(n, 1) for c, n in zip(chunk, leaf.shape)):
      raise Damaged(f'state: {name} of shape {tuple(leaf.shape)} in pieces of {tuple(chunk)}')
    need += math.prod(leaf.shape) * leaf.dtype.itemsize
  if not remote.is_remote(path) and need > FORGED * (held := _bytes_in(path / 'state')) + 2**20:
    raise Damaged(f'state: {need} bytes of arrays in files of {held} bytes')
  return {name: (str(leaf.dtype), tuple(leaf.shape)) for name, leaf in leaves.items()}, tree


def _bytes_in(folder):
  return sum(os.path.getsize(os.path.join(where, name)) for where, _, names in os.walk(folder) for name in names)


def read(path, like, alike=contextlib.nullcontext):
  """(state, record) with the structure, shapes, types and placement of `like`.

  Damaged if anything is not as it was saved or not finite; ConfigDiffers if it is whole and of another model. `alike()` is the context of
  what several processes do each by itself, with its part of the arrays: it makes what one finds damaged so for all (hosts.together).
  """
  with alike():
    record = read_record(path)
    check_shapes(path, record, {name: (str(x.dtype), tuple(x.shape)) for name, x in fingerprint.by_name(like).items()})
    state = _arrays(path, like)
  check_arrays(path, record, fingerprint.of(state))
  return state, record


def _arrays(path, like):
  """What this process holds of the arrays, read without waiting for any other process."""
  me = jax.process_index()
  abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
  alone = ocp.options.MultiprocessingOptions(primary_host=me, active_processes={me}, barrier_sync_key_prefix=f'process_{me}')

  def restored():
    with ocp.Checkpointer(ocp.StandardCheckpointHandler(multiprocessing_options=alone), multiprocessing_options=alone) as reader:
      return reader.restore(path / 'state', args=ocp.args.StandardRestore(abstract))

  return _tried(restored)


def check_shapes(path, record, here):
  """Before any array is read: what the disk would make us allocate, what was saved and the target agree."""
  there, _ = shapes(path)
  was = {name: (dtype, tuple(shape)) for name, (dtype, shape, _) in record['arrays'].items()} if 'arrays' in record else there
  if there != was:
    raise Damaged(f'state: {_difference(there, was)}')
  if was != here:
    raise ConfigDiffers(f'{path}: holds other arrays than this run: {_difference(was, here)} (choose another workdir)')


def _difference(there, here):
  """The first that differs, and how many do."""
  names = sorted(name for name in there.keys() | here.keys() if there.get(name) != here.get(name))
  text = [' '.join(map(str, side.get(names[0], ('none',)))) for side in (there, here)]
  more = f', and {len(names) - 1} more' if len(names) > 1 else ''
  return f'{names[0]} is {text[0]}, and should be {text[1]}{more}'


def check_arrays(path, record, prints):
  """Damaged if an array is not finite or not what was saved. `prints` may be of some of the arrays."""
  bad = [name for name, p in prints.items() if p.not_finite]
  if bad:
    raise Damaged(f'state: {bad[0]} has {prints[bad[0]].not_finite} entries that are not finite{_more(bad)}')
  if 'arrays' not in record:
    progress.say(f'{path}: written before checkpoints had fingerprints, so its arrays cannot be verified')
    return
  differ = [name for name, p in prints.items() if [p.dtype, list(p.shape), p.sum] != record['arrays'].get(name)]
  if differ:
    raise Damaged(f'state: {differ[0]} is not what was saved{_more(differ)}')


def _drop_readers():
  """Ends what orbax was reading when one array failed: it closes the loop on the others, which then can never go on.

  Left to Python's collector, they would fill pages with complaints whenever that next comes by, far from here.
  """
  for left in [x for x in gc.get_objects() if type(x) is types.CoroutineType]:
    if 'orbax' in left.cr_code.co_filename and left.cr_code.co_name.startswith(('_read_', 'async_deserialize')):
      with contextlib.suppress(Exception):
        left.close()


def _blamed(said):
  """Damaged, unless the words say that the checkpoint may be fine and it is this process that cannot read it: then nothing is set aside."""
  if any(word in said for word in ('RESOURCE_EXHAUSTED', 'PERMISSION_DENIED', 'Permission denied', 'MemoryError', 'Unable to allocate')):
    return WriteError(f'checkpoint cannot be read: {said} (give the process more memory, or the right to read it)')
  return Damaged(said)


def _more(names):
  return f', nor {len(names) - 1} other arrays' if len(names) > 1 else ''


def _tried(call):
  """call(), or `_blamed` with what it said. What orbax and tensorstore raise is of many types."""
  hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
  try:
    try:
      return call()
    except Exception as error:
      said = line(error)
    _drop_readers()
    gc.collect()
  finally:
    sys.unraisablehook = hook
  raise _blamed(f'state: {said}')
