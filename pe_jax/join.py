"""Makes this process one of several that run the same command together: flags or environment, and one line when somebody is missing.

  train.py … --coordinator=10.0.0.2:8476 --process_count=4 --process_index=0      on each host, with its own index
  train.py … --coordinator=auto                                                   TPU pods, Slurm (srun), Open MPI: all is found out

Processes of GKE's TPU pods are told of each other in their environment, and join without being asked.

A start that scripts/again.sh has made after another ends with 75 in that place, for the others may still be ending: they need up to the
timeout to see that somebody died, and start anew after that.
"""

import os
import re
import socket
import sys
import threading
import time

from absl import flags

from pe_jax import again
from pe_jax.errors import ConfigError, Preempted

COORDINATOR = flags.DEFINE_string(
  'coordinator',
  None,
  "HOST:PORT of process 0, where the processes of one run meet; 'auto' on TPU pods and under srun or mpirun; '': one process. "
  'Default: $PE_JAX_COORDINATOR.',
)
PROCESS_COUNT = flags.DEFINE_string('process_count', None, 'Processes of the run. Default: $PE_JAX_PROCESS_COUNT.')
PROCESS_INDEX = flags.DEFINE_string('process_index', None, 'Which of them this is, from 0. Default: $PE_JAX_PROCESS_INDEX.')
TIMEOUT = flags.DEFINE_integer(
  'timeout', 180, 'Seconds to wait for the other processes at the start, and for a sign of life of each later.', lower_bound=1
)

# What jax's service says to a process whose predecessor it still counts as alive.
STILL_THERE = re.compile('different incarnation|likely restarted')


def from_flags():
  """Joins if flags or environment ask for it."""
  given = asked(COORDINATOR.value, PROCESS_COUNT.value, PROCESS_INDEX.value)
  if given is not None:
    join(*given, TIMEOUT.value)


def asked(*flag_values):
  """(coordinator, count, index) of the flags' values or else the environment; None where an empty coordinator asks for one process."""
  names = ('COORDINATOR', 'PROCESS_COUNT', 'PROCESS_INDEX')
  given = [os.environ.get(f'PE_JAX_{name}') if value is None else value for name, value in zip(names, flag_values, strict=True)]
  return None if given[0] == '' else tuple(value or '' for value in given)


def join(coordinator='', count='', index='', timeout=180):
  """Meets the other processes; must run before anything is computed.

  Errors, within the timeout: ConfigError if they don't come; Preempted if they are still those of the run before, or may be, as this is a
  start after another.
  """
  if not coordinator and not count and not index:
    if not _host_of_a_pod():
      return
    coordinator = 'auto'
  if coordinator == 'auto':
    _initialize(timeout, "--coordinator: 'auto' found nobody", 'a TPU pod, srun or mpirun says who they are; elsewhere give HOST:PORT')
    return
  count, index = _whole('process_count', count), _whole('process_index', index)
  if not 0 <= index < count:
    raise ConfigError(f'--process_index: {index} is not one of {count} processes (0 to {count - 1})')
  host, colon, port = coordinator.rpartition(':')
  if not (host and colon and port.isdigit() and 0 < int(port) < 65536):
    raise ConfigError(f"--coordinator: '{coordinator}' is not HOST:PORT (as in 10.0.0.2:8476, of the host of process 0)")
  (_check_port if index == 0 else _wait_for)(coordinator, host.strip('[]'), int(port), timeout)
  _initialize(
    timeout,
    f'--process_count: {count} processes were to meet at {coordinator}, and not all came within {timeout} s',
    'start one for each index from 0, with the same --coordinator and --process_count',
    coordinator_address=coordinator,
    num_processes=count,
    process_id=index,
    cluster_detection_method='deactivate',
  )


def _host_of_a_pod():
  """Whether the environment lists several hosts of a TPU pod, as GKE's does."""
  return any(',' in os.environ.get(name, '') for name in ('TPU_PROCESS_ADDRESSES', 'TPU_WORKER_HOSTNAMES'))


def _whole(name, text):
  if text == '':
    raise ConfigError(f'--{name}: missing (--coordinator, --process_count and --process_index belong together)')
  if not text.isdecimal():
    raise ConfigError(f"--{name}: '{text}' is not a whole number from 0")
  return int(text)


def _check_port(coordinator, host, port, timeout):
  """Process 0 listens there, so the port must be free."""
  del host, timeout
  try:
    socket.create_server(('', port)).close()
  except OSError as error:
    raise ConfigError(f'--coordinator: process 0 cannot listen on port {port} of {coordinator}: {error.strerror} (take another)') from None


def _wait_for(coordinator, host, port, timeout):
  """Until process 0 answers. Looked at here, since jax would end the process with pages of its own."""
  end = time.monotonic() + timeout
  while True:
    try:
      socket.create_connection((host, port), timeout=max(0.1, end - time.monotonic())).close()
      return
    except OSError as error:
      if time.monotonic() > end:
        raise missing(
          f'--coordinator: nobody answers at {coordinator} within {timeout} s: {error.strerror or error}',
          'process 0 must run there and the port be open to this host',
        ) from None
    time.sleep(0.2)


def missing(what, way_out, said=''):
  """The error of who has not met the others. `said`: what jax says of it."""
  told = f'{what}: {said}' if said else what
  if STILL_THERE.search(said):
    return Preempted(f'{told} (the others are still those of the run before, and end within their --timeout: the same command again)')
  if again.is_again():
    return Preempted(f'{told} (this was started again, and the others may still be ending: the same command again; or else {way_out})')
  return ConfigError(f'{told} ({way_out})')


def _initialize(timeout, what, way_out, **known):
  import jax

  def give_up():
    error = missing(what, way_out)
    print(f'ERROR: {error}', file=sys.stderr, flush=True)
    os._exit(error.exit_code)

  # jax would listen for SIGTERM by itself and let nothing else happen; training has a handler of its own, everything else shall end.
  jax.config.update('jax_enable_preemption_service', False)
  # jax would abort the process when its own time is up, with pages and no exception, so it gets more time than this clock.
  clock = threading.Timer(timeout, give_up)
  clock.daemon = True
  clock.start()
  try:
    jax.distributed.initialize(
      initialization_timeout=timeout + 60, heartbeat_timeout_seconds=timeout, shutdown_timeout_seconds=timeout, **known
    )
    jax.devices()  # here the processes tell each other what devices they have
  except Exception as error:  # jax raises a RuntimeError, a ValueError or what the detected cluster's own look-up raises
    said = ' '.join(str(error).split())[:200]
    raise missing(what, way_out, said) from error
  finally:
    clock.cancel()
