"""Starting from another run's parameters, under a new encoding, length or task.

A parameter that both runs have with one shape is copied. A position table of another size is a named step, `config.init_resize`. What
the other run lacks stays as at initialisation. Anything else that differs is refused, before anything is written or compiled.
"""

import contextlib

import jax
import jax.numpy as jnp

from pe_jax import encodings, model
from pe_jax import workdir as workdir_lib
from pe_jax.checkpoint import Checkpoints
from pe_jax.errors import ConfigError

# Fields of config.model without which the parameters mean something else, although they may fit.
SAME = (
  'num_layers', 'embed_dim', 'num_heads', 'num_kv_heads', 'head_dim', 'mlp_dim', 'vocab_size', 'mlp', 'norm', 'embed_scale',
  'norm_epsilon', 'norm_place', 'parallel_block', 'shared_block_norm',
)  # fmt: skip


def check(config):
  """Refuses a source that cannot serve."""
  source = workdir_lib.read_config(config.init_from)
  for field in SAME:
    if source.model[field] != config.model[field]:
      way_out = f' (set model.{field}={source.model[field]} to start from it)'
      raise ConfigError(f'init_from: {config.init_from} has model.{field}={source.model[field]}, this run {config.model[field]}{way_out}')
  with contextlib.closing(Checkpoints(config.init_from, read_only=True)) as checkpoints:
    given = _by_name(checkpoints.params_shapes(checkpoints.latest()))
  enc = encodings.make(config.encoding, model.dims(config))
  fresh = _by_name(jax.eval_shape(lambda: model.init(config, enc, jax.random.PRNGKey(0))))
  for name in sorted(given.keys() - fresh.keys()):
    if not name.startswith("['encoding']"):
      raise ConfigError(f'init_from: {config.init_from} has the parameter {name} and this run has none (give both models the same fields)')
  for name in given.keys() & fresh.keys():
    _check_shape(name, given[name].shape, fresh[name].shape, config.init_resize)


def params(config, fresh):
  """The starting parameters: `fresh` with what the source run has."""
  with contextlib.closing(Checkpoints(config.init_from, read_only=True)) as checkpoints:
    given = _by_name(checkpoints.restore_params(checkpoints.latest()))
  flat, tree = jax.tree_util.tree_flatten_with_path(fresh)
  return jax.tree_util.tree_unflatten(tree, [_leaf(jax.tree_util.keystr(p), x, given, config.init_resize) for p, x in flat])


def _by_name(tree):
  return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def _leaf(name, fresh, given, resize_how):
  if name not in given:
    return fresh
  source = given[name]
  _check_shape(name, source.shape, fresh.shape, resize_how)
  return jnp.asarray(source, fresh.dtype) if source.shape == fresh.shape else resize(source, fresh, resize_how)


def _check_shape(name, there, here, resize_how):
  if there == here:
    return
  if not name.startswith("['encoding']") or there[1:] != here[1:]:
    raise ConfigError(f'init_from: {name} has shape {there} there and {here} here')
  if resize_how == 'refuse':
    raise ConfigError(f"init_from: {name} has {there[0]} rows there and {here[0]} here (init_resize='extend' or 'interpolate' says how)")


def resize(table, fresh, how):
  """A table with as many rows as `fresh`: 'extend' keeps the trained rows and takes new ones from `fresh`; 'interpolate' stretches."""
  rows = fresh.shape[0]
  if how == 'interpolate':
    place = jnp.linspace(0.0, table.shape[0] - 1.0, rows)
    low = jnp.minimum(jnp.floor(place).astype(jnp.int32), max(table.shape[0] - 2, 0))
    share = (place - low)[:, None]
    return (1 - share) * table[low] + share * table[jnp.minimum(low + 1, table.shape[0] - 1)]
  return jnp.concatenate([table[:rows], fresh[table.shape[0] :]])
