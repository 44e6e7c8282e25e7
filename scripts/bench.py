"""Speed and memory as ratios, against other programs and against ourselves, in interleaved rounds: a Markdown page and its data.

  make bench                     (or: python scripts/bench.py)
  make bench ARGS=--quick        in under five minutes, smaller
  make bench ARGS=--only=attention,loss

Other programs need an environment with torch, transformers and x-transformers (`make bench` makes one); without it their rows say so. With
--only the other benchmarks of the page stay as they were, each with its own date. On the CPU only.
"""

import contextlib
import datetime
import importlib
import os
import pathlib
import sys
import tempfile
import time

from absl import flags

from pe_jax import cli, process, progress
from pe_jax.config import did_you_mean
from pe_jax.errors import ConfigError

NAMES = ['train', 'encodings', 'phases', 'attention', 'loss', 'lengths', 'decode', 'pipeline', 'start', 'growth']
ROOT = pathlib.Path(__file__).resolve().parent.parent
FULL_ONLY = ('encodings', 'phases', 'start')  # what a quick run leaves out unless --only names it
QUICK = flags.DEFINE_boolean('quick', False, f'Smaller sizes, fewer rounds, and without {", ".join(FULL_ONLY)}.')
ONLY = flags.DEFINE_list('only', [], f'Some of: {", ".join(NAMES)}.')
ROUNDS = flags.DEFINE_integer('rounds', 0, 'Rounds; 0: 10, or 3 of a quick run.', lower_bound=0)
OUT = flags.DEFINE_string(
  'out', '', 'The page; its data goes beside it, as .json. Default: docs/performance.md; of a quick run runs/bench/quick.md.'
)
PEERS = flags.DEFINE_string('peers', '', "Python of an environment with the peers; '': the one that `make bench` makes, if it is there.")
PEER = flags.DEFINE_multi_string('peer', [], 'A checkout to run too: nanodo=PATH.')


def main():
  """One benchmark after the other; the page is written after each, so that an interrupted run leaves what it has."""
  chosen = checked(ONLY.value) or [name for name in NAMES if not (QUICK.value and name in FULL_ONLY)]
  interpreter, nanodo = peers_python(PEERS.value), checkout(PEER.value)
  out = pathlib.Path(OUT.value or ('runs/bench/quick.md' if QUICK.value else 'docs/performance.md'))
  out.parent.mkdir(parents=True, exist_ok=True)

  from benchmarks import growth, machine, report, rounds

  sections = report.read(out)  # each with its date: what an interrupted run has not reached stays
  count = ROUNDS.value or (3 if QUICK.value else 10)
  with tempfile.TemporaryDirectory() as folder, contextlib.closing(rounds.Bench(interpreter, folder)) as bench:
    for name in chosen:
      module, start = importlib.import_module(f'benchmarks.{name}'), time.monotonic()
      data = {'date': datetime.date.today().isoformat(), 'mode': 'quick' if QUICK.value else 'full', 'rounds': count}
      data |= {'about': module.__doc__.strip(), 'machine': machine.describe(), 'groups': []}
      for group in module.groups(QUICK.value, nanodo) if name == 'train' else module.groups(QUICK.value):
        progress.say(f'{name}: {group.name}')
        data['groups'].append(report.group_data(group, bench.measure(group, count)))
        for row in data['groups'][-1]['rows']:
          progress.say(f'  {row["verdict"]:12} {row["measure"]}: ' + (f'{row["median"]:.3g}' if 'median' in row else row['why']))
      if name == 'growth':
        picture = out.with_name('growth.png')
        growth.draw(data['groups'][0], picture)
        data['figure'] = picture.name
      data |= {'seconds': time.monotonic() - start, 'versions': dict(bench.versions), 'settings': settings()}
      sections[name] = data
      report.write(out, {n: sections[n] for n in NAMES if n in sections})
  print(report.count({n: sections[n] for n in chosen}) + f' The page: {out}')


def checked(names):
  """Refuses a benchmark that does not exist."""
  for name in names:
    if name not in NAMES:
      raise ConfigError(f"--only: '{name}' is unknown{did_you_mean(name, NAMES)} (there are {', '.join(NAMES)})")
  return [name for name in NAMES if name in names]


def peers_python(path):
  """The interpreter of the peers, None where there is none."""
  if path and not pathlib.Path(path).exists():
    raise ConfigError(f"--peers: there is no '{path}' (it is a Python with torch, transformers and x-transformers)")
  # `make bench` puts it beside the environment that this runs in: .venv and .venv-parity.
  found = pathlib.Path(path or f'{sys.prefix}-parity/bin/python')
  return str(found.absolute()) if found.exists() else None


def checkout(given):
  """The path of a nanodo checkout, None without one."""
  paths = dict(text.partition('=')[::2] for text in given)
  if unknown := paths.keys() - {'nanodo'}:
    raise ConfigError(f"--peer: '{sorted(unknown)[0]}' is unknown (nanodo=PATH is what can be run)")
  path = paths.get('nanodo')
  if path is not None and not (pathlib.Path(path) / 'nanodo' / 'train.py').exists():
    raise ConfigError(f"--peer: '{path}' is no checkout of nanodo (it has no nanodo/train.py)")
  return path and str(pathlib.Path(path).absolute())


def settings():
  """The process settings that all had in rows with the same settings."""
  pages = (process.MALLOC | os.environ)['GLIBC_TUNABLES']
  options = 'off' if os.environ.get('PE_JAX_CPU_OPTIONS') == 'off' else ' '.join(f'{k}={v}' for k, v in process.CPU_OPTIONS.items())
  return f'Settings: GLIBC_TUNABLES={pages}; options of training steps: {options}'


if __name__ == '__main__':
  cli.run(main, __doc__)
