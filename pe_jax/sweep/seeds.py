"""Seeds of one configuration in one process, for sweeps that say `vmap_seeds = True`: the only file that knows of it.

Runs that differ in their seed alone, and in their names where the seed stands, become one task: train.py --workdir='…{seed}' --seeds=0,1,2
trains all that are not done, each in a folder of its own as if alone, and their evaluations follow. What is written is what single runs
write, so a sweep can be switched from one to the other between two starts.
"""

import dataclasses
import pathlib

from pe_jax import workdir
from pe_jax.config import to_json
from pe_jax.errors import ConfigError, NotFinite
from pe_jax.sweep import commands, pool, state, tasks


@dataclasses.dataclass(frozen=True)
class SeedsTask(pool.Task):
  """Attributes:
  name: the runs' with {seed} where it stands.
  pattern: the folders', likewise.
  command: of the training, without --seeds.
  members: {seed: RunTask}.
  """

  name: str
  pattern: str
  command: list
  members: dict

  @property
  def folder(self):
    """The first member's, whose log.txt gets what the process prints."""
    return next(iter(self.members.values())).folder

  @property
  def parts(self):
    """The runs that it is."""
    return list(self.members.values())

  @property
  def watched(self):
    """Of all members."""
    return [path for member in self.members.values() for path in member.watched]

  def next(self, last):
    """Training of the seeds that are not done, then the evaluations of each that is."""
    left = [seed for seed, member in self.members.items() if not (workdir.finished(member.folder) or _diverged(member))]
    if left:
      return [*self.command, f'--seeds={",".join(map(str, left))}']
    trained = [member for member in self.members.values() if workdir.finished(member.folder)]
    return next((command for member in trained if (command := member.next(last))), None)

  def held(self):
    """Whether another process works on one of them."""
    return any(member.held() for member in self.members.values())

  def verdict(self, since):
    """What another sweep has found since; a seed that was not finite only stands aside."""
    found = [member.verdict(since) for member in self.members.values() if not _diverged(member)]
    return next(filter(None, found), None)

  def started(self):
    """For every member that did not diverge."""
    for member in self.members.values():
      if not _diverged(member):
        member.started()

  def failed(self, code, reason):
    """For the members that are not trained; once all are, for those that are not evaluated."""
    members = list(self.members.values())
    left = [member for member in members if not workdir.finished(member.folder)] or [m for m in members if m.next(None)]
    for member in left:
      member.failed(code, reason)


def _diverged(member):
  failure = state.failed(member.folder)
  return bool(failure) and failure['code'] == NotFinite.exit_code


def grouped(runs, place=commands.HERE):
  """Tasks of the runs: one for those that differ in their seed alone, of two or more, and one for each other."""
  groups = {}
  for run in runs:
    groups.setdefault(_but_seed(run), []).append(run)
  found = []
  for members in groups.values():
    found += [_together(members, place)] if len(members) > 1 else [tasks.of(members[0], place)]
  return found


def _but_seed(run):
  tree = run.resolved.to_dict()
  return to_json(tree | {'seed': 0})


def _together(runs, place):
  pattern = _pattern(runs)
  members = {run.resolved.seed: tasks.of(run, place) for run in runs}
  folder = str(pathlib.Path(runs[0].folder).parent / pattern)
  return SeedsTask(pattern, folder, commands.train(_without_seed(runs[0].config), folder, place), members)


def _without_seed(config):
  tree = config.to_dict()
  return type(config)(tree | {'seed': 0})


def _pattern(runs):
  """The names with {seed} in the place of the seed, the last place that serves all."""
  wanted = None
  for run in runs:
    seed, found = str(run.resolved.seed), []
    start = run.name.rfind(seed)
    while start >= 0:
      found.append(f'{run.name[:start]}{{seed}}{run.name[start + len(seed) :]}')
      start = run.name.rfind(seed, 0, start + len(seed) - 1)
    wanted = found if wanted is None else [pattern for pattern in wanted if pattern in found]
  if not wanted:
    raise ConfigError(
      f'vmap_seeds: {", ".join(run.name for run in runs)} differ in their seed alone, and their names do not (name them with the seed, '
      "as in f'alibi-s{seed}', or leave vmap_seeds out)"
    )
  return wanted[0]
