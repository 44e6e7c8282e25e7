"""The fingerprint is its formula, tells any changed word, and does not know on how many devices an array lies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from pe_jax import fingerprint


def by_the_formula(x):
  """sum_i mix(w_i xor c i) mod 2^32 in Python's whole numbers."""
  words = x.astype(np.uint32) if x.dtype == bool else x.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[x.dtype.itemsize])
  total = 0
  for i, w in enumerate(words.ravel().tolist()):
    v = (w ^ (0x9E3779B1 * i % 2**32)) * 0x85EBCA6B % 2**32
    total += v ^ (v >> 15)
  return total % 2**32


def numbers(shape, dtype='float32', seed=0):
  return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@pytest.mark.parametrize(
  'x',
  [
    numbers((7, 5)),
    numbers((3, 4, 5)),
    numbers(()),
    numbers((0, 3)),
    numbers((6,)).astype(jnp.bfloat16),
    np.arange(12, dtype=np.int32).reshape(3, 4),
    np.arange(5, dtype=np.uint32),
    np.arange(9, dtype=np.int8),
    np.array([True, False, True]),
    np.array(True),
  ],
  ids=lambda x: f'{x.dtype}{list(x.shape)}',
)
def test_a_fingerprint_is_what_its_formula_says(x):
  (found,) = fingerprint.of([jnp.asarray(x)]).values()
  assert found == fingerprint.Print(str(x.dtype), x.shape, by_the_formula(x), 0)


def test_every_flipped_bit_and_every_exchange_of_two_words_is_seen():
  x = numbers((8, 4))
  whole = fingerprint.of({'x': jnp.asarray(x)})['x'].sum
  for bit in range(0, x.size * 32, 7):
    words = x.copy().view(np.uint32).ravel()
    words[bit // 32] ^= np.uint32(1) << np.uint32(bit % 32)
    assert fingerprint.of({'x': jnp.asarray(words.view(np.float32).reshape(8, 4))})['x'].sum != whole, bit
  exchanged = x.copy()
  exchanged[[0, 5]] = exchanged[[5, 0]]
  assert fingerprint.of({'x': jnp.asarray(exchanged)})['x'].sum != whole
  assert fingerprint.of({'x': jnp.asarray(x.T.copy())})['x'].sum != whole


def test_it_is_the_same_on_one_device_and_on_eight_sharded_or_whole():
  x = numbers((16, 24))
  grid = jax.make_mesh((4, 2), ('data', 'fsdp'), axis_types=(jax.sharding.AxisType.Auto,) * 2)
  placed = [jnp.asarray(x)] + [
    jax.device_put(x, NamedSharding(grid, P(*axes))) for axes in ((), ('data',), (None, 'fsdp'), ('fsdp', 'data'))
  ]
  assert {fingerprint.of([p])['0'].sum for p in placed} == {by_the_formula(x)}


def test_entries_that_are_not_finite_are_counted():
  x = numbers((4, 4))
  x[1, 1], x[2, 2], x[3, 3] = np.nan, np.inf, -np.inf
  found = fingerprint.of({'a': {'x': jnp.asarray(x)}, 'n': jnp.int32(3)})
  assert {name: p.not_finite for name, p in found.items()} == {'a.x': 3, 'n': 0}
