"""The same step on many devices: `jit` over a mesh (axes data and fsdp), or `pmap`.

A `Spread` hides which: states and batches go in with `put_state` and `put_batch`, one copy of the state comes out with `get_state`.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from pe_jax import attention, hosts, process
from pe_jax.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Spread:
  """How a run is spread over devices."""

  step: Callable  # (state, batch) -> (state, metrics)
  put_state: Callable
  put_batch: Callable  # of a process's own rows
  get_state: Callable
  evaluate: Callable  # (params of one copy, batch of all rows) -> whatever eval_step returns


def check(config, devices):
  """Refuses a batch or a mesh that does not fit the devices."""
  count, rows = len(devices), config.batch_size // config.accumulate
  if config.parallel == 'pmap' and (config.mesh.fsdp > 1 or config.mesh.data not in (-1, count)):
    raise ConfigError(
      f"mesh: data={config.mesh.data} x fsdp={config.mesh.fsdp} has no meaning under pmap, which takes all {count} devices (parallel='jit')"
    )
  if config.parallel == 'jit':
    size = config.mesh.fsdp * max(config.mesh.data, 1)
    if (config.mesh.data == -1 and count % config.mesh.fsdp) or (config.mesh.data > 0 and size > count):
      raise ConfigError(f'mesh: data={config.mesh.data} x fsdp={config.mesh.fsdp} does not fit {count} devices')
    if config.mesh.data > 0 and size < count and len({d.process_index for d in devices}) > 1:
      raise ConfigError(
        f'mesh: data={config.mesh.data} x fsdp={config.mesh.fsdp} leaves out some of {count} devices, and every process '
        'needs its own (mesh.data=-1 takes all)'
      )
    count = count if config.mesh.data == -1 else size
  if rows % count:
    raise ConfigError(
      f'batch_size: {config.batch_size} rows (accumulate={config.accumulate}) cannot be divided over {count} devices '
      f'(use a multiple of {count * config.accumulate}, or fewer devices with mesh.data)'
    )


def mesh(config, devices):
  """The (data, fsdp) mesh of the config."""
  data = len(devices) // config.mesh.fsdp if config.mesh.data == -1 else config.mesh.data
  used = np.asarray(devices[: data * config.mesh.fsdp])
  return jax.make_mesh((data, config.mesh.fsdp), ('data', 'fsdp'), axis_types=(AxisType.Auto,) * 2, devices=used.ravel())


def make(config, train_step, eval_step, devices):
  """The Spread that `config.parallel` names."""
  check(config, devices)
  return (_jit if config.parallel == 'jit' else _pmap)(config, train_step, eval_step, devices)


def _jit(config, train_step, eval_step, devices):
  grid = mesh(config, devices)
  rows = NamedSharding(grid, P(('data', 'fsdp')))

  def put_batch(batch):
    return {k: jax.make_array_from_process_local_data(rows, v) for k, v in batch.items()}

  step = _compiled(config, grid, train_step)
  evaluate = hosts.settling(jax.jit(within(grid, eval_step)))
  return Spread(
    step=hosts.settling(step),
    put_state=lambda state: jax.tree.map(lambda x: hosts.place(x, sharding(grid, x.shape)), state),
    put_batch=put_batch,
    get_state=lambda state: state,
    evaluate=lambda params, batch: evaluate(params, hosts.place(batch, rows)),
  )


def _compiled(config, grid, train_step):
  return jax.jit(within(grid, train_step), donate_argnums=0, compiler_options=options(config))


def options(config):
  """Compiler options of the training step; pmap takes none."""
  none = config.parallel == 'pmap' or config.model.platform == 'tpu'
  return {} if none else process.options(long=config.train_length >= attention.LONG)


@dataclasses.dataclass(frozen=True)
class Stacked:
  """Several states as one, each array with an axis of lanes before its own, and one step for all of them."""

  step: Callable  # (states, [batch of each lane], [whether it goes], steps that those which go have taken) -> (states, [metrics of each])
  put_states: Callable  # [state of each lane] -> states
  get_state: Callable  # (states, lane) -> the state of that lane


def stacked(config, train_step, devices):
  """The step under `vmap`, over the same mesh as under jit. A lane that does not go is computed too, and its state is kept as it was."""
  grid = mesh(config, devices)
  rows = NamedSharding(grid, P(None, ('data', 'fsdp')))

  def one(state, batch, goes, taken):
    # One number for all lanes: a schedule's switch between records stays a switch, where `vmap` would compute all of its branches.
    new, metrics = train_step(dataclasses.replace(state, step=taken), batch)
    goes &= state.finite  # what was not finite stays at its step
    return jax.tree.map(lambda a, b: jnp.where(goes, a, b), new, state), metrics

  def lanes(states, batch, goes_L, taken):
    states, metrics_L = jax.vmap(one, (0, 0, 0, None))(states, batch, goes_L, taken)
    return states, [jax.tree.map(lambda x_L, n=n: x_L[n], metrics_L) for n in range(len(goes_L))]

  compiled = _compiled(config, grid, lanes)

  def step(states, batches, goes, taken):
    batch = {k: jax.make_array_from_process_local_data(rows, np.stack([b[k] for b in batches])) for k in batches[0]}
    return compiled(states, batch, np.asarray(goes), np.int32(taken))

  def put_states(states):
    states = jax.tree.map(lambda *x: jnp.stack(x), *states)
    return jax.device_put(states, jax.tree.map(lambda x: NamedSharding(grid, P(None, *sharding(grid, x.shape[1:]).spec)), states))

  return Stacked(step, put_states, jax.jit(lambda states, lane: jax.tree.map(lambda x: x[lane], states)))


def abstract(config, state, devices):
  """(state, batch) as shapes and where they lie, for programs that are compiled and not run."""
  grid = mesh(config, devices)
  rows = NamedSharding(grid, P(('data', 'fsdp')))
  types = {'tokens': jnp.int32, 'targets': jnp.int32, 'weight': jnp.float32, 'doc': jnp.int32, 'pos': jnp.int32, 'row': jnp.int32}
  size = {name: (config.batch_size,) if name == 'row' else (config.batch_size, config.train_length) for name in types}
  batch = {name: jax.ShapeDtypeStruct(size[name], dtype, sharding=rows) for name, dtype in types.items()}
  return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding(grid, x.shape)), state), batch


def within(grid, function):
  """The function, traced with the mesh in force: kernels, which XLA cannot partition, cut the rows by it (kernels/layout.py)."""

  def inside(*args):
    with jax.sharding.use_abstract_mesh(grid.abstract_mesh):
      return function(*args)

  return inside


def sharding(grid, shape):
  """The longest axis that fsdp divides is split over it; what has none is kept whole everywhere."""
  size = grid.shape['fsdp']
  fits = [n for n in range(len(shape)) if size > 1 and shape[n] % size == 0 and shape[n] >= size]
  if not fits:
    return NamedSharding(grid, P())
  longest = max(fits, key=lambda n: shape[n])
  return NamedSharding(grid, P(*(['fsdp' if n == longest else None for n in range(len(shape))])))


def _pmap(config, train_step, eval_step, devices):
  """JAX keeps pmap in maintenance; the step and its numbers are the same."""
  del config
  local = [d for d in devices if d.process_index == jax.process_index()]

  def total(sums):
    return jax.lax.psum(sums, 'devices')

  def put_batch(batch):
    return {k: v.reshape(len(local), -1, *v.shape[1:]) for k, v in batch.items()}

  step = jax.pmap(lambda state, batch: train_step(state, batch, total), 'devices', devices=devices, donate_argnums=0)
  evaluate = jax.pmap(lambda params, batch: total(eval_step(params, batch)), 'devices', in_axes=(None, 0), devices=devices)
  step, evaluate = hosts.settling(step), hosts.settling(evaluate)

  def run_step(state, batch):
    state, metrics = step(state, batch)
    return state, jax.tree.map(lambda x: x[0], metrics)

  return Spread(
    step=run_step,
    put_state=lambda state: jax.tree.map(lambda x: jnp.stack([x] * len(local)), state),
    put_batch=put_batch,
    get_state=lambda state: jax.tree.map(lambda x: x[0], state),
    evaluate=lambda params, batch: jax.tree.map(lambda x: x[0], evaluate(params, put_batch(hosts.own_rows(batch)))),
  )
