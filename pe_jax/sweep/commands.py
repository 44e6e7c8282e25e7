"""The commands of a run: train.py, then eval.py once for each evaluation.

A training command names every field in which its config differs from the defaults, so that it says all of the run by itself: it can be
started on another machine, and a sweep's file can be edited while the sweep goes on.
"""

import dataclasses
import pathlib
import shlex
import sys

from pe_jax import config as config_lib
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


def line(run, place=ANYWHERE):
  """All of a run as one line for a shell."""
  steps = [train(run.config, run.folder, place), *(command for _, command in evaluate(run, place))]
  return ' && '.join(shlex.join(step) for step in steps)
