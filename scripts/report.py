"""Tables, figures and one page of everything that was trained and evaluated below a folder.

  scripts/report.py --workdir=sweeps/x
  scripts/report.py --workdir=sweeps/x --watch     (and again whenever a run writes, begins or is gone, until Ctrl-C)

Looks for runs at any depth, finished or not, and writes into WORKDIR/report: index.html, which opens from disk without a network, tidy
tables (runs, results, positions, training, needle, attention) as .parquet and .csv, and figures/*.png. Runs are read and never written.
Exit codes as train.py's.
"""

import math
import os
import pathlib
import signal
import time

from absl import flags

from pe_jax import cli

WORKDIR = flags.DEFINE_string('workdir', None, 'Folder below which the runs are.')
OUT = flags.DEFINE_string('out', '', 'Folder to write to; default: WORKDIR/report.')
TITLE = flags.DEFINE_string('title', '', "Title of the page; default: the folder's name.")
MARGIN = flags.DEFINE_float('margin', 0.05, 'Nats that a reliable length may cost, with 95 % confidence.')
BAR = flags.DEFINE_float('bar', None, 'Loss in nats that must be reached at the training length for any rank.')
WATCH = flags.DEFINE_boolean('watch', False, 'Write it again whenever something has changed; the page loads itself again.')
EVERY = flags.DEFINE_integer('every', 20, 'Seconds between two looks of --watch, or more where writing takes long.', lower_bound=1)


def main():
  """Writes it, once or as long as it is watched."""
  cli.required('workdir', 'sweeps/x')
  os.environ.setdefault('JAX_PLATFORMS', 'cpu')  # nothing is computed with jax here, and the accelerator may be a run's

  from pe_jax import remote
  from pe_jax.errors import ConfigError

  if not 0 < MARGIN.value < math.inf:
    raise ConfigError(f'--margin: {MARGIN.value} must be a number above 0: that a change is within nothing can never be shown')
  if BAR.value is not None and not 0 < BAR.value < math.inf:
    raise ConfigError(f'--bar: {BAR.value} must be a number above 0')
  folder = remote.local(WORKDIR.value, '--workdir')
  out = pathlib.Path(OUT.value) if OUT.value else folder / 'report'
  if WATCH.value:
    watch(folder, out)
  else:
    write(folder, out)


def watch(folder, out):
  """Writes it whenever something has changed, from the first run on. A fault in between is told, and the next change tried."""
  from pe_jax import progress
  from pe_jax.errors import UserError
  from pe_jax.report import results

  seen, took, waits = None, 0.0, False
  try:
    while True:
      now = results.signature(folder)
      if now != seen:
        seen, began = now, time.time()
        try:
          if write(folder, out, required=False):
            signal.signal(signal.SIGINT, signal.default_int_handler)  # not before: an exception gets lost inside imports
          elif not waits:
            waits = True
            progress.say(f'{folder}: no run below it yet, so this waits (Ctrl-C ends it)')
        except UserError:
          raise
        except Exception as error:  # of whatever was half written just then
          progress.say(f'{folder}: not written this time: {type(error).__name__}: {" ".join(str(error).split())[:300]}')
        took = time.time() - began
      time.sleep(max(EVERY.value, 4 * took))  # of the processor's time most is the runs'
  except KeyboardInterrupt:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    write(folder, out, refresh=0, required=False)  # one that no longer loads itself again


def write(folder, out, refresh=None, required=True):
  """Looks through the folder and writes everything; says what there is. Returns whether there was a run.

  Errors: DataError if there was none, where one is required.
  """
  from pe_jax import progress
  from pe_jax.errors import DataError
  from pe_jax.report import charts, page, ranking, readings, results, results_figures, tidy

  if not required and not folder.is_dir():
    return False
  start = time.time()
  with progress.bar(len(results.places(folder)), label='reading', unit='run') as bar:
    runs = results.scan(folder, bar.advance)
  if not runs and not required:
    return False
  if not runs:
    raise DataError(f'{folder}: no run below it (a folder that train.py has written is wanted)')
  tidy.write(runs, out)
  lines = readings.of_runs(runs)
  with progress.bar(ranking.count(lines), label='ranking', unit='line') as bar:
    entries = ranking.of_readings(lines, MARGIN.value, BAR.value, bar.advance)
  drawn = charts.of_readings(lines)
  figures = []
  with progress.bar(results_figures.count(drawn, entries, lines), label='drawing', unit='figure') as bar:
    for figure in results_figures.draw(drawn, entries, lines, out / 'figures'):
      figures.append(figure)
      bar.advance(1, figure.title)
  title = TITLE.value or folder.resolve().name
  refresh = (EVERY.value if WATCH.value else 0) if refresh is None else refresh
  size = page.write(out / 'index.html', title, runs, lines, entries, drawn, figures, start, refresh, MARGIN.value)
  states = [run.state for run in runs]
  told = ', '.join(f'{states.count(state)} {state}' for state in sorted(set(states)))
  print(f'{out / "index.html"}: {len(runs)} runs ({told}), {size / 1e6:.2f} MB, {time.time() - start:.1f} s', flush=True)
  return True


if __name__ == '__main__':
  cli.run(main, __doc__)
