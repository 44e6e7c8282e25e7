"""One long text over many devices: each computes its share of the tokens, so that the longest length grows with the number of devices.

Tokens meet in attention alone. There every device gathers the keys, values and side values of all tokens and lets its own queries look at
them; what is never anywhere whole are scores, hidden states and logits. Later shares have more to look at, which is the price of not
dealing tokens out in another order.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from pe_jax import blockwise, loss, model

AXIS = 'sequence'


def nll(config, enc, params, tokens_BT, targets_BT, where, devices=None):
  """-log p(target) at each place, float32 (B, T), spread over the devices."""
  count, length = len(devices or jax.devices()), tokens_BT.shape[1]
  grid = jax.make_mesh((count,), (AXIS,), axis_types=(AxisType.Auto,), devices=devices)
  shared, own = P(), P(None, AXIS)

  @functools.partial(jax.shard_map, mesh=grid, in_specs=(shared, shared, own, own), out_specs=own, check_vma=False)
  def share(params, where, tokens_BT, targets_BT):
    size = tokens_BT.shape[1]
    start = jax.lax.axis_index(AXIS) * size
    mine = where.queries(start, size)
    x_BTD, _ = model.hidden(config, enc, params, tokens_BT, mine, alone=mine.keys(start, size), join=gather)
    return loss.each(x_BTD, *model.head(config, params), targets_BT)

  where = blockwise.padded(jax.tree.map(jnp.asarray, where), -length % count, -length % count)
  pad = functools.partial(jnp.pad, pad_width=((0, 0), (0, -length % count)))
  return share(params, where, pad(tokens_BT), pad(targets_BT))[:, :length]


def gather(n, layer):
  """The keys, values and side values of all devices' tokens, in order."""
  del n
  return jax.tree.map(lambda x: jax.lax.all_gather(x, AXIS, axis=1, tiled=True), layer)
