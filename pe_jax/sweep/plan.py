"""From a sweep's config file to its runs.

A sweep is a Python file. `get_config(arg)` is its base, as in any config file. `sweep()` yields (name, {field: value}), with products and
conditions in plain Python; a run is the base with these fields changed, in the folder of that name. `evaluation()` gives eval.py's flags
by name, or a list of such dicts, each measured after the training by a process of its own:

    def sweep():
      for encoding, seed in itertools.product(['rope', 'alibi'], range(3)):
        yield f'{encoding}-s{seed}', {'encoding': encoding, 'seed': seed}

    def evaluation(config):
      maps = ['rope', 'yarn', 'ntk'] if config.encoding == 'rope' else None
      return {'lengths': [64, 128, 256, 512], 'encodings': maps, 'protocols': ['context', 'nonoverlapping']}

A third thing that sweep() yields takes the place of evaluation() for that run; () is none at all. `notes(done)` gives sentences that are
printed below the table at the end, `published(config)` a paper's tables (published.py). All of these functions get what their parameters
name: `arg` (what follows the colon of --config), `config` (the base; in evaluation() the run's), `name` (in evaluation(), the run's),
`folder` (the sweep's) and `done`, {name: final validation loss} of the runs that are trained, inf where the loss was not finite.

Later stages: a sweep() that takes `done` is called again whenever a run has been trained, until it yields nothing new. So a run that
depends on others (a learning rate that was tuned, parameters it starts from) is yielded once they are in `done`; what has been yielded
must come again with the same settings, so that a sweep that is started again finds the same runs (tuning.py has the usual case).

`vmap_seeds = True` in the file trains the runs that differ in their seed alone in one process (seeds.py).
"""

import dataclasses
import importlib.util
import inspect
import os
import pathlib

import ml_collections

from pe_jax import config as config_lib
from pe_jax import names, remote
from pe_jax.errors import ConfigDiffers, ConfigError, UserError
from pe_jax.sweep import evaluations

STAGES = 20  # of a sweep() that never stops yielding


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
  """Attributes:
  name: of its folder.
  folder: below the sweep's, as text: it may be a gs:// address in commands for other machines.
  changes: {field: value} that sweep() gave.
  config: what train.py is given.
  resolved: what it makes of that.
  evaluations: dicts of eval.py's flags.
  """

  name: str
  folder: str
  changes: dict
  config: ml_collections.ConfigDict
  resolved: ml_collections.ConfigDict
  evaluations: tuple[dict, ...]


class Sweep:
  """A config file's sweep in a folder.

  Args:
    path: of the file, with its argument after a colon.
    folder: of the sweep.
  """

  def __init__(self, path, folder):
    path, _, self.arg = path.partition(':')
    self.path, self.folder = path, str(folder).rstrip('/') or '/'
    self.file = _load(path)
    self.base = _base(self.file, self.arg, path)
    self.vmap_seeds = bool(getattr(self.file, 'vmap_seeds', False))
    self.runs = {}

  def plan(self, done):
    """{name: Run} of all runs that are known with `done`, in the order in which they came; those of earlier calls stay."""
    self.runs |= self._yielded(done, self.runs)
    return dict(self.runs)

  def imagined(self, done):
    """{name: Run} of the stages to come, as they would be if every run but those in `done` had the same loss: for checks and prices."""
    if 'done' not in inspect.signature(self.file.sweep).parameters:
      return {}
    runs = dict(self.runs)
    for _ in range(STAGES):
      more = self._yielded({name: 1.0 for name in runs} | done, runs)
      if not more.keys() - runs.keys():
        return {name: run for name, run in runs.items() if name not in self.runs}
      runs |= more
    raise ConfigError(f'{self.path}: sweep() yields new runs after {STAGES} stages (it must end when all are done)')

  def notes(self, done):
    """The sentences that the file has on what was trained; [] where it has no notes()."""
    found = self._call(self.file.notes, config=self.base, done=dict(done)) if hasattr(self.file, 'notes') else []
    if not isinstance(found, list) or not all(isinstance(sentence, str) for sentence in found):
      raise ConfigError(f'{self.path}: notes() gives {found!r} where a list of sentences is wanted')
    return found

  def published(self):
    """The file's tables of published numbers; [] where it has no published()."""
    return self._call(self.file.published, config=self.base) if hasattr(self.file, 'published') else []

  def _yielded(self, done, known):
    found = {}
    for item in self._call(self.file.sweep, config=self.base, done=dict(done)):
      name, changes, own = self._item(item)
      if name in found:
        raise ConfigError(f"{self.path}: sweep() yields two runs named '{name}' (a name is a folder: put into it what differs)")
      if name in known:
        found[name] = self._same(known[name], changes)
      else:
        found[name] = self._run(name, changes, own)
    if not found and not known:
      raise ConfigError(f'{self.path}: sweep() yields no run')
    return found

  def _item(self, item):
    if not isinstance(item, tuple) or len(item) not in (2, 3) or not isinstance(item[0], str) or not isinstance(item[1], dict):
      raise ConfigError(f'{self.path}: sweep() yields {item!r} where (name, {{field: value}}) is wanted')
    name, changes, own = (*item, None)[:3]
    names.check(name, f'{self.path}: sweep()')
    plain = {field: os.fspath(value) if isinstance(value, os.PathLike) else value for field, value in changes.items()}
    return name, plain, own

  def _same(self, run, changes):
    if run.changes != changes:
      lines = config_lib.diff(run.changes, changes)
      raise ConfigError(
        f"{self.path}: sweep() yields '{run.name}' again with other settings (what it yields may only grow with `done`): {'; '.join(lines)}"
      )
    return run

  def _run(self, name, changes, own):
    from pe_jax import resolve

    try:
      config = changed(self.base, changes)
      resolved = resolve.resolve(config)
      wanted = own if own is not None or not hasattr(self.file, 'evaluation') else self._evaluation(name, resolved)
      wanted = [wanted] if isinstance(wanted, dict) else list(wanted or ())
      return Run(name, f'{self.folder}/{name}', changes, config, resolved, tuple(evaluations.checked(one, resolved) for one in wanted))
    except UserError as error:
      raise type(error)(f"run '{name}': {error}") from error

  def _evaluation(self, name, config):
    return self._call(self.file.evaluation, config=config, name=name)

  def _call(self, function, **given):
    given |= {'arg': self.arg, 'folder': self.folder}
    wanted = inspect.signature(function).parameters
    if unknown := wanted.keys() - given.keys():
      raise ConfigError(
        f"{self.path}: {function.__name__}() takes '{sorted(unknown)[0]}', which there is not (there are {', '.join(sorted(given))})"
      )
    try:
      result = function(**{name: value for name, value in given.items() if name in wanted})
      return result if isinstance(result, dict) or result is None else list(result)
    except UserError:
      raise
    except Exception as error:  # a config file is a program and can raise anything
      raise ConfigError(f'{self.path}: {function.__name__}() raised {type(error).__name__}: {error} (--debug shows where)') from error


def changed(base, changes):
  """The base with fields changed, locked; unknown fields are refused. Their types and ranges are resolve.check_fields' matter."""
  tree, known = base.to_dict(), config_lib.flatten(config_lib.default())
  for field, value in changes.items():
    if field not in known:
      raise ConfigError(f'{field}: there is no such field{config_lib.did_you_mean(field, known)}')
    *parents, last = field.split('.')
    part = tree
    for parent in parents:
      part = part[parent]
    part[last] = value
  return ml_collections.ConfigDict(tree).lock()


def check_begun(runs):
  """Refuses runs whose folders hold another configuration: the file has changed since they were begun."""
  found = []
  for run in runs:
    path = remote.path(run.folder) / 'config.json'
    if path.exists():
      lines = config_lib.diff(config_lib.stored(path), run.resolved.to_dict())
      found += [f'{run.name}: {"; ".join(lines)}'] if lines else []
  if found:
    more = [f'and {len(found) - 5} more'] if len(found) > 5 else []
    raise ConfigDiffers(
      f'{len(found)} runs were begun with other settings than the file gives now (take another --workdir or name, or delete their '
      'folders):\n  ' + '\n  '.join([*found[:5], *more])
    )


def _load(path):
  if not pathlib.Path(path).is_file():
    raise ConfigError(f"--config: there is no file '{path}' (for instance --config=configs/sweeps/extrapolation.py)")
  if pathlib.Path(path).suffix != '.py':  # Python would load what was compiled, too
    raise ConfigError(f"--config: '{path}' is no Python file (a sweep is a .py file with get_config and sweep)")
  spec = importlib.util.spec_from_file_location('pe_jax_sweep', path)
  file = importlib.util.module_from_spec(spec)
  try:
    spec.loader.exec_module(file)
  except UserError:
    raise
  except Exception as error:  # a config file is a program and can raise anything
    raise ConfigError(f'--config: the file raised {type(error).__name__}: {error} (--debug shows where)') from error
  for name in ('get_config', 'sweep'):
    if not callable(getattr(file, name, None)):
      raise ConfigError(f'{path}: has no {name}() (a sweep has get_config(arg) and sweep(); pe_jax/sweep/plan.py says how)')
  return file


def _base(file, arg, path):
  try:
    config = file.get_config(arg)
  except UserError:
    raise
  except Exception as error:
    raise ConfigError(f'{path}: get_config() raised {type(error).__name__}: {error} (--debug shows where)') from error
  if not isinstance(config, ml_collections.ConfigDict):
    raise ConfigError(f'{path}: get_config() returned {type(config).__name__} (it must return a ConfigDict)')
  return config
