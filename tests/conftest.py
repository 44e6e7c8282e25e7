"""Eight virtual CPU devices for every test, silent promotion of ranks forbidden, no network. Must run before jax starts.

Programs are compiled without LLVM's optimisations: compiling is nearly all of the time of a test.
"""

import os
import sys

os.environ.setdefault('XLA_FLAGS', '--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0')
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'no_network'))

import jax
import loopback_only

jax.config.update('jax_numpy_rank_promotion', 'raise')
loopback_only.install()
loopback_only.for_children(os.environ)


def pytest_addoption(parser):
  """How long tests/test_fuzz.py takes."""
  parser.addoption('--fuzz', type=int, default=60, help='Configs that tests/test_fuzz.py draws; 2000 is a long run of other ones.')
