"""A contestant's process: builds cases and runs them when told to. One JSON object a line comes in, one goes out.

  cd scripts && python -m benchmarks.worker benchmarks.ours

  {"do": "build", "key": k, "case": name, "args": {...}}   imports, compiles and runs once      -> {"facts", "versions"}
  {"do": "warm", "key": k, "turn": seconds}                runs, and settles the calls a turn   -> {"calls"}
  {"do": "memory", "key": k, "times": n}                   extra memory of n calls              -> {"bytes": [...], "how"}
  {"do": "run", "key": k}                                  one turn                             -> {"seconds", "least"} a call
  {"do": "quit"}

A module offers CASES, {name: function of the arguments that returns a Case}, and versions(). Between turns the process waits on stdin and
computes nothing. What libraries print goes to stderr. This file needs only the standard library, since other environments run it too.
"""

import ctypes
import dataclasses
import gc
import importlib
import json
import math
import os
import pathlib
import re
import resource
import sys
import time
import traceback
from collections.abc import Callable

STATUS, RESET = pathlib.Path('/proc/self/status'), pathlib.Path('/proc/self/clear_refs')


class NotThere(Exception):
  """What a case measures has not been written yet."""


@dataclasses.dataclass
class Case:
  """`run` does the work once and waits for it; a float it returns is the seconds. `forget` drops what it keeps for the next call."""

  run: Callable
  facts: dict = dataclasses.field(default_factory=dict)
  forget: Callable = lambda: None
  calls: int = 1


def turn(case):
  """(mean seconds, least seconds) of the calls of one turn."""
  each = []
  for _ in range(case.calls):
    start = time.perf_counter()
    said = case.run()
    each.append(said if isinstance(said, float) else time.perf_counter() - start)
  return sum(each) / len(each), min(each)


def warm(case, seconds):
  """Calls that make a turn last that long at least; 0 seconds: one call, and none is made to see."""
  if not seconds:
    return case.calls
  start = time.perf_counter()
  case.run()
  case.calls = max(1, math.ceil(seconds / (time.perf_counter() - start)))
  return case.calls


def extra_memory(case, times):
  """([bytes that the process grew by at its peak while the case ran], how that is known)."""
  release_at_once()
  case.run()
  how, sizes = 'peak resident size, reset before the call', []
  for _ in range(times):
    case.forget()
    gc.collect()
    release_at_once()
    try:
      RESET.write_text('5')  # the peak begins anew at what is resident now
    except OSError:
      how = 'growth of the largest size so far'
    before = peak() if how.startswith('growth') else kilobytes('VmRSS')
    case.run()
    sizes.append((peak() - before) * 1024)
  return sizes, how


def peak():
  """The largest resident size so far, kilobytes."""
  if STATUS.exists():
    return kilobytes('VmHWM')
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == 'darwin' else 1)


def release_at_once():
  """From here on what is freed goes back to the system, or memory that malloc keeps would hide what a call takes.

  It makes the process slower for good: memory is measured after time. What malloc kept at the ends of its heaps before
  is given back when it is next used, what it kept between other blocks now.
  """
  libc = ctypes.CDLL(None)
  if hasattr(libc, 'malloc_trim'):
    libc.mallopt(-1, 0)  # M_TRIM_THRESHOLD: nothing free is kept at the end of a heap
    libc.mallopt(-3, 2**16)  # M_MMAP_THRESHOLD: from this size on a block is mapped, and unmapped when it is freed
    libc.mallopt(-4, 2**16)  # M_MMAP_MAX: and so many at a time, where the process settings allow none
    libc.malloc_trim(0)


def kilobytes(field):
  """A size from /proc/self/status."""
  return int(re.search(rf'{field}:\s+(\d+)', STATUS.read_text()).group(1))


class Worker:
  """The cases of one process."""

  def __init__(self, module):
    self.module, self.cases = module, {}

  def answer(self, asked):
    """What to say to a request."""
    key = asked['key']
    if asked['do'] == 'build':
      module = importlib.import_module(self.module)
      self.cases[key] = module.CASES[asked['case']](**asked['args'])
      self.cases[key].run()
      return {'facts': self.cases[key].facts, 'versions': module.versions()}
    case = self.cases[key]
    if asked['do'] == 'warm':
      return {'calls': warm(case, asked['turn'])}
    if asked['do'] == 'memory':
      sizes, how = extra_memory(case, asked['times'])
      return {'bytes': sizes, 'how': how}
    mean, least = turn(case)
    return {'seconds': mean, 'least': least}


def serve(module, requests, write):
  """Answers until the requests end. An error is an answer too."""
  worker = Worker(module)
  for line in requests:
    asked = json.loads(line)
    if asked['do'] == 'quit':
      return
    try:
      said = worker.answer(asked)
    except NotThere as error:
      said = {'missing': f'not there: {error}'}
    except ImportError as error:
      traceback.print_exc()
      said = {'missing': f'no peer: {error}'}
    except Exception as error:
      traceback.print_exc()
      said = {'missing': f'failed: {type(error).__name__}: {str(error).strip().splitlines()[0][:200] if str(error).strip() else ""}'}
    write(json.dumps(said) + '\n')


def main():
  """Keeps the real stdout for answers."""
  answers = os.fdopen(os.dup(1), 'w', buffering=1)
  os.dup2(2, 1)
  serve(sys.argv[1], sys.stdin, answers.write)


if __name__ == '__main__':
  # The cases import this file by its name, and must find the same classes there.
  importlib.import_module('benchmarks.worker').main()
