"""Kill training runs again and again: does each end with the bits of a run that nobody touched?

  make soak        (or: python scripts/soak.py --kills=200 --seed=0)

Twenty cells: five encodings x documents packed one after the other or one a row x one micro-batch or four. In each a run is first trained
without interruption; then the same run is killed, three times in four by SIGKILL and else by SIGTERM, at a random moment after it has
taken hold of its folder, or at a chosen place (a torn row of the log, a checkpoint half written or half deleted, …; kill_points.py lists
them), started again and killed again, until it is done. Then these must be equal byte by byte: the digest of the parameters and the final
loss, metrics.jsonl, the hash of every batch, the fingerprints of what the last checkpoint holds (parameters, optimizer, key, step, place in
the data), and the rows that eval.py writes. Prints a table, and exits with 1 if anything differs; the folders of what differs are kept.
"""

import concurrent.futures
import itertools
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time

from absl import flags
from studies.killing import Cell, Trial, write_corpus

from pe_jax import cli, progress

KILLS = flags.DEFINE_integer('kills', 200, 'Kills in all, spread over the cells.', lower_bound=1)
SEED = flags.DEFINE_integer('seed', 0, 'Of signals, places and moments.', lower_bound=0)
JOBS = flags.DEFINE_integer('jobs', 0, 'Runs at a time; 0: as many as there are cores.', lower_bound=0)
FOLDER = flags.DEFINE_string('folder', '', 'Where runs are kept; default: a temporary folder, removed if all is equal.')

ENCODINGS, PACKINGS, ACCUMULATE = ('rope', 'alibi', 't5(num_buckets=8, max_distance=12)', 'learned', 'nope'), ('concat', 'pad'), (1, 4)


def main():
  """All cells, the table, the exit code."""
  start, cells = time.monotonic(), [Cell(*kind) for kind in itertools.product(ENCODINGS, PACKINGS, ACCUMULATE)]
  folder = pathlib.Path(FOLDER.value or tempfile.mkdtemp(prefix='soak_'))
  jobs = JOBS.value or (len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count())
  outcomes = soak(folder, cells, KILLS.value, SEED.value, jobs)
  print(table(outcomes))
  wrong = sum(bool(o.wrong) for o in outcomes)
  print(f'{time.monotonic() - start:.0f} s, seed {SEED.value}')
  if not wrong and not FOLDER.value:
    shutil.rmtree(folder)
  sys.exit(1 if wrong else 0)


def soak(folder, cells, kills, seed, jobs):
  """[Outcome] of the cells, `jobs` at a time."""
  folder.mkdir(parents=True, exist_ok=True)
  write_corpus(folder / 'corpus')
  shares = [kills // len(cells) + (n < kills % len(cells)) for n in range(len(cells))]
  with progress.bar(kills, label='kills', unit='kill') as bar, concurrent.futures.ThreadPoolExecutor(jobs) as pool:

    def one(n):
      return Trial(folder / str(n), folder, cells[n], random.Random(f'{seed} {n}'), bar.advance).run(shares[n], twice=not n)

    return list(pool.map(one, range(len(cells))))


def table(outcomes):
  """A line a cell, and the sums."""
  rows = [('cell', 'SIGKILL', 'SIGTERM', 'at chosen places', 'runs ended', 'set aside', 'outcome')]
  for o in outcomes:
    places = ' '.join(f'{place}:{count}' for place, count in sorted(o.places.items()))
    counts = [str(n) for n in (*o.kills.values(), places or '-', o.ended, o.aside)]
    rows.append((str(o.cell), *counts, '; '.join(o.wrong) or 'equal'))
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  lines = ['  '.join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
  kill, term = (sum(o.kills[name] for o in outcomes) for name in ('SIGKILL', 'SIGTERM'))
  chosen, wrong = sum(sum(o.places.values()) for o in outcomes), sum(bool(o.wrong) for o in outcomes)
  lines.append(
    f'{kill + term} kills ({kill} SIGKILL, {term} SIGTERM; {chosen} at chosen places) in {len(outcomes)} cells, '
    f'{sum(o.ended for o in outcomes)} runs ended after them: {wrong} cells differ'
  )
  return '\n'.join(lines)


if __name__ == '__main__':
  cli.run(main, __doc__)
