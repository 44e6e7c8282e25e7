"""One text over eight devices equals one device."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from pe_jax import loss, model, sequence
from pe_jax.data import packing
from pe_jax.encodings.base import Where
from pe_jax.evaluate import memory, score

SPECS = [
  'rope',
  'alibi',
  'sinusoidal',
  'fox',
  'pope',
  'cope(npos_max=6)',
  'dynamic_ntk(factor=2)',
  'log_n(layers(rope, fox))',
  'sinks(window=9)',
]


@pytest.mark.parametrize('attention', ['auto', 'blockwise'])
@pytest.mark.parametrize('spec', SPECS)
def test_eight_devices_give_the_numbers_of_one(spec, attention):
  config, enc, params = tiny.made(spec, attention=attention)
  tokens, targets = tiny.tokens(2, 64), tiny.tokens(2, 64, seed=1)
  rows = [tiny.row(30, 20, total=64), tiny.row(-3, 61, total=64)]
  where = Where.forward(*(jnp.concatenate(x) for x in zip(*rows, strict=True)))
  whole = loss.nll(jax.jit(lambda p: model.apply(config, enc, p, tokens, where))(params), targets)
  spread = jax.jit(lambda p: sequence.nll(config, enc, p, tokens, targets, where))(params)
  assert len(spread.sharding.device_set) == 8
  real = where.qdoc_BT > 0
  assert tiny.error(jnp.where(real, spread, 0), jnp.where(real, whole, 0)) < 1e-5


def test_what_fills_up_the_devices_is_no_text():
  """61 tokens are 64 over eight devices, and a table of 61 rows serves them."""
  config, enc, params = tiny.made('learned(max_length=61)')
  tokens, targets = tiny.tokens(1, 61), tiny.tokens(1, 61, seed=1)
  where = Where.forward(*tiny.row(61, total=61))
  whole = loss.nll(jax.jit(lambda p: model.apply(config, enc, p, tokens, where))(params), targets)
  spread = jax.jit(lambda p: sequence.nll(config, enc, p, tokens, targets, where))(params)
  assert tiny.error(spread, whole) < 1e-5


def test_devices_of_one_machine_share_its_memory():
  """Eight rows over eight devices of this CPU need what they need on one."""
  grid = jax.make_mesh((8,), ('rows',))
  x = jnp.ones((8, 4096))

  def needed(sharding):
    return memory.needed(jax.jit(lambda x: jnp.sort(x * 2, axis=1) + 1).lower(jax.device_put(x, sharding)).compile())

  spread, alone = needed(NamedSharding(grid, P('rows'))), needed(jax.sharding.SingleDeviceSharding(jax.devices()[0]))
  assert 0.9 < spread / alone < 1.5


def test_a_long_text_is_evaluated_over_all_devices(monkeypatch):
  """Rows of 61 tokens, which eight devices do not divide; the same sums by position as a row to each device."""
  config, enc, params = tiny.made('alibi')
  rows = packing.windows([np.arange(300) % 50, np.arange(100) % 50], 61, None)
  apart = score.by_position(config, enc, params, rows)
  monkeypatch.setattr(score, 'LONG', 61)
  together = score.by_position(config, enc, params, rows)
  assert tiny.error(together[0], apart[0]) < 1e-5
  assert np.array_equal(together[1], apart[1])
