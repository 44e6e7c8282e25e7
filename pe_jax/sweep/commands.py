"""The commands of a run: train.py, then eval.py once for each evaluation.

A training command names every field in which its config differs from the defaults, so that it says all of the run by itself: it can be
started on another machine, and a sweep's file can be edited while the sweep goes on.
"""

import dataclasses
import pathlib
import re
import shlex
import sys

from pe_jax import config as config_lib
from pe_jax.errors import ConfigError
from pe_jax.sweep import evaluations

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


@dataclasses.dataclass(frozen=True)
class Place:
  """Where commands are started: which Python, and what stands before the names of our files."""

  python: str = sys.executable
  root: str = f'{ROOT}/'


HERE, ANYWHERE = Place(), Place('python', '')


def train(config, workdir, place=HERE):
  """train.py for a config as one writes it (not resolved)."""
  start = [place.python, f'{place.root}train.py', f'--config={place.root}configs/default.py', f'--workdir={workdir}']
  default = config_lib.flatten(config_lib.default())
  return start + [f'--config.{name}={value}' for name, value in config_lib.flatten(config).items() if value != default[name]]


def evaluate(run, place=HERE):
  """[(label, command of eval.py)], one for each of the run's evaluations."""
  start = [place.python, f'{place.root}eval.py', f'--workdir={run.folder}']
  return [
    (f'sweep-{k}', [*start, f'--label=sweep-{k}', *evaluations.arguments(evaluation)]) for k, evaluation in enumerate(run.evaluations)
  ]


def line(run, place=ANYWHERE, extra='', wrap=''):
  """All of a run as one line for a shell.

  Args:
    run: a plan.Run.
    place: where it is started.
    extra: arguments that each command gets too, as in a shell.
    wrap: the command of another launcher, in which {name} is the run's name, {command} all of the run as one quoted word, and {words} all
      of it as words, with '&&' between two commands.
  """
  steps = [train(run.config, run.folder, place), *(command for _, command in evaluate(run, place))]
  steps = [[*step, *_words(extra)] for step in steps]
  lines = [shlex.join(step) for step in steps]
  given = {'name': run.name, 'command': shlex.quote(' && '.join(lines)), 'words': " '&&' ".join(lines)}
  return re.sub(r'\{(name|command|words)\}', lambda found: given[found[1]], wrap) if wrap else ' && '.join(lines)


def check_wrap(extra, wrap):
  """Refuses templates of lines that say nothing of the run, or that no shell reads."""
  if wrap and not ('{command}' in wrap or '{words}' in wrap):
    raise ConfigError(f"--wrap: '{wrap}' has neither {{command}} nor {{words}}, for which the run's commands are put in")
  _words(extra)


def _words(extra):
  try:
    return shlex.split(extra)
  except ValueError as error:
    raise ConfigError(f"--extra: '{extra}' is nothing that a shell reads: {error}") from None
