"""A fingerprint of arrays, the same however they are spread over devices; stored with a checkpoint, it tells what reading brought back.

    F(x) = sum_i mix(w_i xor c i)  mod 2^32,   mix(w) = v xor (v >> 15),   v = 0x85EBCA6B w,   c = 0x9E3779B1

over the 32-bit words w_i of the array (shorter types are widened, longer ones cut in two), i the place of the word. mix is one to one, so
that a change in one word always changes F, be it one bit; more changed words, or words that changed places, escape once in 2^32. Sums of
integers have no order: F is the same on one device and on eight, sharded or whole. It is made on the devices and reads each array once.
"""

import dataclasses
import hashlib

import jax
import jax.numpy as jnp
import numpy as np

from pe_jax import hosts

PLACE, ODD = 0x9E3779B1, 0x85EBCA6B


@dataclasses.dataclass(frozen=True)
class Print:
  """Of one array: its type, its shape, F, and how many of its entries are not finite."""

  dtype: str
  shape: tuple
  sum: int
  not_finite: int


def of(tree):
  """{name: Print} of a tree's arrays; names are paths such as 'params.decoder.embed.embedding'."""
  leaves = by_name(tree)
  fetched = jax.device_get({name: hosts.settled(_sums(x)) for name, x in leaves.items()})
  return {name: Print(str(x.dtype), tuple(x.shape), int(fetched[name][0]), int(fetched[name][1])) for name, x in leaves.items()}


def by_name(tree):
  """{path: leaf}; the same path whether a level is a dict, a tuple or a record."""
  return {jax.tree_util.keystr(path, simple=True, separator='.'): x for path, x in jax.tree_util.tree_flatten_with_path(tree)[0]}


@jax.jit
def _sums(x):
  """(F as uint32, entries that are not finite as int32)."""
  words = _words(x)
  place, stride = jnp.uint32(0), 1
  for axis in reversed(range(words.ndim)):
    place += jax.lax.broadcasted_iota(jnp.uint32, words.shape, axis) * jnp.uint32(stride % 2**32)
    stride *= words.shape[axis]
  v = (words ^ (place * jnp.uint32(PLACE))) * jnp.uint32(ODD)
  bad = jnp.sum(~jnp.isfinite(x), dtype=jnp.int32) if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.int32(0)
  return jnp.sum(v ^ (v >> 15), dtype=jnp.uint32), bad


def _words(x):
  if x.dtype == bool:
    return x.astype(jnp.uint32)
  unsigned = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint32}[x.dtype.itemsize]
  return jax.lax.bitcast_convert_type(x, unsigned).astype(jnp.uint32)


def digest(tree):
  """SHA-256 over every leaf's name, type, shape and bytes, on the host."""
  total = hashlib.sha256()
  for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
    array = np.asarray(leaf)
    total.update(f'{jax.tree_util.keystr(path)} {array.dtype} {array.shape}'.encode())
    total.update(array.tobytes())
  return total.hexdigest()
