"""How arrays are laid out for kernels, and how a kernel that XLA cannot partition runs on each device's own rows."""

import jax
import jax.numpy as jnp
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

LANES = 128  # of a TPU's registers


def up(size, multiple=LANES):
  """The next multiple."""
  return -(-size // multiple) * multiple


def heads_first(x_BTHK, block):
  """(B, H, T, K) with T padded to whole blocks and K to whole lanes. Zeros in a head change no score and no output."""
  padded = jnp.pad(x_BTHK, ((0, 0), (0, -x_BTHK.shape[1] % block), (0, 0), (0, -x_BTHK.shape[3] % LANES)))
  return jnp.moveaxis(padded, 1, 2)


def by_rows(function, count):
  """The function, of which the first `count` arguments have an axis of rows first, on each device's share of the rows.

  XLA cannot partition a kernel and would gather all rows on every device. Where a mesh is in force (`parallel.within`) and its axes are
  not mapped over already, the rows are cut along all of them.
  """
  grid = jax.sharding.get_abstract_mesh()
  axes = tuple(name for name, kind in zip(grid.axis_names, grid.axis_types, strict=True) if kind == AxisType.Auto)
  size = 1
  for name in axes:
    size *= grid.shape[name]

  def spread(*args):
    rows = jax.tree.leaves(args)[0].shape[0]
    if size == 1 or rows % size:
      return function(*args)
    specs = (P(axes),) * count + (P(),) * (len(args) - count)
    return jax.shard_map(function, mesh=grid, in_specs=specs, out_specs=P(axes), axis_names=set(axes), check_vma=False)(*args)

  return spread
