"""A Hugging Face folder: config.json and tensors in safetensors files, one or several; nothing but data is read.

Pickles are refused unless they are allowed, and then read by pickled.py, which runs nothing that they name.
"""

import dataclasses
import json
import pathlib

import numpy as np

from pe_jax.errors import ConfigError, DataError

SINGLE, INDEX = 'model.safetensors', 'model.safetensors.index.json'
PICKLED, PICKLED_INDEX = 'pytorch_model.bin', 'pytorch_model.bin.index.json'


@dataclasses.dataclass(frozen=True)
class Tensor:
  """A tensor in a file, read when asked for.

  Attributes:
    name: in the file.
    shape: of the array.
    kind: its type as the file has it, 'BF16'.
    place: the file.
    array: () -> the array.
  """

  name: str
  shape: tuple[int, ...]
  kind: str
  place: str
  array: object

  def read(self):
    """float32, whatever the file has."""
    return np.asarray(self.array()).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class Folder:
  """Attributes:
  path: the folder.
  given: its config.json.
  allow_pickle: whether pytorch_model.bin may be read where there is no safetensors file.
  """

  path: pathlib.Path
  given: dict
  allow_pickle: bool = False

  def tensors(self, family, m):
    """{name: Tensor} of all files."""
    del family, m
    opened = {}
    for file in self.files():
      opened |= _pickled(file) if file.suffix == '.bin' else _tensors(file)
    index, promised = self.index(), self._promised()
    if missing := sorted(promised.keys() - opened.keys()):
      raise DataError(
        f'{self.path}: {index.name} promises {missing[0]} in {promised[missing[0]]}, which does not have it (copy the file again)'
      )
    return opened

  def generation(self):
    """Its generation_config.json: which tokens end a text, among others."""
    file = self.path / 'generation_config.json'
    return read_json(file) if file.is_file() else {}

  def index(self):
    """The file that says which file has which tensor, None where all are in one: a single file counts more, as transformers has it."""
    index = self.path / INDEX
    if (self.path / SINGLE).is_file():
      return None
    index = self.path / PICKLED_INDEX if self.allow_pickle and not index.is_file() and not self._safe() else index
    return index if index.is_file() else None

  def _promised(self):
    """{tensor: its file} of the index."""
    index = self.index()
    found = read_json(index).get('weight_map', {}) if index else {}
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found.values()):
      raise DataError(f'{index}: weight_map: an object with a file for each tensor is wanted')
    return found

  def _safe(self):
    single = self.path / SINGLE
    return [single] if single.is_file() else sorted(self.path.glob('*.safetensors'))

  def files(self):
    """The files with tensors, all of which are there."""
    if not self.index():
      if found := self._safe():
        return found
      if self.allow_pickle and (self.path / PICKLED).is_file():
        return [self.path / PICKLED]
      pickled = sorted(p.name for kind in ('*.bin', '*.pt', '*.pth', '*.ckpt') for p in self.path.glob(kind))
      if pickled:
        raise ConfigError(
          f'{self.path}: its weights are in {pickled[0]}, a pickle, which can run any code when it is read (save the model as safetensors; '
          f'{PICKLED} is read with --allow_pickle, by a reader that runs nothing)'
        )
      raise DataError(f'{self.path}: no .safetensors file there')
    names = sorted(set(self._promised().values()))
    missing = [name for name in names if not (self.path / name).is_file()]
    if missing:
      raise DataError(f'{self.path}: {len(missing)} of {len(names)} shards are missing: {", ".join(missing[:5])} (copy them there)')
    return [self.path / name for name in names]


def open_folder(path, allow_pickle=False):
  """The Folder."""
  path = pathlib.Path(path)
  file = path / 'config.json'
  if not file.is_file():
    raise DataError(f'{path}: no config.json there (a folder as save_pretrained writes it is wanted, or a .gguf file)')
  given = read_json(file)
  if given.get('quantization_config'):
    raise ConfigError(f'{file}: quantization_config: packed weights cannot be read (give the model before it was quantised, or as GGUF)')
  return Folder(path, given, allow_pickle)


def read_json(path):
  """The object in a JSON file."""
  try:
    found = json.loads(path.read_text(encoding='utf-8'))
  except (OSError, ValueError) as error:
    raise DataError(f'{path}: cannot be read: {error}') from error
  if not isinstance(found, dict):
    raise DataError(f'{path}: an object is wanted, not {type(found).__name__}')
  return found


def _pickled(path):
  from pe_jax.weights import pickled  # made of this module's Tensor

  return pickled.tensors(path)


def _tensors(path):
  import ml_dtypes  # noqa: F401  NumPy learns bfloat16 from it

  try:
    from safetensors import SafetensorError, safe_open
  except ImportError:
    raise ConfigError(f'{path}: needs the safetensors package (pip install pe_jax[weights])') from None
  try:
    file = safe_open(path, framework='np')
    slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  it is no dictionary
  except (OSError, SafetensorError) as error:
    raise DataError(f'{path}: cannot be read: {error} (was it copied whole?)') from error
  return {
    name: Tensor(name, tuple(part.get_shape()), part.get_dtype(), path.name, lambda name=name: file.get_tensor(name))
    for name, part in slices.items()
  }
