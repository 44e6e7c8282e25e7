"""How a flash kernel walks over its arrays: which block of what each step of the grid sees, and the call itself."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


@dataclasses.dataclass(frozen=True)
class Specs:
  """How arrays are cut: `place` turns what a step of the grid knows into (row of the batch, head, block of queries, block of keys)."""

  place: Callable
  block: int
  share: int

  def _spec(self, shape, index):
    return pl.BlockSpec(shape, lambda *step: index(*self.place(*step)))

  def q(self, x):
    """Of one query head, (B, H, T, K)."""
    return self._spec((None, None, self.block, x.shape[3]), lambda b, h, n, m: (b, h, n, 0))

  def k(self, x):
    """Of one key head, (B, G, S, K)."""
    return self._spec((None, None, self.block, x.shape[3]), lambda b, h, n, m: (b, jax.lax.div(h, self.share), m, 0))

  def row(self, rows, by_batch=False):
    """A head's whole row, of (H, 1, X) or (B, H, 1, X)."""
    if rows is None:
      return None
    if by_batch:
      return self._spec((None, None, 1, rows.shape[2]), lambda b, h, n, m: (b, h, 0, 0))
    return self._spec((None, 1, rows.shape[2]), lambda b, h, n, m: (h, 0, 0))

  @property
  def query(self):
    """Position and document of queries, (B, 2, T)."""
    return self._spec((None, 2, self.block), lambda b, h, n, m: (b, 0, n))

  @property
  def key(self):
    """Position and document of keys, (B, S, 2)."""
    return self._spec((None, self.block, 2), lambda b, h, n, m: (b, m, 0))

  @property
  def per_query(self):
    """One number a query and head, (B, H, 1, T)."""
    return self._spec((None, None, 1, self.block), lambda b, h, n, m: (b, h, 0, n))


@dataclasses.dataclass(frozen=True)
class Sizes:
  """The grid of a call: rows, query heads, blocks of queries and of keys."""

  form: object  # a flash.Form
  batch: int
  heads: int
  groups: int
  n: int
  m: int

  @classmethod
  def of(cls, form, q, k):
    return cls(form, *q.shape[:2], k.shape[1], q.shape[2] // form.block, k.shape[2] // form.block)

  def specs(self, place):
    return Specs(place, self.form.block, self.heads // self.groups)

  # A step that computes nothing asks for a block that is there already, so that nothing is loaded for it.
  def key(self, b, n, m, first, last):
    """The block of keys that step m loads."""
    at = b * self.n + n
    return jnp.minimum(jnp.clip(m, first[at], jnp.maximum(last[at] - 1, first[at])), self.m - 1)

  def query(self, b, n, m, lo, hi):
    """The block of queries that step n loads."""
    at = b * self.m + m
    return jnp.minimum(jnp.clip(n, lo[at], jnp.maximum(hi[at] - 1, lo[at])), self.n - 1)

  def call(self, name, kernel, grid, ranges, inputs, outputs, scratch, serial):
    """Runs a kernel. The last `serial` + 1 axes of the grid are in order on one core, the others in any."""
    specs, arrays = zip(*inputs, strict=True)
    spec = pltpu.PrefetchScalarGridSpec(
      num_scalar_prefetch=len(ranges),
      grid=grid,
      in_specs=list(specs),
      out_specs=[out and out[0] for out in outputs],
      scratch_shapes=[pltpu.VMEM(shape, jnp.float32) for shape in scratch],
    )
    return pl.pallas_call(
      functools.partial(kernel, self.form, self.m),
      grid_spec=spec,
      out_shape=[out and jax.ShapeDtypeStruct(*out[1:]) for out in outputs],
      compiler_params=pltpu.CompilerParams(
        dimension_semantics=('parallel',) * (len(grid) - serial) + ('arbitrary',) * serial,
      ),
      name=name,
      interpret=self.form.interpret,
    )(*(x.ravel() for x in ranges), *arrays)
