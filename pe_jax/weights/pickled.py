"""pytorch_model.bin without torch: a zip of tensors' bytes and a pickle that puts them together.

A pickle is a program that may call whatever it names. This one knows the few names below, none of which does more than describe a tensor;
any other name is refused before it is looked up, and of the machine's orders those that set attributes or make objects otherwise are taken
away. So nothing that the file names is imported or called.
"""

import collections
import functools
import pickle
import typing
import zipfile

import numpy as np

from pe_jax.errors import ConfigError, DataError
from pe_jax.weights.hf_folder import Tensor

# {storage there: (type of NumPy, as safetensors calls it)}
STORAGES = {
  'FloatStorage': ('<f4', 'F32'), 'HalfStorage': ('<f2', 'F16'), 'DoubleStorage': ('<f8', 'F64'), 'BFloat16Storage': ('bfloat16', 'BF16'),
  'ByteStorage': ('u1', 'U8'), 'BoolStorage': ('?', 'BOOL'), 'LongStorage': ('<i8', 'I64'), 'IntStorage': ('<i4', 'I32'),
}  # fmt: skip

# Orders that make objects, or look names up in other ways than `find_class`.
OTHER = (pickle.INST, pickle.OBJ, pickle.NEWOBJ, pickle.NEWOBJ_EX, pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.PERSID)


class _Storage(collections.namedtuple('_Storage', 'key dtype kind count')):
  """Numbers in a file of the zip."""


class _View(collections.namedtuple('_View', 'storage offset shape strides')):
  """A tensor: where its numbers begin in a storage, and how far apart they are."""


def _view(storage, offset, shape, strides, *_):
  """torch._utils._rebuild_tensor_v2. What comes after says nothing about numbers: gradients, hooks."""
  return _View(storage, offset, tuple(shape), tuple(strides))


def _parameter(view, *_):
  """torch._utils._rebuild_parameter."""
  return view


class _Reader(pickle._Unpickler):
  """Knows what a dictionary of tensors needs, and nothing else."""

  # Attributes, of which torch sets versions of modules, are left out.
  dispatch: typing.ClassVar = {order: run for order, run in pickle._Unpickler.dispatch.items() if bytes([order]) not in OTHER}
  dispatch[pickle.BUILD[0]] = lambda self: self.stack.pop()

  def __init__(self, file, path):
    super().__init__(file)
    self.path = path

  def find_class(self, module, name):
    known = {
      ('collections', 'OrderedDict'): collections.OrderedDict,
      ('torch._utils', '_rebuild_tensor_v2'): _view,
      ('torch._utils', '_rebuild_parameter'): _parameter,
    }
    if (module, name) in known:
      return known[module, name]
    if module == 'torch' and name in STORAGES:
      return name
    raise ConfigError(
      f"{self.path}: its pickle asks for '{module}.{name}', which is no part of a tensor, and was not run (save the model as safetensors)"
    )

  def persistent_load(self, told):
    kind, storage, key, _, count = told
    if kind != 'storage' or storage not in STORAGES:
      raise DataError(f'{self.path}: holds {kind!r} of {storage!r} where a tensor is wanted')
    return _Storage(str(key), *STORAGES[storage], int(count))


def tensors(path):
  """{name: Tensor} of a file that torch.save wrote of a state_dict."""
  import ml_dtypes  # noqa: F401  NumPy learns bfloat16 from it

  try:
    with zipfile.ZipFile(path) as file:
      main = next((name for name in file.namelist() if name.rpartition('/')[2] == 'data.pkl'), None)
      if main is None:
        raise DataError(f'{path}: no data.pkl in it (is it a file of torch.save?)')
      folder = main.rpartition('/')[0]
      if f'{folder}/byteorder' in file.namelist() and file.read(f'{folder}/byteorder') != b'little':
        raise ConfigError(f'{path}: was written by a machine that puts the high byte first (save the model as safetensors)')
      with file.open(main) as opened:
        found = _Reader(opened, path).load()
  except zipfile.BadZipFile as error:
    raise ConfigError(f'{path}: no zip, as torch.save writes it since 1.6 (save the model again, as safetensors): {error}') from error
  except ConfigError:  # is a ValueError too
    raise
  except (pickle.UnpicklingError, EOFError, LookupError, AttributeError, TypeError, ValueError, OSError, AssertionError) as error:
    raise DataError(f'{path}: its pickle cannot be read: {error} (was it copied whole?)') from error
  if not isinstance(found, dict) or not all(isinstance(view, _View) for view in found.values()):
    raise DataError(f'{path}: is no dictionary of tensors (save model.state_dict(), or as safetensors)')
  return {
    str(name): Tensor(str(name), view.shape, view.storage.kind, path.name, functools.partial(_read, path, folder, str(name), view))
    for name, view in found.items()
  }


def _read(path, folder, name, view):
  """The array of a view, copied."""
  dtype, count = np.dtype(view.storage.dtype), view.storage.count
  with zipfile.ZipFile(path) as file:
    try:
      data = file.read(f'{folder}/data/{view.storage.key}')
    except (KeyError, zipfile.BadZipFile) as error:
      raise DataError(f'{path}: the numbers of {name} cannot be read: {error} (was it copied whole?)') from error
  last = view.offset + sum((n - 1) * step for n, step in zip(view.shape, view.strides, strict=True))
  empty = 0 in view.shape
  if len(data) != count * dtype.itemsize or view.offset < 0 or min(view.strides, default=0) < 0 or (not empty and last >= count):
    raise DataError(f'{path}: {name} of shape {view.shape} lies outside of its {len(data)} bytes (was it copied whole?)')
  numbers = np.frombuffer(data, dtype)[view.offset :]
  return np.lib.stride_tricks.as_strided(numbers, view.shape, [step * dtype.itemsize for step in view.strides]).copy()
