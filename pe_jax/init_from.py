"""Starting from another run's parameters, under a new encoding, length or task.

A parameter that both runs have with one shape is copied. A position table of another size is a named step, `config.init_resize`. What
the other run lacks stays as at initialisation. Anything else that differs is refused.
"""

import jax
import jax.numpy as jnp

from pe_jax import workdir as workdir_lib
from pe_jax.checkpoint import Checkpoints
from pe_jax.errors import ConfigError


def check(config):
  """Refuses a source that cannot serve, before anything is built."""
  source = workdir_lib.read_config(config.init_from)
  for field in ('num_layers', 'embed_dim', 'num_heads', 'num_kv_heads', 'head_dim', 'mlp_dim', 'vocab_size'):
    if source.model[field] != config.model[field]:
      raise ConfigError(f'init_from: {config.init_from} has model.{field}={source.model[field]}, this run {config.model[field]}')


def params(config, fresh):
  """The starting parameters: `fresh` with what the source run has."""
  checkpoints = Checkpoints(config.init_from, read_only=True)
  source = checkpoints.restore_params(checkpoints.latest())
  checkpoints.close()
  flat, tree = jax.tree_util.tree_flatten_with_path(fresh)
  given = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(source)[0]}
  return jax.tree_util.tree_unflatten(tree, [_leaf(jax.tree_util.keystr(p), x, given, config.init_resize) for p, x in flat])


def _leaf(name, fresh, given, resize_how):
  if name not in given:
    return fresh
  source = given[name]
  if source.shape == fresh.shape:
    return jnp.asarray(source, fresh.dtype)
  if not name.startswith("['encoding']") or source.shape[1:] != fresh.shape[1:]:
    raise ConfigError(f'init_from: {name} has shape {source.shape} there and {fresh.shape} here')
  if resize_how == 'refuse':
    raise ConfigError(
      f"init_from: {name} has {source.shape[0]} rows there and {fresh.shape[0]} here (init_resize='extend' or 'interpolate' says how)"
    )
  return resize(source, fresh, resize_how)


def resize(table, fresh, how):
  """A table with as many rows as `fresh`: 'extend' keeps the trained rows and takes new ones from `fresh`; 'interpolate' stretches."""
  rows = fresh.shape[0]
  if how == 'interpolate':
    place = jnp.linspace(0.0, table.shape[0] - 1.0, rows)
    low = jnp.minimum(jnp.floor(place).astype(jnp.int32), max(table.shape[0] - 2, 0))
    share = (place - low)[:, None]
    return (1 - share) * table[low] + share * table[jnp.minimum(low + 1, table.shape[0] - 1)]
  return jnp.concatenate([table[:rows], fresh[table.shape[0] :]])
