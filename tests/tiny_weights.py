"""Tiny checkpoints of transformers' model types: weights and texts that depend on names alone, so that two Pythons have the same.

tests/parity/models.json has what transformers computes with them. Needs nothing but NumPy, and safetensors to write a folder.
"""

import functools
import json
import pathlib
import zlib

import numpy as np

VOCABULARY = 64
LONG, SHORT = 40, 9  # tokens of the two texts
AT = {LONG: [0, 3, 17, 31, 39], SHORT: [0, 4, 8]}  # positions whose logits are kept
OF = [0, 21, 42, 63]  # tokens whose logits are kept of the models under rope types
STORED = pathlib.Path(__file__).parent / 'parity' / 'models.json'


def tensor(name, shape):
  """float32: projections of size 2 / sqrt(in), scales near 1, shifts near 0; large enough that everything shows in the logits."""
  values = np.random.default_rng(zlib.crc32(name.encode())).normal(size=shape)
  if len(shape) > 1:
    values *= 2 / shape[-1] ** 0.5
  else:
    values = 0.2 * values + name.endswith('.weight')
  return values.astype(np.float32)


def text(length):
  """Token ids."""
  return np.random.default_rng(length).integers(0, VOCABULARY, length)


@functools.cache
def read():
  """{versions, models, ropes}."""
  return json.loads(STORED.read_text(encoding='utf-8'))


def stored():
  """{name: {config, tensors, logits}}."""
  return read()['models']


def ropes():
  """{name: {family, kind, changes, logits, largest}}: the plain model of each family under each rope type, with what that changes."""
  return read()['ropes']


def rope_config(name):
  """The config.json of a model under a rope type."""
  return {**stored()[ropes()[name]['family']]['config'], **ropes()[name]['changes']}


def found(name):
  """What is stored of a model's logits; `of` are the tokens that are kept, where not all are."""
  return {**ropes()[name], 'of': OF} if name in ropes() else stored()[name]


def tensors(name):
  """{tensor: array} of a stored model."""
  return {key: tensor(key, shape) for key, shape in stored()[name]['tensors'].items()}


def folder(path, name, config=None, weights=None):
  """Writes the model as a Hugging Face folder. `config` changes its config.json, `weights` its tensors; None takes one out."""
  return written(path, {**stored()[name]['config'], **(config or {})}, {**tensors(name), **(weights or {})})


def written(path, config, arrays):
  """Writes a config.json and one file of tensors."""
  from safetensors.numpy import save_file

  path = pathlib.Path(path)
  path.mkdir(parents=True, exist_ok=True)
  (path / 'config.json').write_text(json.dumps({key: x for key, x in config.items() if x is not None or key == 'pad_token_id'}))
  save_file({key: np.ascontiguousarray(x) for key, x in arrays.items() if x is not None}, path / 'model.safetensors')
  return path
