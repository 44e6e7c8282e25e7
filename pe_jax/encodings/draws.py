"""Random positions for the documents of packed rows, the same on any number of devices: every draw depends on its row's own key."""

import dataclasses

import jax
import jax.numpy as jnp

from pe_jax.encodings.base import run_start
from pe_jax.errors import ConfigError


def wrap(dims, inner, name, reach, positions, evaluation):
  """`inner` under positions from [0, reach); `evaluation` says in words which ids the model sees there."""
  record = inner(dims)
  if reach < dims.train_length:
    raise ConfigError(f'encoding: {name}: range={reach} must be at least the training length {dims.train_length}')
  if record.positions or record.schedule:
    raise ConfigError(f"encoding: '{record.spec}' cannot stand inside {name}(…) (one encoding draws the positions, or sets a schedule)")
  rows = record.traits.max_length
  if rows is not None and rows < reach:
    raise ConfigError(
      f"encoding: {name}: '{record.spec}' has {rows} positions and range={reach} asks for more (give it max_length={reach})"
    )
  traits = dataclasses.replace(record.traits, positions=evaluation)
  return dataclasses.replace(record, positions=positions, traits=traits)


def whole_number(key_B, doc_BT, count_BT):
  """One number for each document, uniform in 0 .. count - 1, at each of its tokens; int32 (B, T)."""
  share_BT = jax.vmap(lambda key: jax.random.uniform(key, doc_BT.shape[1:]))(key_B)
  share_BT = jnp.take_along_axis(share_BT, run_start(doc_BT), axis=1)
  return jnp.minimum((share_BT * count_BT).astype(jnp.int32), count_BT - 1)  # float32 rounds some shares up to 1


def subset(key_B, doc_BT, reach):
  """For each document a random subset of [0, reach), increasing; int32 (B, T). Any subset of its size is as likely as any other.

  A row's documents share one random order of [0, reach): each takes as many numbers as it has tokens and sorts them. T <= reach.
  """
  size = doc_BT.shape[1]
  drawn_BT = jax.vmap(lambda key: jax.random.permutation(key, reach)[:size])(key_B).astype(jnp.int32)
  return jax.lax.sort((run_start(doc_BT), drawn_BT), dimension=1, num_keys=2)[1]
