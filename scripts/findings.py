"""The small-budget findings on three seeds: trains, measures and writes docs/findings.md with a verdict for every claim.

  make findings                  (or: python scripts/findings.py)
  python scripts/findings.py --quick --workdir=runs/quick --out=runs/quick.md     a few steps, to see it work; its numbers mean nothing

Under an hour on two cores. Interrupted, it goes on where it was.
"""

import concurrent.futures
import contextlib
import datetime
import json
import multiprocessing
import os
import pathlib
import threading
import time

from absl import flags

from pe_jax import cli

WORKDIR = flags.DEFINE_string('workdir', 'runs/findings', 'Folder of the runs.')
SEEDS = flags.DEFINE_list('seeds', ['101', '102', '103'], 'Seeds; no threshold comes from them.')
QUICK = flags.DEFINE_boolean('quick', False, 'Few steps.')
OUT = flags.DEFINE_string('out', 'docs/findings.md', 'The page.')
MAX_TARGETS = flags.DEFINE_integer('max_targets', 130_000, 'Bytes scored at each length.', lower_bound=1)


def main():
  """Trains, measures, writes."""
  seeds = [cli.integer('seeds', seed) for seed in SEEDS.value]
  folder = pathlib.Path(WORKDIR.value)
  with stopwatch(folder) as minutes:
    write(folder, seeds, minutes)
  print(pathlib.Path(OUT.value).read_text())


def write(folder, seeds, minutes):
  """The page, by all that it needs."""
  from benchmarks import machine
  from studies import algorithms, dispersion, habits, language, mechanisms, page

  from pe_jax import launch

  steps = {'language': 1200, 'few files': 300, 'tuning': language.TUNE_STEPS, 'copy': 2000, 'sort': 1000, 'needle': 600, 'markov': 300}
  steps = dict.fromkeys(steps, 30) if QUICK.value else steps
  for jobs, name in (
    (language.jobs(folder, seeds, steps['language'], steps['few files']), 'language models'),
    (language.tuning_jobs(folder, seeds, steps['tuning']), 'fine-tuning'),
    (algorithms.jobs(folder, seeds, steps), 'tasks'),
  ):
    launch.train(jobs, name)
  found = measured(
    folder,
    seeds,
    {
      'language': (language.measure, MAX_TARGETS.value),
      'attention': (dispersion.measure,),
      'tasks': (algorithms.measure,),
      'mechanisms': (mechanisms.measure, mechanisms.STUDIES),
      'habits': (mechanisms.measure, habits.STUDIES),
    },
  )
  groups = {
    'Language models': language.findings(found['language'], seeds),
    'Attention': dispersion.findings(found['attention'], seeds),
    'Tasks': algorithms.findings(found['tasks'], seeds),
    'Mechanisms': mechanisms.findings(found['mechanisms'], seeds),
    'Habits': mechanisms.findings(found['habits'], seeds),
  }
  where = machine.describe()
  dated = f'{datetime.date.today().isoformat()}, seeds {", ".join(map(str, seeds))}.'
  setup = [
    f'`make findings`, {dated[:-1]}, {minutes():.0f} minutes on {where["cores"]} cores ({where["processor"]}); '
    f'steps: {", ".join(f"{name} {count}" for name, count in steps.items())}.',
    '',
    f'Two layers, width 64, four heads, trained at L = {language.L} on bytes of the Python standard library (`configs/quickstart.py`) or '
    'on a synthetic task (`configs/task.py`). Values are one a seed, or one of all seeds together where the claim says so. F1 to F9 and '
    'F-leak are these studies; other names are entries of [claims.md](claims.md). ' + ' '.join(language.__doc__.split('\n\n')[1].split()),
  ]
  curves = language.curves(found['language'], seeds)
  page.write(OUT.value, setup, dated, groups, language.lengths(found['language'], seeds), (*curves, language.LENGTHS))


def measured(folder, seeds, how):
  """{name: what it measured of all seeds}, of {name: (function of (folder, seeds, …), …)}; a process a core or GPU, each on one seed."""
  from pe_jax import progress
  from pe_jax.sweep import slots

  found, places = {name: {} for name in how}, slots.local()
  spawn = multiprocessing.get_context('spawn')  # a fork of a process that runs jax may hang
  free = spawn.Queue()
  for place in places:
    free.put(place)
  with concurrent.futures.ProcessPoolExecutor(len(places), spawn, settle, (free,)) as pool:
    # A seed after the other: what its studies compile is found in the cache by the next.
    jobs = {pool.submit(function, folder, [seed], *more): name for seed in seeds for name, (function, *more) in how.items()}
    with progress.bar(len(jobs), label='measuring', unit='part') as bar:
      for job in concurrent.futures.as_completed(jobs):
        found[jobs[job]] |= job.result()
        bar.advance()
  return found


def settle(free):
  """Takes the place of this process before jax is imported."""
  place = free.get()
  os.environ.update(place.environment)
  if place.cores and hasattr(os, 'sched_setaffinity'):
    os.sched_setaffinity(0, place.cores)
  threading.Thread(target=orphaned, daemon=True).start()


def orphaned():
  """Ends this process when its parent has, which may have been killed: nobody else would."""
  multiprocessing.parent_process().join()
  os._exit(1)


@contextlib.contextmanager
def stopwatch(folder):
  """A function that says the minutes until now, with those of earlier starts on the same folder, however they ended."""
  path, start = folder / 'seconds.json', time.monotonic()
  before = json.loads(path.read_text()) if path.exists() else 0.0

  def minutes():
    seconds = before + time.monotonic() - start
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(seconds))
    return seconds / 60

  ended = threading.Event()

  def keep():
    while not ended.wait(10):
      minutes()

  threading.Thread(target=keep, daemon=True).start()
  try:
    yield minutes
  finally:
    ended.set()


if __name__ == '__main__':
  cli.run(main, __doc__)
