"""Checkpoints of everything that training changes, through orbax: atomic, asynchronous, newest and best kept, verified when they are read.

checkpoints/<step>/   state (params, optimizer, step, key), progress (where the data stood, fingerprints), metrics (validation loss)
checkpoints_bad/      what was torn, corrupt, foreign or not finite: moved there with one warning, never deleted

What there is, is read from the disk each time; orbax's own list names a step before it is written.
"""

import contextlib
import shutil

import jax
import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint import checkpoint_managers as policies

from pe_jax import again, fingerprint, hosts, remote, saved
from pe_jax import progress as progress_lib
from pe_jax.errors import DataError, NotFinite, WriteError
from pe_jax.workdir import writing


class Checkpoints:
  """The checkpoints of one workdir. Close it: a process that leaves earlier loses the save in flight.

  `still_mine` raises if another process writes there now, and is asked before each save.
  """

  def __init__(self, workdir, keep=2, read_only=False, still_mine=lambda: None):
    folder = epath.Path(workdir)  # orbax refuses a relative one; of gs://… etils would make one on this disk
    self._folder = (folder if remote.is_remote(folder) else folder.absolute()) / 'checkpoints'
    self._bad = self._folder.parent / 'checkpoints_bad'
    self._still_mine, self._in_flight, self._manager = still_mine, False, None
    self._local = not remote.is_remote(self._folder)
    if not read_only:
      with hosts.together():
        if hosts.is_first():
          self._tidy()
      self._manager = self._made(keep)

  def _tidy(self):
    """orbax reads the validation losses of all of them at once, and one that cannot be read would stop it."""
    self._remove_leftovers()
    for step in self._numbers():
      try:
        saved.read_record(self._folder / str(step))
      except saved.Damaged as why:
        self._set_aside(step, why)

  def _made(self, keep):
    # BestN ranks ascending and keeps the tail, hence the minus: the lowest validation loss is the best.
    best = policies.BestN(get_metric_fn=lambda m: -m['validation_loss'], n=1, keep_checkpoints_without_metrics=False)
    try:
      return ocp.CheckpointManager(
        self._folder,
        item_handlers={'state': ocp.StandardCheckpointHandler(), 'progress': ocp.JsonCheckpointHandler()},
        options=ocp.CheckpointManagerOptions(
          best_fn=lambda m: m['validation_loss'],  # without it the losses are not written beside the checkpoints
          best_mode='min',
          preservation_policy=policies.AnyPreservationPolicy([policies.LatestN(keep), best]),
        ),
      )
    except (OSError, ValueError) as error:
      raise WriteError(f'{self._folder}: cannot be used: {saved.line(error)}') from error

  def _numbers(self):
    """Whatever has a number for a name, and orbax would take for a checkpoint."""
    if not self._folder.exists():
      return []
    names = [p.name for p in self._folder.iterdir()]
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal() and name == str(int(name)))

  def steps(self):
    """All steps on disk, oldest first; those that are not even complete are left out."""
    return [step for step in self._numbers() if saved.is_there(self._folder / str(step))]

  def has(self, step):
    """Whether a step is on disk; of several processes the first looks, for all of them."""
    return hosts.gathered(step in self.steps())[0]

  def latest(self):
    """The newest step on disk, or None."""
    return max(self.steps(), default=None)

  def best(self):
    """The step with the lowest validation loss, the newest where none was measured, or None."""
    measured = []
    for step in self.steps():
      with contextlib.suppress(saved.Damaged):
        measured.append((saved.read_record(self._folder / str(step))['validation_loss'], step))
    measured = [(loss, step) for loss, step in measured if loss is not None]
    return min(measured)[1] if measured else self.latest()

  def save(self, step, state, progress, validation_loss=None):
    """Starts saving; the disk is written while training goes on."""
    self._still_mine()
    self.wait(f'the checkpoint before {step}')
    prints = fingerprint.of(state)
    if bad := [name for name, p in prints.items() if p.not_finite]:
      raise NotFinite(f'{self._folder}: step {step}: {bad[0]} is not finite, so nothing was saved (go on from an older checkpoint)')
    self.check_space(state)
    if hosts.gathered(step in self._numbers())[0]:  # nothing of ours: orbax would delete it
      self._put_away(step, 'stood where a checkpoint was to be written')
    items = {'state': ocp.args.StandardSave(state)}
    items['progress'] = ocp.args.JsonSave(saved.sealed(progress, step, prints, validation_loss))
    metrics = None if validation_loss is None else {'validation_loss': validation_loss}
    try:
      self._manager.save(step, args=ocp.args.Composite(**items), metrics=metrics, force=True)
    except (OSError, ValueError, RuntimeError) as error:
      raise self._not_written(f'checkpoint {step}', error) from error
    self._in_flight = True
    again.tell(self._folder, step)

  def check_space(self, state):
    """Refuses to write to a disk that has not room for two checkpoints: the new one is there before an old one goes."""
    need = 2 * sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state))
    if self._local and (free := shutil.disk_usage(self._folder).free) < need:
      raise self._not_written('a checkpoint', f'two of them take {need / 1e6:.1f} MB and {free / 1e6:.1f} MB are free')

  def restore(self, step, like):
    """(state, progress) of a step, with the structure, shapes, types and placement of `like`, verified."""
    try:
      return saved.read(self._folder / str(step), like)
    except saved.Damaged as why:
      raise WriteError(f'{self._folder / str(step)}: cannot be read: {why} (move it elsewhere to go on from an older one)') from why

  def restore_newest(self, like):
    """(step, state, progress) of the newest checkpoint that is whole, or None where there never was one.

    Those that are not are set aside. If that leaves none, WriteError: a run that had checkpoints must not begin anew without a word.
    """
    for step in reversed(hosts.gathered(self.steps())[0]):
      try:
        return step, *saved.read(self._folder / str(step), like, lambda: hosts.together(saved.Damaged))
      except saved.Damaged as why:
        self._put_away(step, why)
    aside = hosts.gathered(sorted(p.name for p in self._bad.iterdir()) if self._bad.exists() else [])[0]
    if aside:
      way_out = f'move a repaired one back, or move {self._bad} elsewhere to begin at step 0'
      raise WriteError(f'{self._folder}: none can be read, and {self._bad.name} holds {", ".join(aside)} ({way_out})')
    return None

  def restore_params(self, step):
    """The parameters alone, as saved, on one device, verified."""
    path = self._there(step)
    with self._readable(path):
      return saved.read(path, self._on_one_device(path))[0]['params']

  def params_shapes(self, step):
    """What `restore_params` gives, as shapes and types; nothing is read but the description."""
    path = self._there(step)
    with self._readable(path):
      return self._on_one_device(path)['params']

  def _on_one_device(self, path):
    one = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return jax.tree.map(lambda m: jax.ShapeDtypeStruct(m.shape, m.dtype, sharding=one), saved.shapes(path)[1])

  @contextlib.contextmanager
  def _readable(self, path):
    try:
      yield
    except saved.Damaged as why:
      others = ', '.join(str(s) for s in self.steps() if str(s) != path.name) or 'none'
      raise DataError(f'{path}: {why} (other steps there: {others})') from why

  def _there(self, step):
    if step is None:
      raise DataError(f'{self._folder}: no checkpoint there yet (train first)')
    if step not in self.steps():
      raise DataError(f'{self._folder}: no checkpoint of step {step} (there are {", ".join(map(str, self.steps())) or "none"})')
    return self._folder / str(step)

  def check_for_errors(self):
    """Raises what an asynchronous save has run into, as soon as it is over."""
    if self._in_flight and not self._manager.is_saving_in_progress():
      self.wait()

  def wait(self, what='a checkpoint'):
    """Until no save is in flight. orbax's own check_for_errors can find that a thread of orbax has taken the error already."""
    self._in_flight = False
    try:
      self._manager.wait_until_finished()
    except Exception as error:
      raise self._not_written(what, error) from error

  def close(self):
    """Waits for the save in flight."""
    manager, self._manager = self._manager, None
    if manager is not None:
      try:
        manager.wait_until_finished()
        manager.close()
      except Exception as error:
        raise self._not_written('the last checkpoint', error) from error

  def _put_away(self, step, why):
    """Sets a checkpoint aside in one of the processes, while all of them know of it."""
    with hosts.together():
      if hosts.is_first():
        self._set_aside(step, why)
    self._manager.reload()

  def _set_aside(self, step, why):
    """Moves what cannot be trusted out of the way. Nothing is ever deleted."""
    names = {p.name for p in self._bad.iterdir()} if self._bad.exists() else set()
    name = next(n for n in [str(step), *(f'{step}.{k}' for k in range(1, len(names) + 2))] if n not in names)
    with writing(self._bad / name):
      remote.move(self._folder / str(step), self._bad / name)
    progress_lib.say(f'WARNING: {self._folder / str(step)}: {why}; moved to {self._bad / name}')

  def _remove_leftovers(self):
    """What a save that never ended has left behind eats space. On a disk it has no name that a checkpoint could have."""
    steps = [self._folder / str(step) for step in self._numbers()]
    for path in [*self._folder.glob(f'*{ocp.utils.TMP_DIR_SUFFIX}*'), *filter(saved.cut_off, steps)]:
      with contextlib.suppress(OSError):
        path.rmtree()

  def _not_written(self, what, error):
    """The sentence, after the leftovers of the attempt are gone."""
    if hosts.is_first():
      self._remove_leftovers()
    newest = self.latest()
    there = 'there is none on disk yet' if newest is None else f'the newest on disk is of step {newest}'
    way_out = 'make room, then run the same command again'
    return WriteError(f'{self._folder}: {what} could not be written: {saved.line(error)}; {there} ({way_out})')
