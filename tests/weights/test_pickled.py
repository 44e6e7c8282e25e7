"""pytorch_model.bin read without torch: the tensors of a file as torch.save writes it, and nothing that a pickle asks for beside."""

import collections
import contextlib
import io
import json
import os
import pathlib
import pickle
import sys
import types
import zipfile

import jax
import ml_dtypes
import numpy as np
import pytest
import tiny_weights as made

from pe_jax.errors import ConfigError, DataError
from pe_jax.weights import importing, pickled

pytest.importorskip('safetensors')
BYTES = {'vocab_size': 257}
STORAGES = {'float32': 'FloatStorage', 'float16': 'HalfStorage', 'bfloat16': 'BFloat16Storage'}


@pytest.fixture
def torch(monkeypatch):
  """Modules under torch's names with the classes that its pickles name."""
  module, utils = types.ModuleType('torch'), types.ModuleType('torch._utils')
  for name in STORAGES.values():
    setattr(module, name, type(name, (), {'__module__': 'torch'}))
  exec('def _rebuild_tensor_v2(*_): pass', utils.__dict__)
  utils._rebuild_tensor_v2.__module__ = 'torch._utils'
  for name, one in {'torch': module, 'torch._utils': utils}.items():
    monkeypatch.setitem(sys.modules, name, one)
  return module


class Stored:
  """A tensor for `save`: an array, and how it lies in its storage."""

  def __init__(self, array, offset=0, shape=None, strides=None):
    self.array = np.ascontiguousarray(array)
    self.shape = self.array.shape if shape is None else shape
    self.strides = tuple(step // self.array.itemsize for step in self.array.strides) if strides is None else strides
    self.offset = offset


def save(path, tensors, torch, byteorder=b'little', metadata=True):
  """A zip as torch.save writes it of a state_dict."""

  class Pickler(pickle.Pickler):
    def persistent_id(self, one):
      if isinstance(one, Key):
        return 'storage', getattr(torch, STORAGES[one.array.dtype.name]), one.key, 'cpu', one.array.size
      return None

    def reducer_override(self, one):
      if isinstance(one, Stored):
        rebuild = sys.modules['torch._utils']._rebuild_tensor_v2
        return rebuild, (Key(keys[id(one)], one.array), one.offset, one.shape, one.strides, False, collections.OrderedDict())
      return NotImplemented

  Key = collections.namedtuple('Key', 'key array')
  keys = {id(one): str(n) for n, one in enumerate(tensors.values()) if isinstance(one, Stored)}
  whole = collections.OrderedDict(tensors)
  if metadata:
    whole._metadata = collections.OrderedDict(version=1)
  told = io.BytesIO()
  Pickler(told, protocol=2).dump(whole)
  with zipfile.ZipFile(path, 'w') as file:
    file.writestr('archive/data.pkl', told.getvalue())
    file.writestr('archive/byteorder', byteorder)
    for one in tensors.values():
      if isinstance(one, Stored):
        file.writestr(f'archive/data/{keys[id(one)]}', one.array.tobytes())
  return path


def weights():
  """Tensors of the stored Llama with a vocabulary of bytes."""
  rows = {name: made.tensor(name, (257, 32)) for name in ('model.embed_tokens.weight', 'lm_head.weight')}
  return {**made.tensors('llama'), **rows}


def folder(path, file, torch, arrays):
  made.folder(path, 'llama', BYTES, weights())
  (path / 'model.safetensors').unlink()
  return save(path / file, {name: Stored(x) for name, x in arrays.items()}, torch)


def read(path, allow_pickle=True):
  opened = importing.opened_source(path, allow_pickle)
  return importing.parameters(opened, importing.config_of(opened.given)[0])[0]


def test_a_model_in_a_pickle_is_that_of_safetensors_where_it_is_allowed(torch, tmp_path):
  folder(tmp_path / 'a', 'pytorch_model.bin', torch, weights())
  params, same = read(tmp_path / 'a'), read(made.folder(tmp_path / 'b', 'llama', BYTES, weights()), allow_pickle=False)
  assert jax.tree.all(jax.tree.map(np.array_equal, params, same))
  with pytest.raises(ConfigError, match=r'pytorch_model\.bin, a pickle, which can run any code .*--allow_pickle'):
    read(tmp_path / 'a', allow_pickle=False)


def test_shards_of_pickles_are_one_model(torch, tmp_path):
  arrays, where = weights(), {}
  for n, names in enumerate((sorted(arrays)[::2], sorted(arrays)[1::2])):
    file = f'pytorch_model-0000{n + 1}-of-00002.bin'
    folder(tmp_path, file, torch, {name: arrays[name] for name in names}) if not n else save(
      tmp_path / file, {name: Stored(arrays[name]) for name in names}, torch
    )
    where |= dict.fromkeys(names, file)
  (tmp_path / 'pytorch_model.bin.index.json').write_text(json.dumps({'weight_map': where}))
  assert read(tmp_path)['decoder'].keys() == {'embed', 'head', 'final_norm', 'block_0', 'block_1'}
  (tmp_path / file).unlink()
  with pytest.raises(DataError, match='1 of 2 shards are missing: pytorch_model-00002'):
    read(tmp_path)


def test_views_and_narrow_types_are_read_as_torch_lays_them(torch, tmp_path):
  base = np.arange(24, dtype=np.float32)
  tensors = {
    'whole': Stored(base.reshape(4, 6)),
    'transposed': Stored(base, shape=(6, 4), strides=(1, 6)),
    'part': Stored(base, offset=5, shape=(3,), strides=(2,)),
    'one': Stored(base, offset=23, shape=(), strides=()),
    'half': Stored(base.astype(np.float16)),
    'brain': Stored(base.astype(ml_dtypes.bfloat16)),
  }
  found = pickled.tensors(save(tmp_path / 'a.bin', tensors, torch))
  assert {name: one.kind for name, one in found.items()} == dict.fromkeys(('whole', 'transposed', 'part', 'one'), 'F32') | {
    'half': 'F16', 'brain': 'BF16'
  }  # fmt: skip
  want = {
    'whole': base.reshape(4, 6), 'transposed': base.reshape(4, 6).T, 'part': base[[5, 7, 9]], 'one': base[23], 'half': base, 'brain': base,
  }  # fmt: skip
  for name, one in found.items():
    assert one.read().dtype == np.float32
    assert np.array_equal(one.read(), want[name]), name
    assert one.shape == want[name].shape


class Evil:
  """What is planted: it would make a file."""

  def __init__(self, call, *given):
    self.call, self.given = call, given

  def __reduce__(self):
    return self.call, self.given


@pytest.mark.parametrize(
  'evil',
  [
    lambda path: Evil(os.mkdir, str(path)),
    lambda path: Evil(exec, f'import os; os.mkdir({str(path)!r})'),
    lambda path: Evil(getattr, pathlib.Path(path), 'mkdir'),
    lambda path: Evil(eval, '1'),
  ],
)
def test_what_is_planted_in_a_pickle_is_named_and_not_run(evil, torch, tmp_path):
  made_by_it = tmp_path / 'was_here'
  path = save(tmp_path / 'a.bin', {'x': Stored(np.ones(2, np.float32)), 'y': evil(made_by_it)}, torch)
  with pytest.raises(ConfigError, match=r"its pickle asks for '[\w.]+', which is no part of a tensor, and was not run"):
    pickled.tensors(path)
  assert not made_by_it.exists()


@pytest.mark.parametrize(
  'told',
  [
    b'(S"true"\nios\nsystem\n.',  # INST
    b'cos\nsystem\n(S"true"\ntR.',  # GLOBAL and REDUCE
    b'(cos\nsystem\nS"true"\no.',  # OBJ
    b'\x80\x02\x82\x01.',  # EXT1
    b'\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.',  # STACK_GLOBAL
    b'\x80\x02ctorch._utils\n_rebuild_parameter\n}S"__defaults__"\nK\x01sb.',  # BUILD on what is ours
    b'ccollections\nOrderedDict\n)R}S"values"\nctorch._utils\n_rebuild_parameter\nsb.',
    b'ctorch.storage\n_load_from_bytes\n(S""\ntR.',
    b'\x80\x02K\x01.',
    b'garbage',
    b'',
  ],
)
def test_no_order_of_the_machine_leads_anywhere(told, tmp_path, monkeypatch):
  run = []
  monkeypatch.setattr(os, 'system', run.append)
  with zipfile.ZipFile(tmp_path / 'a.bin', 'w') as file:
    file.writestr('a/data.pkl', told)
  with contextlib.suppress(ConfigError, DataError):  # any other error is the test's
    assert pickled.tensors(tmp_path / 'a.bin') == {}
  assert run == []
  assert pickled._parameter.__defaults__ is None


@pytest.mark.parametrize(
  ('tensors', 'more', 'error', 'match'),
  [
    ({'x': Stored(np.ones(4, np.float32), shape=(5,), strides=(1,))}, {}, DataError, r'x of shape \(5,\) lies outside of its 16 bytes'),
    ({'x': Stored(np.ones(4, np.float32), offset=4, shape=(1,))}, {}, DataError, 'lies outside'),
    ({'x': Stored(np.ones(4, np.float32), offset=3, shape=(2,), strides=(-1,))}, {}, DataError, 'lies outside'),
    ({'x': 3}, {}, DataError, 'is no dictionary of tensors'),
    ({}, {'byteorder': b'big'}, ConfigError, 'puts the high byte first'),
  ],
)
def test_a_pickle_that_contradicts_itself_is_refused(tensors, more, error, match, torch, tmp_path):
  path = save(tmp_path / 'a.bin', tensors, torch, **more)
  with pytest.raises(error, match=match):
    [one.read() for one in pickled.tensors(path).values()]


def test_files_that_are_no_zip_or_torn_are_named(tmp_path):
  (tmp_path / 'a.bin').write_bytes(pickle.dumps({'x': 1}))
  with pytest.raises(ConfigError, match=r'no zip, as torch\.save writes it since 1\.6'):
    pickled.tensors(tmp_path / 'a.bin')
