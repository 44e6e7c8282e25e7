"""Every encoding through every property of the contract, as a table of worst errors.

  make contract        (or: python tests/encodings/matrix.py --specs='rope, layers(rope, alibi)')

Below each property's title stands what it may be off by; 0 is equality to the last bit, and a word is what a property found where that is
no number. A cell that fails ends in '!', what it says stands below the table, and the exit code is 1. All encodings take a quarter of an
hour on two cores.
"""

import concurrent.futures
import multiprocessing
import os
import pathlib
import signal
import sys
import time

from absl import flags

from pe_jax import cli, progress

TESTS = pathlib.Path(__file__).resolve().parent.parent
SPECS = flags.DEFINE_string('specs', '', 'Comma-separated encodings; a bare name is tested at the setting it has in the tests. Empty: all.')
NAME_WIDTH = 48


def main():
  """Measures, prints the table and what failed; exits with 1 if anything did."""
  asked = cli.encoding_list(SPECS.value)
  prepare()
  from pe_jax.selfcheck import properties

  specs = properties.SPECS if asked is None else [properties.SETTINGS.get(str(spec), str(spec)) for spec in asked]
  specs = list(dict.fromkeys(specs))
  rows = measured(specs)
  print(table(properties.PROPERTIES, rows))
  failures = 0
  for spec in specs:
    said = {}
    for name, (_, sentence) in rows[spec].items():
      said.setdefault(sentence, []).append(name)
    for sentence, names in said.items():
      if sentence:
        failures += len(names)
        print(f'{spec}: {", ".join(names)}: {sentence}')
  print(f'{len(specs) * len(properties.PROPERTIES)} cells, {failures} failures')
  sys.exit(1 if failures else 0)


def prepare():
  """As under pytest: the helpers of the tests can be imported, and conftest.py sets up jax. Also the start of each process."""
  signal.signal(signal.SIGINT, signal.SIG_DFL)
  # Nearly all of the time is compilation. This halves it; what is compiled here is of no use to anybody later.
  os.environ.setdefault('XLA_FLAGS', '--xla_backend_optimization_level=0')
  os.environ['JAX_COMPILATION_CACHE_DIR'] = ''
  sys.path[:0] = [str(TESTS), str(TESTS / 'encodings')]
  __import__('conftest')


def measured(specs):
  """{spec: {property: (cell, what failed or '')}}, one encoding at a time on each core, in the order given."""
  rows, start = {}, time.monotonic()
  workers = min(len(specs), len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count())
  with concurrent.futures.ProcessPoolExecutor(workers, multiprocessing.get_context('spawn'), prepare) as pool:
    waiting = {pool.submit(row, spec): spec for spec in specs}
    for done in concurrent.futures.as_completed(waiting):
      spec = waiting[done]
      rows[spec] = done.result()
      wrong = ', '.join(name for name, (_, said) in rows[spec].items() if said)
      progress.say(f'{len(rows)}/{len(waiting)} {spec}: {f"FAILED {wrong}" if wrong else "holds"} ({time.monotonic() - start:.0f} s)')
  return {spec: rows[spec] for spec in specs}


def row(spec):
  """One encoding through all properties, in a process of its own kind: {property: (cell, what failed or '')}."""
  import jax

  from pe_jax.selfcheck import properties, tiny

  cells = {name: cell(function, tolerance, spec) for name, (function, tolerance) in properties.PROPERTIES.items()}
  tiny.forward.cache_clear()  # no other encoding will use what was compiled for this one
  jax.clear_caches()
  return cells


def cell(function, tolerance, spec):
  """(text of the cell, what failed or '')."""
  from pe_jax.selfcheck import properties

  try:
    value = function(spec)
  except Exception as error:  # an encoding that breaks is one row of the table
    return ('false!' if isinstance(error, AssertionError) else 'broken!'), f'{type(error).__name__}: {" ".join(str(error).split())}'
  if properties.holds(value, tolerance):
    return short(value), ''
  return f'{short(value)}!', properties.failure(function, value, tolerance)


def short(value):
  """A word as it is, a number with one digit: 3e-7."""
  return value if isinstance(value, str) else '0' if value == 0 else f'{value:.0e}'.replace('e-0', 'e-')


def table(properties, rows):
  """The text: titles, tolerances, a line for each encoding."""
  tolerances = ['' if tolerance is None else short(tolerance) for _, tolerance in properties.values()]
  lines = [['property', *properties], ['may be off by', *tolerances]]
  lines += [[spec, *(text for text, _ in cells.values())] for spec, cells in rows.items()]
  names = [line[0] if len(line[0]) <= NAME_WIDTH else line[0][: NAME_WIDTH - 1] + '…' for line in lines]
  columns = [[cell.rjust(max(map(len, column))) for cell in column] for column in list(zip(*lines, strict=True))[1:]]
  columns = [[name.ljust(max(map(len, names))) for name in names], *columns]
  return '\n'.join('  '.join(line) for line in zip(*columns, strict=True))


if __name__ == '__main__':
  cli.run(main, __doc__)
