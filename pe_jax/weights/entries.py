"""Which tensor of a file holds which of our parameters, in both directions.

    linear('model.layers.0.mlp.up_proj', 'block_0/mlp/up', bias=True)    a weight and a bias
    fused('h.0.attn.c_attn', 'block_0', m, BLOCKS)                       queries, keys and values in one tensor

`m` is config.model; tensors are NumPy arrays. Parameters are named by their path under 'decoder', those of the encoding by 'encoding/…'.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from pe_jax.errors import DataError


@dataclasses.dataclass(frozen=True)
class Entry:
  """A tensor of the files and the parameters it holds.

  Attributes:
    tensor: its name.
    leaves: paths of parameters.
    read: (array) -> arrays of the parameters.
    write: (*arrays of the parameters) -> array.
  """

  tensor: str
  leaves: tuple[str, ...]
  read: Callable = lambda x: (x,)
  write: Callable = lambda x: x


def linear(tensor, path, bias):
  """A projection: the files hold W (out, in) and our kernel is its transpose."""
  yield Entry(f'{tensor}.weight', (f'{path}/kernel',), lambda x: (x.T,), lambda x: x.T)
  if bias:
    yield Entry(f'{tensor}.bias', (f'{path}/bias',))


def untransposed(tensor, path, bias):
  """A projection whose weight the files hold as we do, (in, out): GPT-2's Conv1D."""
  yield Entry(f'{tensor}.weight', (f'{path}/kernel',))
  if bias:
    yield Entry(f'{tensor}.bias', (f'{path}/bias',))


def norm(tensor, path, bias):
  """A norm's scale, and its shift if it has one."""
  yield Entry(f'{tensor}.weight', (f'{path}/scale',))
  if bias:
    yield Entry(f'{tensor}.bias', (f'{path}/bias',))


def embedding(tensor):
  """The token embedding."""
  return Entry(f'{tensor}.weight', ('embed/embedding',))


def head(tensor, m):
  """The output layer, where it has parameters of its own."""
  if not m.tie_head:
    yield Entry(f'{tensor}.weight', ('head/kernel',), lambda x: (x.T,), lambda x: x.T)
  if m.head_bias:
    yield Entry(f'{tensor}.bias', ('head_bias',))


def fused(tensor, block, m, split, transposed=True):
  """Queries, keys and values in one tensor. `split`: GROUPS or BLOCKS; `transposed`: the weight is (out, in)."""
  leaves = [f'{block}/attention/{name}' for name in ('query', 'key', 'value')]

  def read(x):
    rows = x if transposed else x.T  # a bias is its own transpose
    _check_rows(rows, m, tensor)
    return [part.T for part in split.apart(rows, m)]

  def write(*parts):
    rows = split.joined([part.T for part in parts], m)
    return rows if transposed else rows.T

  yield Entry(f'{tensor}.weight', tuple(f'{leaf}/kernel' for leaf in leaves), read, write)
  if m.qkv_bias:
    yield Entry(f'{tensor}.bias', tuple(f'{leaf}/bias' for leaf in leaves), read, write)


def _check_rows(x, m, name):
  rows = (m.num_heads + 2 * m.num_kv_heads) * m.head_dim
  if x.shape[0] != rows:
    raise DataError(
      f'{name}: has {x.shape[0]} rows, and config.json says {m.num_heads} heads of queries and {m.num_kv_heads} of keys and values of '
      f'{m.head_dim} each, which makes {rows} (they are not of one model)'
    )


@dataclasses.dataclass(frozen=True)
class Split:
  """How the rows of queries, keys and values lie in one tensor: apart(rows, m) -> [queries, keys, values], joined([…], m) -> rows."""

  apart: Callable
  joined: Callable


def _apart_groups(x, m):
  parts_GRK = x.reshape(m.num_kv_heads, m.num_heads // m.num_kv_heads + 2, m.head_dim, *x.shape[1:])
  return [part.reshape(-1, *x.shape[1:]) for part in (parts_GRK[:, :-2], parts_GRK[:, -2], parts_GRK[:, -1])]


def _joined_groups(parts, m):
  split = [part.reshape(m.num_kv_heads, -1, m.head_dim, *part.shape[1:]) for part in parts]
  return np.concatenate(split, axis=1).reshape(-1, *parts[0].shape[1:])


def _apart_blocks(x, m):
  queries, keys = m.num_heads * m.head_dim, m.num_kv_heads * m.head_dim
  return [x[:queries], x[queries : queries + keys], x[queries + keys :]]


# The rows of each key-value head together: its H / G query heads, its key, its value. GPT-NeoX, BLOOM, Falcon.
GROUPS = Split(_apart_groups, _joined_groups)
# All queries, then all keys, then all values. GPT-2, MPT.
BLOCKS = Split(_apart_blocks, lambda parts, m: np.concatenate(parts))
