"""Checkpoints of everything that training changes, through orbax: atomic, asynchronous, newest and best kept.

checkpoints/<step>/ state (params, optimizer, step, key) and progress (data position, targets seen)
"""

import jax
import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint import checkpoint_managers as policies

from pe_jax.errors import DataError, WriteError


class Checkpoints:
  """The checkpoints of one workdir. Close it: a process that leaves earlier loses the save in flight."""

  def __init__(self, workdir, keep=2, read_only=False):
    # BestN ranks ascending and keeps the tail, hence the minus: the lowest validation loss is the best.
    best = policies.BestN(get_metric_fn=lambda m: -m['validation_loss'], n=1, keep_checkpoints_without_metrics=False)
    self._folder = epath.Path(workdir).absolute() / 'checkpoints'  # orbax refuses a relative path
    self._manager = ocp.CheckpointManager(
      self._folder,
      item_handlers={'state': ocp.StandardCheckpointHandler(), 'progress': ocp.JsonCheckpointHandler()},
      options=ocp.CheckpointManagerOptions(
        best_fn=lambda m: m['validation_loss'],  # without it the losses are not written beside the checkpoints
        best_mode='min',
        create=not read_only,
        read_only=read_only,
        cleanup_tmp_directories=not read_only,
        preservation_policy=None if read_only else policies.AnyPreservationPolicy([policies.LatestN(keep), best]),
      ),
    )

  def latest(self):
    """The newest step on disk, or None."""
    return self._manager.latest_step()

  def best(self):
    """The step with the lowest validation loss, the newest where none was measured, or None."""
    measured = [(m['validation_loss'], s) for s in self.steps() if (m := self._manager.metrics(s))]
    return min(measured)[1] if measured else self.latest()

  def steps(self):
    """All steps on disk, oldest first."""
    return sorted(self._manager.all_steps())

  def save(self, step, state, progress, validation_loss=None):
    """Starts saving; the disk is written while training goes on."""
    metrics = None if validation_loss is None else {'validation_loss': validation_loss}
    items = ocp.args.Composite(state=ocp.args.StandardSave(state), progress=ocp.args.JsonSave(progress))
    try:
      self._manager.save(step, args=items, metrics=metrics, force=True)
    except (OSError, ValueError) as error:
      # Saving is asynchronous: what failed may be the save before.
      raise WriteError(f'{self._folder}: checkpoint {step} or the one before could not be written: {_line(error)}') from error

  def restore(self, step, like):
    """(state, progress) of a step, with the structure, shapes, dtypes and placement of `like`."""
    abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
    items = ocp.args.Composite(state=ocp.args.StandardRestore(abstract), progress=ocp.args.JsonRestore())
    try:
      restored = self._manager.restore(step, args=items)
    except Exception as error:
      said = _line(error)
      raise WriteError(f'{self._folder / str(step)}: cannot be read: {said} (move it elsewhere to go on from an older one)') from error
    return restored['state'], restored['progress']

  def restore_params(self, step):
    """The parameters alone, as saved, on one device."""
    abstract = self._abstract(step)
    return self._manager.restore(step, args=ocp.args.Composite(state=ocp.args.StandardRestore(abstract)))['state']['params']

  def params_shapes(self, step):
    """What `restore_params` gives, as shapes and types; nothing is read but the description."""
    return self._abstract(step)['params']

  def _abstract(self, step):
    if step is None:
      raise DataError(f'{self._folder}: no checkpoint there yet (train first)')
    if step not in self.steps():
      raise DataError(f'{self._folder}: no checkpoint of step {step} (there are {", ".join(map(str, self.steps())) or "none"})')
    one = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    metadata = self._manager.item_metadata(step)['state']
    return jax.tree.map(lambda m: jax.ShapeDtypeStruct(m.shape, m.dtype, sharding=one), metadata.tree)

  def check_for_errors(self):
    """Raises what an asynchronous save has run into."""
    try:
      self._manager.check_for_errors()
    except Exception as error:
      raise WriteError(f'{self._folder}: a checkpoint could not be written: {_line(error)}') from error

  def close(self):
    """Waits for the save in flight."""
    try:
      self._manager.wait_until_finished()
      self._manager.close()
    except Exception as error:
      raise WriteError(f'{self._folder}: the last checkpoint could not be written: {_line(error)}') from error


def _line(error):
  """orbax's pages in one line."""
  return ' '.join(str(error).split())[:300]
