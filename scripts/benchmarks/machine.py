"""The machine, as far as it matters to a time, and who else was using it."""

import os
import pathlib
import platform
import re

TICK = os.sysconf('SC_CLK_TCK')


def describe():
  """Processor, cores, memory, kernel: no names and no paths."""
  return {
    'processor': _processor(),
    'cores': len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count(),
    'memory_gb': round(os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30, 1),
    'system': f'{platform.system()} {platform.release().partition("-")[0]} {platform.machine()}',
  }


def _processor():
  """The model's name and its widest vector units; clouds hide the name, so family and model go with it."""
  try:
    text = pathlib.Path('/proc/cpuinfo').read_text()
  except OSError:
    return platform.processor() or platform.machine()

  def field(name):
    found = re.search(rf'^{name}\s*:\s*(.+)$', text, re.MULTILINE)
    return found.group(1).strip() if found else ''

  units = [name for name in ('avx2', 'avx512f', 'avx512_bf16', 'amx_bf16') if name in field('flags').split()]
  return f'{field("model name") or platform.machine()}, family {field("cpu family")} model {field("model")}, {" ".join(units)}'


def busy():
  """CPU seconds that all processes have used, and what the hypervisor took away; None where there is no /proc/stat."""
  try:
    ticks = [int(n) for n in pathlib.Path('/proc/stat').read_text().splitlines()[0].split()[1:9]]
  except OSError:
    return None
  idle, waiting = ticks[3:5]
  return (sum(ticks) - idle - waiting) / TICK


def used_by(pids):
  """CPU seconds of these processes and of those that they have waited for."""
  total = 0.0
  for pid in pids:
    try:
      text = pathlib.Path(f'/proc/{pid}/stat').read_text()
    except OSError:
      continue
    total += sum(int(n) for n in text.rpartition(')')[2].split()[11:15]) / TICK
  return total
