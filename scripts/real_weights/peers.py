"""transformers beside us: the same weights and lengths, float32 and bfloat16, in its own process each; a finished one is kept as a row."""

import json
import pathlib
import subprocess

from pe_jax import metrics, progress
from pe_jax.errors import ConfigError
from real_weights import plan

TYPES = ('float32', 'bfloat16')


def rows(python, source, lengths, path, params):
  """[{length, type, seconds, peak_gb, versions}], measured with the interpreter `python` where they are not in `path`.

  `params`: hash of the parameters, in which rows must agree to be those of this model.
  """
  kept = {(row['length'], row['type']): row for row in metrics.read(path) if row.get('params_sha256') == params}
  for length in lengths:
    for kind in TYPES:
      if (length, kind) not in kept:
        progress.say(f'transformers at {length}, {kind}')
        row = {'length': length, 'type': kind, 'params_sha256': params} | _measured(python, source, length, kind)
        metrics.append(path, [row])
        kept[length, kind] = row
  return [kept[length, kind] for length in lengths for kind in TYPES]


def check(python):
  """Refuses an interpreter that cannot be asked."""
  _said(python, ['-c', 'import torch, transformers'])


def _measured(python, source, length, kind):
  times = 3 if length <= 2048 else 1
  arguments = [pathlib.Path(__file__).with_name('peer.py'), source, length, kind, plan.SPAN, times]
  return json.loads(_said(python, arguments).splitlines()[-1])


def _said(python, arguments):
  """What the interpreter prints."""
  command = list(map(str, [python, *arguments]))
  try:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
  except OSError as error:
    raise ConfigError(f'--peer: {python}: {error.strerror} (name a Python with the parity extra)') from None
  if done.returncode:
    said = [line for line in done.stderr.splitlines() if line.strip()]
    raise ConfigError(f'--peer: {python}: {said[-1] if said else done.returncode} (name a Python with the parity extra)')
  return done.stdout
