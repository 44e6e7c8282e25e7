"""Becomes a command that ends when the process that started it does: leash.py PARENT CORES COMMAND...

On Linux the kernel sends SIGTERM when the parent is gone, however it went, so that kill -9 of a sweep leaves no run behind. CORES is a
comma-separated list to pin it to, or ''. A file of its own, as code between fork and exec is not safe in a process with threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PREEMPTED = 75  # pe_jax.errors.Preempted, which would have to be imported


def main(parent, cores, command):
  """Never returns."""
  if sys.platform == 'linux':
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it went before the kernel was told
      sys.exit(PREEMPTED)
    if cores:
      os.sched_setaffinity(0, [int(core) for core in cores.split(',')])
  os.execvp(command[0], command)


if __name__ == '__main__':
  main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
