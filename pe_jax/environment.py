"""What the bits of a run depend on besides its configuration and its text: env.json."""

import hashlib
import importlib.metadata
import os
import pathlib
import platform

PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'tensorflow-datasets', 'numpy', 'pe_jax')
ROOT = pathlib.Path(__file__).parent


def of_process(path, options):
  """The environment of this process. `path`: the attention's, as from `attention.paths`; `options`: the compiler's for the step."""
  import jax

  device = jax.devices()[0]
  return {
    'packages': packages(),
    'sources_sha256': sources(),
    'python': platform.python_version(),
    'machine': platform.machine(),
    'cpu': cpu(),
    'xla_flags': os.environ.get('XLA_FLAGS', ''),
    'libtpu_init_args': os.environ.get('LIBTPU_INIT_ARGS', ''),
    'matmul_precision': jax.config.jax_default_matmul_precision or '',
    'x64': jax.config.jax_enable_x64,
    'compiler_options': options,
    'attention': path,
    'backend': device.platform,
    'device_kind': device.device_kind,
    'device_count': jax.device_count(),
    'process_count': jax.process_count(),
    'cores': len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count(),
  }


def packages():
  """{name: version} of what computes and stores."""
  return {name: importlib.metadata.version(name) for name in PACKAGES}


def sources(root=ROOT):
  """A digest of the names and bytes of all .py files of the package: an edit that nobody gave a version is seen too."""
  found = hashlib.sha256()
  for path in sorted(root.rglob('*.py')):
    for part in (path.relative_to(root).as_posix().encode(), path.read_bytes()):
      found.update(len(part).to_bytes(8, 'little') + part)
  return found.hexdigest()


def cpu(told='/proc/cpuinfo'):
  """The processor's own name: XLA compiles for it, and libraries choose their kernels by it."""
  try:
    lines = pathlib.Path(told).read_text().splitlines()
  except OSError:
    lines = []
  named = [value.strip() for name, _, value in (line.partition(':') for line in lines) if name.strip() in ('model name', 'Model')]
  return named[0] if named else platform.processor()
