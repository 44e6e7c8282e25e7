"""Settings of the process and of the compiler that are worth up to half of the speed on a CPU, and change no result beyond rounding.

- Compiled programs are kept in a cache folder of the user, so that a second start need not compile: JAX_COMPILATION_CACHE_DIR names another
  folder, an empty value turns it off.
- On the CPU backend a training step is compiled with faster matrix products (`options`). PE_JAX_CPU_OPTIONS=off leaves XLA as it comes.
- malloc should use huge pages and keep what it has (GLIBC_TUNABLES) where a CPU computes: a step's arrays are as large as the last step's,
  and given back to the system each time their pages are cleared anew, a tenth of a small model's step. That must stand in the environment
  before the process starts: `make` and the scripts set it for what they start, anything else is told once.
"""

import glob
import importlib.metadata
import os
import pathlib
import re
import sys

KEPT = 2**34  # bytes that a process may hold without using them
MALLOC = {'GLIBC_TUNABLES': f'glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold={KEPT}:glibc.malloc.arena_max=1'}
TPU = '/dev/accel[0-9]*', '/dev/vfio/[0-9]*'
DEVICES = '/dev/nvidia[0-9]*', '/dev/kfd', *TPU  # of NVIDIA, AMD and TPUs
ALONE = {'PE_JAX_COORDINATOR': ''}  # what a script starts belongs to no run of several processes (join.py)
# Each product by itself: fused with what stands around it (LIBRARY_FUSION_TYPE_DOT) the sums of attention's gradients for queries and keys
# wider than values end the process with a segmentation fault (jaxlib 0.10.2), and it is no faster.
CPU_OPTIONS = {'xla_cpu_experimental_ynn_fusion_type': 'LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT', 'xla_cpu_prefer_vector_width': 512}


def prepare(environment=os.environ):
  """Sets what can be set before jax is imported, unless the user has."""
  home = environment.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
  if not home.startswith('~'):  # as it does for a user whom the system does not know, in a container: then nothing is kept
    environment.setdefault('JAX_COMPILATION_CACHE_DIR', str(pathlib.Path(home) / 'pe_jax' / 'compiled'))
  environment.setdefault('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0.2')


def joined():
  """Whether this process is one of several that have met (join.py). What does not compute need not import jax for it."""
  jax = sys.modules.get('jax')
  return jax is not None and jax.distributed.is_initialized()


def child_environment():
  """The environment for a process that trains by itself: this one's, with the settings of malloc where a CPU computes."""
  return ({} if sys.platform != 'linux' or accelerated() else MALLOC) | os.environ | ALONE


def accelerated():
  """Whether jax would compute on an accelerator, as far as can be seen without asking it."""
  wanted = os.environ.get('JAX_PLATFORMS')
  return wanted.split(',')[0] != 'cpu' if wanted else any(map(glob.glob, DEVICES))


def options(long=False):
  """Compiler options for a training step: none on accelerators, on texts long enough for blockwise attention, or where XLA rejects them.

  Blocks of attention in a loop get slower by them.
  """
  import jax

  if jax.default_backend() != 'cpu' or long or os.environ.get('PE_JAX_CPU_OPTIONS') == 'off':
    return {}
  try:
    jax.jit(lambda x: x + 1, compiler_options=CPU_OPTIONS).lower(1.0).compile()
  except Exception:  # another release of XLA: its options come and go, and its errors have no common type
    return {}
  return dict(CPU_OPTIONS)


def missing_backend(error):
  """A sentence, if the error is JAX's that a backend which was asked for is not there, else ''."""
  said = ' '.join(str(error).split())
  wanted = re.match(r"(?:Unable to initialize|Unknown) backend:? '?(\w+)", said)
  if not wanted:
    return ''

  def version(name):
    try:
      return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
      return 'is not installed'

  versions = ', '.join(f'{name} {version(name)}' for name in ('jax', 'jaxlib', 'libtpu'))
  return f"JAX_PLATFORMS: '{wanted[1]}' is not to be had here: {said[:300]}; {versions} (unset JAX_PLATFORMS, or install .[gpu] or .[tpu])"


def hint():
  """A sentence on what would be faster, or ''."""
  import jax

  if jax.default_backend() == 'cpu' and sys.platform == 'linux' and 'GLIBC_TUNABLES' not in os.environ:
    return f'faster on this CPU with GLIBC_TUNABLES={MALLOC["GLIBC_TUNABLES"]} in the environment'
  return ''
