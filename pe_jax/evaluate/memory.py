"""Whether a program fits into the memory of this machine: asked of the compiler before it runs, not of the system when it is too late."""

import os
import pathlib

import jax

from pe_jax import hosts
from pe_jax.errors import ConfigError


def check(compiled, length):
  """Refuses a compiled program of a length that needs more memory than there is; parameters are in memory already.

  Of several processes all refuse if one has to.
  """
  need, have = needed(compiled), available()
  with hosts.together():
    if have is not None and need > have:
      raise ConfigError(
        f'lengths: {length} tokens need {need / 1e9:.1f} GB beside the parameters, by the compiler, and {have / 1e9:.1f} GB are free here '
        '(ask for shorter lengths, or evaluate where there is more)'
      )


def needed(compiled):
  """Bytes of work and results; 0 where the backend does not tell."""
  found = compiled.memory_analysis()
  return found.temp_size_in_bytes + found.output_size_in_bytes if found else 0


def available():
  """Bytes that are free on this process's first device, on a CPU in the machine; None where nobody tells."""
  stats = jax.local_devices()[0].memory_stats()
  if stats and 'bytes_limit' in stats:
    return stats['bytes_limit'] - stats.get('bytes_in_use', 0)
  return None if jax.default_backend() != 'cpu' else of_machine()


def of_machine():
  """Bytes that the system can give without swapping."""
  try:
    told = dict(line.split(':') for line in pathlib.Path('/proc/meminfo').read_text(encoding='utf-8').splitlines() if ':' in line)
    return int(told['MemAvailable'].split()[0]) * 1024
  except (OSError, KeyError, ValueError):
    pass
  try:
    return os.sysconf('SC_AVPHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
  except (AttributeError, ValueError, OSError):
    return None
