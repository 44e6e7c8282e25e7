"""Faults that positional code is known for, and one against every promise, each planted in a copy of the tree: does a test go red?

  make mutants        (or: python tests/mutants.py --faults='reversed ramp')

First the tests that the faults name must be green on the copy as it is. Then each fault replaces one text, which must stand there exactly
once, and a test must fail by its assertion; a crash is no proof. Prints a table and exits with 1 if a fault survives. The faults against
promises stand in run_faults.py, user_faults.py and hosts_faults.py, the promises in docs/guarantees.md.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import hosts_faults
import run_faults
import user_faults
from absl import flags

from pe_jax import cli, progress
from pe_jax.config import did_you_mean
from pe_jax.errors import ConfigError

ROOT = pathlib.Path(__file__).resolve().parent.parent
FAULTS_WANTED = flags.DEFINE_string('faults', '', 'Comma-separated names of faults. Empty: all.')
COPIED = ('pe_jax', 'tests', 'scripts', 'configs', 'train.py', 'eval.py', 'pyproject.toml', 'README.md')
CONTRACT, PACKINGS = 'tests/encodings/test_contract.py::test_', 'tests/encodings/test_packings.py::test_every_document_of_a_packed_row_'


@dataclasses.dataclass(frozen=True)
class Fault:
  """`old` in `file` becomes `new`; one of `tests` must fail."""

  name: str
  file: str
  old: str
  new: str
  tests: tuple


FAULTS = (
  Fault(
    'mask off by one',
    'pe_jax/encodings/base.py',
    'same & (self.distance_BTS() >= 0)',
    'same & (self.distance_BTS() >= -1)',
    (f'{CONTRACT}a_later_token_changes_nothing_before_it[nope]',),
  ),
  Fault(
    'segment mask dropped',
    'pe_jax/encodings/base.py',
    '(self.qdoc_BT[:, :, None] == self.kdoc_BS[:, None, :]) & (self.kdoc_BS[:, None, :] > 0)',
    '(self.qdoc_BT[:, :, None] > 0) & (self.kdoc_BS[:, None, :] > 0)',
    (f'{CONTRACT}a_packed_document_does_not_know_its_neighbours[nope]',),
  ),
  Fault(
    'rotation of q only',
    'pe_jax/encodings/rope.py',
    '(turn(q, *tables[0], layout), turn(k, *tables[1], layout))',
    '(turn(q, *tables[0], layout), k)',
    (f'{CONTRACT}a_common_shift_of_positions_changes_nothing_iff_relative[rope]',),
  ),
  Fault(
    'k rotated backwards',
    'pe_jax/encodings/rope.py',
    'turn(k, *tables[1], layout))',
    'turn(k, tables[1][0], -tables[1][1], layout))',
    (f'{CONTRACT}a_common_shift_of_positions_changes_nothing_iff_relative[rope]',),
  ),
  Fault(
    'bfloat16 phases',
    'pe_jax/encodings/phases.py',
    'return jnp.cos(angle), jnp.sin(angle)',
    'return jnp.cos(angle).astype(jnp.bfloat16), jnp.sin(angle).astype(jnp.bfloat16)',
    ('tests/encodings/test_values.py::test_phases_are_right_to_a_millionth_up_to_a_million',),
  ),
  Fault(
    'slot index for position',
    'pe_jax/cache.py',
    '  pos_BS, doc_BS = put(cache.pos_BS, pos_BT), put(cache.doc_BS, doc_BT)\n',
    '  pos_BT = jnp.broadcast_to(cache.used + jnp.arange(new, dtype=jnp.int32), pos_BT.shape)\n'
    '  pos_BS, doc_BS = put(cache.pos_BS, pos_BT), put(cache.doc_BS, doc_BT)\n',
    (f'{CONTRACT}cached_decoding_equals_one_forward_under_the_declared_length[sinusoidal]',),
  ),
  Fault(
    'cache offset',
    'pe_jax/cache.py',
    'klen_BS=len_BS, offset=cache.used)',
    'klen_BS=len_BS, offset=cache.used + new)',
    (f'{CONTRACT}cached_decoding_equals_one_forward_under_the_declared_length[t5(num_buckets=8, max_distance=12)]',),
  ),
  Fault(
    'full frequencies for partial rotation',
    'pe_jax/encodings/rope.py',
    'return frequencies(int(fraction * head_dim), base)',
    'return frequencies(head_dim, base)[: int(fraction * head_dim) // 2]',
    (f'{PACKINGS}follows_its_formula[rope(fraction=0.5)]',),
  ),
  Fault(
    'slopes of a power of two only',
    'pe_jax/encodings/alibi.py',
    'return np.concatenate([of_power, of_double[::2][: num_heads - power]])',
    'return (2.0 ** (-8 * np.arange(1, num_heads + 1) / num_heads))',
    (f'{PACKINGS}follows_its_formula[alibi]',),
  ),
  Fault(
    'dynamic base from padded length',
    'pe_jax/encodings/rope.py',
    "jnp.searchsorted(jnp.asarray(of['length_X']), length_BT)",
    "jnp.searchsorted(jnp.asarray(of['length_X']), jnp.full_like(length_BT, length_BT.shape[1]))",
    (f'{PACKINGS}follows_its_formula[dynamic_ntk(factor=2)]',),
  ),
  Fault(
    "YaRN's factor twice",
    'pe_jax/encodings/rope.py',
    'return cos * factor, sin * factor',
    'return cos * factor**2, sin * factor**2',
    (f'{PACKINGS}follows_its_formula[yarn(factor=2)]',),
  ),
  Fault(
    'reversed ramp',
    'pe_jax/encodings/frequency_maps.py',
    'return np.clip((np.arange(pairs) - low) / (high - low), 0, 1)',
    'return 1 - np.clip((np.arange(pairs) - low) / (high - low), 0, 1)',
    ('tests/encodings/test_values.py::test_yarn_of_llama_two_keeps_pairs_to_20_and_divides_those_from_46',),
  ),
)


FAULTS += tuple(Fault(*row) for row in (*run_faults.ROWS, *user_faults.ROWS, *hosts_faults.ROWS))


def main():
  """Green first, then every fault, as many at a time as there are cores."""
  faults, start = chosen(), time.monotonic()
  with tempfile.TemporaryDirectory() as folder:
    tree = copy(pathlib.Path(folder))
    progress.say('the tests on the tree as it is')
    came_from = subprocess.run([sys.executable, '-c', 'import pe_jax; print(pe_jax.__file__)'], **surroundings(tree)).stdout.strip()
    red = f'another pe_jax was imported: {came_from}' if not came_from.startswith(str(tree)) else failing(tree, all_tests(faults))[0]
  if red:
    print(f'without any fault: {red}')
    sys.exit(1)
  progress.say(f'green ({time.monotonic() - start:.0f} s)')
  cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()
  with concurrent.futures.ThreadPoolExecutor(cores) as pool:
    results = list(pool.map(plant, faults))
  rows = [('fault', 'file', 'caught by', 'seconds'), *(row for row, _ in results)]
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  for row in rows:
    print('  '.join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
  survived = sum(not caught for _, caught in results)
  print(f'{len(faults)} faults, {survived} survived ({time.monotonic() - start:.0f} s)')
  sys.exit(1 if survived else 0)


def chosen():
  """The faults that --faults names."""
  names = [name.strip() for name in FAULTS_WANTED.value.split(',') if name.strip()]
  known = {fault.name: fault for fault in FAULTS}
  for name in names:
    if name not in known:
      raise ConfigError(f"--faults: '{name}' is unknown{did_you_mean(name, known)} (there are {', '.join(known)})")
  return [known[name] for name in names or known]


def all_tests(faults):
  """Every test that a fault names, once."""
  return list(dict.fromkeys(test for fault in faults for test in fault.tests))


def plant(fault):
  """((name, file, the test that went red, seconds), whether one did)."""
  start = time.monotonic()
  with tempfile.TemporaryDirectory() as folder:
    path = copy(pathlib.Path(folder)) / fault.file
    text = path.read_text()
    if text.count(fault.old) == 1:
      path.write_text(text.replace(fault.old, fault.new))
      test, caught = failing(pathlib.Path(folder), fault.tests)
      said = test.rpartition('/')[2] if caught else test or 'SURVIVED'
    else:
      said, caught = f'NOT PLANTED: the text stands there {text.count(fault.old)} times', False
  progress.say(f'{fault.name}: {said}')
  return (fault.name, fault.file.removeprefix('pe_jax/'), said, f'{time.monotonic() - start:.0f}'), caught


def copy(folder):
  """What the tests need, in a folder of its own."""
  for name in COPIED:
    source = ROOT / name
    if source.is_dir():
      shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns('__pycache__'))
    else:
      shutil.copy(source, folder / name)
  return folder


def surroundings(tree):
  """How a process runs in the copy: its pe_jax comes before the installed one, with the devices and the quick compiling of conftest.py."""
  fast = {'XLA_FLAGS': '--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0', 'JAX_COMPILATION_CACHE_DIR': ''}
  return {'cwd': tree, 'env': os.environ | fast | {'PYTHONPATH': str(tree), 'COLUMNS': '500'}, 'capture_output': True, 'text': True}


def failing(tree, tests):
  """(the first test that fails or what else went wrong, whether a test failed by its assertion); ('', False) if all pass."""
  command = [sys.executable, '-m', 'pytest', '-x', '-n', '0', '-p', 'no:cacheprovider', '--tb=short', '-rf', '--durations=0', *tests]
  done = subprocess.run(command, **surroundings(tree))
  if done.returncode == 0:
    return '', False
  failed = re.search(r'^FAILED (.*?\])? - (.*)$|^FAILED (.*)$', done.stdout, re.MULTILINE)
  asserted = re.search(r'^E +(AssertionError|assert |Failed: DID NOT RAISE)', done.stdout, re.MULTILINE)
  if done.returncode == 1 and failed and asserted:
    return failed[1] or failed[3], True
  last = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith(('E  ', 'ERROR'))]
  return f'BROKEN: {last[-1] if last else f"pytest ended with {done.returncode}"}', False


if __name__ == '__main__':
  signal.signal(signal.SIGINT, signal.SIG_DFL)
  cli.run(main, __doc__)
