"""Attention of one encoding by itself, on vectors that a test gives, and the arrays that a program makes."""

import jax
import jax.numpy as jnp

from pe_jax import attention, encodings
from pe_jax.encodings.base import Dims, Where


def dims(heads=1, width=64, train_length=128):
  """Of a model with as many key heads as query heads."""
  return Dims(heads, heads, width, heads * width, train_length)


def alone(length, start=0):
  """A row that is one document, at positions start, start + 1, …"""
  pos = start + jnp.arange(length, dtype=jnp.int32)[None]
  return Where.forward(pos, jnp.ones_like(pos))


def turned(spec, of, where, q, k):
  """(record, its tables with fresh parameters, queries and keys as it turns them)."""
  enc = encodings.make(spec, of)
  tables = enc.tables(enc.parameters(jax.random.PRNGKey(0)), where)
  return enc, tables, *(enc.rotate(tables, q, k) if enc.rotate else (q, k))


def attended(spec, q, k, v, where):
  """The output of attention, (B, T, H, K)."""
  enc, tables, q, k = turned(spec, dims(q.shape[2], q.shape[3]), where, q, k)
  return attention.attend(enc, tables, q, k, v, where, 'dense')


def largest(function, *shapes):
  """The number of entries of the largest array that the function makes, in loops and called functions too."""
  return _largest(jax.make_jaxpr(function)(*shapes).jaxpr)


def _largest(jaxpr):
  found = [var.aval.size for eqn in jaxpr.eqns for var in eqn.outvars if hasattr(var.aval, 'size')]
  inner = [x for eqn in jaxpr.eqns for x in jax.tree.leaves(list(eqn.params.values()), is_leaf=_is_jaxpr) if _is_jaxpr(x)]
  return max([*found, *(_largest(getattr(x, 'jaxpr', x)) for x in inner)], default=0)


def _is_jaxpr(x):
  return hasattr(x, 'eqns') or hasattr(x, 'jaxpr')
