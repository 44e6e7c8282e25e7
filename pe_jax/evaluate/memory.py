"""Whether a program fits into the memory of this machine: asked of the compiler before it runs, not of the system when it is too late."""

import ctypes
import os
import pathlib
import sys

import jax

from pe_jax import hosts
from pe_jax.errors import ConfigError


def check(compiled, length):
  """Refuses a compiled program of a length that needs more memory than there is; parameters are in memory already.

  Of several processes all refuse if one has to.
  """
  need = needed(compiled)
  have = less_than(need)
  with hosts.together():
    if have is not None:
      raise ConfigError(
        f'lengths: {length} tokens need {need / 1e9:.1f} GB beside the parameters, by the compiler, and {have / 1e9:.1f} GB are free here '
        '(ask for shorter lengths, or evaluate where there is more)'
      )


def needed(compiled):
  """Bytes of work and results on a device, on a CPU of all its devices, which share the machine; 0 where the backend does not tell.

  Results that take the place of what was given (donated) are there already.
  """
  found = compiled.memory_analysis()
  if not found:
    return 0
  sharing = len(jax.tree.leaves(compiled.output_shardings)[0].addressable_devices) if jax.default_backend() == 'cpu' else 1
  return sharing * (found.temp_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes)


def available():
  """Bytes that are free on this process's first device, on a CPU in the machine; None where nobody tells."""
  stats = jax.local_devices()[0].memory_stats()
  if stats and 'bytes_limit' in stats:
    return stats['bytes_limit'] - stats.get('bytes_in_use', 0)
  return None if jax.default_backend() != 'cpu' else of_machine()


def less_than(need):
  """The bytes that are free where they are fewer than `need`; None where they are enough, or nobody tells."""
  have = available()
  if have is not None and need > have:
    give_back()
    have = available()
  return have if have is not None and need > have else None


def give_back():
  """Gives the system what malloc keeps of freed memory: gigabytes under the settings of process.py, where another program ended."""
  if sys.platform == 'linux' and hasattr(libc := ctypes.CDLL(None), 'malloc_trim'):  # glibc's
    libc.malloc_trim(0)


def check_bytes(need, what):
  """Refuses arrays that need more memory than there is. `what`: the field, and what takes so much, for the sentence."""
  have = less_than(need)
  if have is not None:
    raise ConfigError(f'{what} take {need / 1e9:.1f} GB, and {have / 1e9:.1f} GB are free here (ask for fewer tokens, or fewer at once)')


def of_machine():
  """Bytes that the system can give to this process without swapping: what is free, or what is left of its group's limit if that is less."""
  told = [found for found in (_free(), *(_left(folder) for folder in groups())) if found is not None]
  return min(told) if told else None


def _free():
  try:
    told = dict(line.split(':') for line in pathlib.Path('/proc/meminfo').read_text(encoding='utf-8').splitlines() if ':' in line)
    return int(told['MemAvailable'].split()[0]) * 1024
  except (OSError, KeyError, ValueError):
    pass
  try:
    return os.sysconf('SC_AVPHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
  except (AttributeError, ValueError, OSError):
    return None


def groups(told=pathlib.Path('/proc/self/cgroup'), root=pathlib.Path('/sys/fs/cgroup')):
  """Folders of the control groups that limit this process's memory, its own and those around it; containers have them."""
  try:
    lines = [line.split(':', 2) for line in told.read_text(encoding='utf-8').splitlines()]
  except (OSError, ValueError):
    return []
  found = []
  for _, controllers, path in lines:
    if controllers and 'memory' not in controllers.split(','):
      continue
    top = root / 'memory' if controllers else root
    # Inside a container the path can be one of the host's, of which only the top is seen.
    inner = top / path.lstrip('/')
    found += [inner, *(parent for parent in inner.parents if parent.is_relative_to(top))]
  return list(dict.fromkeys(found))


def _left(folder):
  """Bytes that a group may still take, None where it has no limit; cached files that nobody uses are given back when needed."""
  for limit, used, idle in (
    ('memory.max', 'memory.current', 'inactive_file'),
    ('memory.limit_in_bytes', 'memory.usage_in_bytes', 'total_inactive_file'),
  ):
    try:
      most, taken = (int((folder / name).read_text()) for name in (limit, used))
      given_back = dict(line.split() for line in (folder / 'memory.stat').read_text().splitlines())
      return max(0, most - taken + int(given_back.get(idle, 0)))
    except (OSError, ValueError):  # not there, or 'max'
      continue
  return None
