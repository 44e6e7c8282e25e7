"""A value that is computed once, however many use it.

XLA's compiler for CPUs fuses a cheap-looking producer into each of its uses, past an optimization barrier too, and then computes it again
for every element there: the cosine of a token's angle in each layer for every head, the logarithm of a distance for every pair that far
apart in each row of the batch. Into a branch it fuses nothing. Accelerators' compilers weigh that themselves and get the value as it is.
"""

import functools

import jax
import jax.numpy as jnp


def kept(make):
  """The same function of arrays, its value computed once. One of the arrays must be unknown to the compiler, or nothing is gained.

  Only where there is one device: several would first have to agree on the branch, in every program.
  """
  if jax.device_count() > 1:
    return make

  def branch(*arrays):
    # Always true, which the compiler cannot know: no number here is the least of its type.
    known = [jnp.all(jnp.asarray(x) > _least(x.dtype)) for x in jax.tree.leaves(arrays) if x.dtype != bool]
    return jax.lax.cond(functools.reduce(jnp.logical_and, known), make, make, *arrays)

  return lambda *arrays: jax.lax.platform_dependent(*arrays, cpu=branch, default=make)


def _least(dtype):
  return (jnp.finfo if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo)(dtype).min
