"""scripts/fits.py answers mistakes in a sentence; what it prints follows from the compiler's numbers."""

import importlib.util
import subprocess
import sys

import pytest
import tiny_runs as runs


def fits(*args):
  """The script in a process of its own."""
  command = [sys.executable, 'scripts/fits.py', *args]
  return subprocess.run(command, cwd=runs.ROOT, env=runs.environment(), capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
  ('args', 'said'),
  [
    ([], '--config: missing'),
    (['--config=configs/lm.py:alibi', '--topology=h100:8'], "--topology: 'h100:8' begins with no TPU that is known (there are v4, v5e"),
    (['--config=configs/lm.py:alibi', '--config.parallel=pmap'], "--config.parallel: 'pmap' is not compiled from here"),
    (['--config=configs/lm.py:alibi'], 'there is no libtpu in this environment, which compiles for a TPU (make fits'),
  ],
)
def test_mistakes_are_answered_in_one_line(args, said):
  if 'libtpu' in said and importlib.util.find_spec('libtpu'):
    pytest.skip('libtpu is here')
  done = fits(*args)
  assert done.returncode == 2
  assert said in done.stderr
  assert done.stderr.count('\n') == 1


def test_what_the_compiler_refuses_does_not_fit_and_other_faults_stay_faults():
  code = """
import sys
sys.path.insert(0, 'scripts')
import fits, jax
for said in ('RESOURCE_EXHAUSTED: Ran out of memory on HBM,\\n the total is 128.06G', 'INTERNAL: a fault'):
  def compiled(*args):
    raise jax.errors.JaxRuntimeError(said)
  fits.compiled = compiled
  print(fits.needs(None, None, None, 1))
"""
  done = subprocess.run([sys.executable, '-c', code], cwd=runs.ROOT, capture_output=True, text=True, timeout=60)
  assert done.stdout == 'does not fit: Ran out of memory on HBM, the total is 128.06G\n'
  assert 'INTERNAL: a fault' in done.stderr.splitlines()[-1]


def test_help_comes_at_once():
  done = fits('--help')
  assert done.returncode == 0
  assert '--topology' in done.stdout


def test_memory_adds_up_and_is_compared_with_the_chips():
  """In a process of its own: the script defines flags."""
  sizes = {'argument_size': 300, 'output_size': 250, 'alias_size': 200, 'temp_size': 100, 'generated_code_size': 10}
  code = f"""
import sys, types
sys.path.insert(0, 'scripts')
import fits
memory = types.SimpleNamespace(**{{name + '_in_bytes': size * 2**20 for name, size in {sizes}.items()}})
print(fits.table(memory, 920 * 2**20).splitlines()[-1], fits.table(memory, 400 * 2**20).splitlines()[-1], sep='; ')
"""
  done = subprocess.run([sys.executable, '-c', code], cwd=runs.ROOT, capture_output=True, text=True, timeout=60)
  assert done.stdout == 'fits: 50 % of what a chip has; does not fit: 115 % of what a chip has\n', done.stderr
