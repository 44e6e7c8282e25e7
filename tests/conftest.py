"""Eight virtual CPU devices for every test, silent promotion of ranks forbidden. Must run before jax starts.

Programs are compiled without LLVM's optimisations: compiling is nearly all of the time of a test.
"""

import os

os.environ.setdefault('XLA_FLAGS', '--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0')

import jax

jax.config.update('jax_numpy_rank_promotion', 'raise')
