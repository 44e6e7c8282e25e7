"""Places for processes on this machine: a core each without an accelerator, one GPU each, or one for all TPU chips."""

import dataclasses
import glob
import math
import os
import re

from pe_jax import process


@dataclasses.dataclass(frozen=True)
class Slot:
  """Cores that a process is pinned to (none: not pinned) and the environment variables it gets."""

  cores: tuple[int, ...] = ()
  environment: dict = dataclasses.field(default_factory=dict)


def local(processes=0):
  """The Slots of this machine; `processes`: how many, 0: as many as make sense."""
  gpus, cores = _gpus(), _cores()
  count = processes or len(gpus) or (1 if _has_tpu() else len(cores))
  share = len(cores) // count
  return [Slot(tuple(cores[k * share : (k + 1) * share]), _environment(k, count, gpus)) for k in range(count)]


def _environment(k, count, gpus):
  """The GPU of slot k. Several processes on one must share its memory, of which each would take three quarters."""
  if not gpus:
    return {}
  found, sharing = {'CUDA_VISIBLE_DEVICES': gpus[k % len(gpus)]}, math.ceil(count / len(gpus))
  if sharing > 1 and 'XLA_PYTHON_CLIENT_MEM_FRACTION' not in os.environ:
    found['XLA_PYTHON_CLIENT_MEM_FRACTION'] = f'{0.9 / sharing:.3f}'
  return found


def _cores():
  return sorted(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else list(range(os.cpu_count() or 1))


def _gpus():
  """Names of the NVIDIA GPUs that this process may use, without asking jax, which would take hold of them."""
  if os.environ.get('JAX_PLATFORMS') == 'cpu':
    return []
  if 'CUDA_VISIBLE_DEVICES' in os.environ:
    return [name for name in os.environ['CUDA_VISIBLE_DEVICES'].split(',') if name and name != '-1']
  found = (re.fullmatch(r'/dev/nvidia(\d+)', path) for path in glob.glob('/dev/nvidia[0-9]*'))
  return [str(number) for number in sorted(int(match[1]) for match in found if match)]


def _has_tpu():
  return os.environ.get('JAX_PLATFORMS') != 'cpu' and any(map(glob.glob, process.TPU))
