"""Several processes that train or evaluate one run together, such as one on each host of a TPU pod: all that knows which of them this is.

Every process runs the same command and sees the same folder. Process 0 alone writes logs and files; checkpoints are written by all. What
one of them cannot do ends all of them (`together`, `bound`), what must be the same is compared (`agree`), and a signal to one stops all of
them at the same step (`Stop`). With one process everything here does nothing.
"""

import contextlib
import json
import os
import re
import signal
import sys
import time
import traceback

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from pe_jax import config as config_lib
from pe_jax import errors, signals
from pe_jax.errors import ConfigError, NotFinite, Preempted, UserError

# Words of gloo (CPUs), NCCL (GPUs) and the coordination service, which every backend has.
GONE = re.compile(
  r'(closed|reset) by peer|broken pipe|connection refused|remote process exited|network error|heartbeat|coordination (service|agent)'
  r'|(read|write|recv|send|connect|barrier|collective|operation)\w* timed? ?out|barrier failed|task .* (is|was) (dead|unhealthy)'
  r'|gloo context initialization failed',
  re.IGNORECASE,
)
OWN = re.compile(r'(RESOURCE_EXHAUSTED|INVALID_ARGUMENT|UNIMPLEMENTED|OUT_OF_RANGE|NOT_FOUND|PERMISSION_DENIED)\b')


def is_first():
  """Whether this process is the one that writes and speaks."""
  return jax.process_index() == 0


def place(tree, sharding):
  """Arrays that every process holds whole, laid out over the devices of all; each process copies what its own devices need."""
  if jax.process_count() == 1:
    return jax.device_put(tree, sharding)

  def one(x):
    x = np.asarray(x)
    return jax.make_array_from_callback(x.shape, sharding, lambda index: np.asarray(x[index]))

  return jax.tree.map(one, tree)


def shared(tree):
  """Arrays as checkpoints of several processes take them: laid out over the devices of all, whole everywhere if they were not yet."""
  if jax.process_count() == 1:
    return tree
  return jax.tree.map(lambda x: place(x, NamedSharding(_all_devices(), P())) if x.is_fully_addressable else x, tree)


def _all_devices():
  return jax.make_mesh((jax.device_count(),), ('all',), axis_types=(AxisType.Auto,))


def own_rows(batch):
  """This process's share of the rows of a batch that every process holds whole."""
  count, index = jax.process_count(), jax.process_index()
  return jax.tree.map(lambda x: x[len(x) // count * index : len(x) // count * (index + 1)], batch)


def settled(tree):
  """The arrays, once they are computed. Accelerators keep the order of their programs, and nothing is waited for there.

  On CPUs programs of several processes must not be under way at once: they share one channel to the other process (gloo's, which knows no
  tags), would take each other's messages and wait for ever. Nor those of several devices of one process: with few cores each device may be
  in another program, waiting for the others, until XLA ends the process after 40 seconds.
  """
  return jax.block_until_ready(tree) if _one_at_a_time() else tree


def settling(function):
  """A compiled function whose results are `settled`; itself in one process, whose steps wait for one another."""
  return (lambda *args: settled(function(*args))) if jax.process_count() > 1 and _one_at_a_time() else function


def _one_at_a_time():
  return jax.device_count() > 1 and jax.default_backend() == 'cpu'


def fetch(tree):
  """Arrays as numpy, whole, in every process. All processes must ask for it."""
  if jax.process_count() == 1:
    return jax.device_get(tree)

  def one(x):
    here = not isinstance(x, jax.Array) or x.is_fully_addressable or x.is_fully_replicated
    return np.asarray(x) if here else multihost_utils.process_allgather(x, tiled=True)

  return jax.tree.map(one, tree)


def all_rows(batch):
  """The rows of a whole batch as numpy, of which every process holds its share. All processes must ask for it."""
  return batch if jax.process_count() == 1 else multihost_utils.process_allgather(batch, tiled=True)


def gathered(tree):
  """What each process gives, in order of their numbers: anything that JSON can hold."""
  if jax.process_count() == 1:
    return [tree]
  data = np.frombuffer(json.dumps(tree, sort_keys=True).encode(), np.uint8)
  sizes = multihost_utils.process_allgather(np.int32(len(data)))
  padded = multihost_utils.process_allgather(np.pad(data, (0, int(sizes.max()) - len(data))))
  return [json.loads(row[:size].tobytes()) for row, size in zip(padded, sizes, strict=True)]


def agree(facts, way_out):
  """Refuses to go on with processes that differ in a dict of facts, and shows in what."""
  given = gathered(facts)
  for index, other in enumerate(given):
    if lines := config_lib.diff(given[0], other):
      raise _everywhere(ConfigError(f'process_index: {index} differs from 0 ({way_out}):\n  ' + '\n  '.join(lines[:20])))


@contextlib.contextmanager
def together(also=UserError):
  """A user's error in one process ends all with its sentence and exit code, and nobody goes on before all are here.

  `also`: another type of errors that are raised in all if one has raised them.
  """
  _check_known()
  error = None
  try:
    yield
  except (UserError, also) as raised:
    if jax.process_count() == 1:
      raise
    error = raised
  said = gathered(error and [getattr(error, 'exit_code', 0), str(error)])
  if error:
    raise _everywhere(error)
  for index, one in enumerate(said):
    if one:
      raise _everywhere((errors.of_code(one[0]) if one[0] else also)(f'process {index}: {one[1]}'))


@contextlib.contextmanager
def at_once(caught, folder):
  """`signals.at_once`. Of several processes none ends before all know of the signal, at the end of this."""
  if jax.process_count() == 1:
    with signals.at_once(caught, folder):
      yield
    return
  yield
  signals.before_begun([name for name in gathered(caught[0] if caught else None) if name], folder)


def _everywhere(error):
  """The error, marked as one that all processes raise here, so that they can end in order."""
  error.everywhere = True
  return error


def see(path, seconds=60):
  """Refuses folders that only have one name: what process 0 reads there all must read. A network's disk may take a while to show it."""
  if jax.process_count() == 1:
    return
  text = gathered(path.read_text() if is_first() else None)[0]
  with together():
    end = time.monotonic() + seconds
    while not (path.exists() and path.read_text() == text):
      if time.monotonic() > end:
        raise ConfigError(f'workdir: {path} was written by process 0 and is not seen here (all need one folder: gs://… or a shared disk)')
      time.sleep(0.1)


def _check_known():
  if jax.process_count() > 1 and not jax.distributed.is_initialized():
    raise ConfigError(
      f'--coordinator: this is one of {jax.process_count()} hosts of a pod, and they have not been introduced to each other '
      '(run it on all of them with --coordinator=auto)'
    )


@contextlib.contextmanager
def bound(folder):
  """What only this process runs into ends it at once. The others would wait for it, and threads that save here would wait for them."""
  try:
    yield
  except (Preempted, NotFinite):  # all processes raise these at the same step
    raise
  except Exception as error:
    if jax.process_count() == 1 or getattr(error, 'everywhere', False):
      raise
    _end(folder, error)


@contextlib.contextmanager
def forsaken(folder):
  """A process whose peer is gone gets an error out of the next thing they do together, and ends here with exit code 75."""
  try:
    yield
  except Exception as error:
    if jax.process_count() == 1 or not gone(error):
      raise
    _end(folder, error)


def _end(folder, error):
  sys.stdout.flush()
  print(_last_words(folder, error), file=sys.stderr, flush=True)
  os._exit(_code(error))


def _code(error):
  if gone(error):
    return Preempted.exit_code
  return error.exit_code if isinstance(error, UserError) else 1


def _last_words(folder, error):
  if said := gone(error):
    return (
      f'ERROR: {folder}: process {jax.process_index()} of {jax.process_count()} ends, for another one is gone: {said} '
      '(the same command on all goes on from the newest checkpoint)'
    )
  return f'ERROR: {error}' if isinstance(error, UserError) else ''.join(traceback.format_exception(error)).rstrip()


def gone(error):
  """What a collective or jax's coordination service says of a process that is gone, in a line; '' for every other error.

  Other errors of the same type (memory, arguments, a fault of the program) are this process's own. A checkpoint that cannot be written
  because another process is gone carries that as its cause.
  """
  while error is not None:
    said = ' '.join(str(error).split())
    if isinstance(error, jax.errors.JaxRuntimeError) and GONE.search(said) and not OWN.match(said):
      return said[:200]
    error = error.__cause__
  return ''


class Stop:
  """The signal that stops the run, or None; each process asks once a step.

  With several processes a signal to any of them is known to all one step after it came, at the same step: the question of a step is
  answered at the next, so that nobody waits for an answer while devices could work. `now` waits for the answer.
  """

  def __init__(self, caught):
    self._caught, self._asked = caught, None
    if jax.process_count() > 1:
      grid = _all_devices()
      self._rows = NamedSharding(grid, P('all'))
      self._largest = jax.jit(lambda numbers: numbers.max(), out_shardings=NamedSharding(grid, P()))

  def now(self):
    """The signal that any process has got by now."""
    return next(filter(None, gathered(self._caught[0] if self._caught else None)), None)

  def __call__(self):
    mine = self._caught[0] if self._caught else None
    if jax.process_count() == 1:
      return mine
    number = signal.Signals[mine].value if mine else 0
    before, local = self._asked, np.full(jax.local_device_count(), number, np.int32)
    self._asked = settled(self._largest(jax.make_array_from_process_local_data(self._rows, local)))
    number = 0 if before is None else int(before)
    return signal.Signals(number).name if number else None
