"""A run as a task of a pool: training, then its evaluations, each a process. Plain data, so that it can be sent to another machine."""

import dataclasses
import os

from pe_jax import once, remote, workdir
from pe_jax.errors import NotFinite
from pe_jax.sweep import commands, pool, state


@dataclasses.dataclass(frozen=True)
class RunTask(pool.Task):
  """Attributes:
  name: of the run.
  folder: of the run.
  train: the command.
  evaluations: (label, command) of each.
  """

  name: str
  folder: os.PathLike
  train: list
  evaluations: list

  @property
  def parts(self):
    """The runs that it is."""
    return [self]

  def next(self, last):
    """Training until DONE is there, then the first evaluation that is not."""
    del last
    if not workdir.finished(self.folder):
      return self.train
    left = (command for label, command in self.evaluations if not once.done(self.folder, label, command[2:]))
    return next(left, None)

  def state(self):
    """What the folder says."""
    return state.of(self.folder, [(label, command[2:]) for label, command in self.evaluations])

  def held(self):
    """Whether another process works on it."""
    return state.held(self.folder)

  def verdict(self, since):
    """A loss that was not finite would be so again; and what failed in another sweep's hands meanwhile is not tried here again."""
    failure, path = state.failed(self.folder), self.folder / 'FAILED'
    if failure and (failure['code'] == NotFinite.exit_code or path.stat().st_mtime > since):
      return pool.Failure(**failure)
    return None

  def started(self):
    """Takes away what an earlier attempt has left."""
    state.clear_failed(self.folder)

  def failed(self, code, reason):
    """Leaves why."""
    state.write_failed(self.folder, code, reason)


def of(run, place=commands.HERE):
  """The task of a plan's Run."""
  return RunTask(run.name, remote.path(run.folder), commands.train(run.config, run.folder, place), commands.evaluate(run, place))
