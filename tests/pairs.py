"""Two processes of two devices that meet over loopback, for tests of what several processes do together. None can hang (fork_server.py)."""

import functools
import pathlib
import random
import re
import socket
import tempfile

import tiny_runs as runs

STEPS = 24
TIMEOUT = 100  # seconds that each waits for the other


@functools.cache
def home():
  """A folder for the runs of this process."""
  return pathlib.Path(tempfile.mkdtemp(dir=runs.home()))


def training(workdir, *more):
  """The arguments of train.py for a run that signals can be sent to at chosen places."""
  arg = f'learned,corpus={runs.home() / "corpus"},steps={STEPS},accumulate=2'
  fields = ['--config.checkpoint_every_steps=6', '--config.eval_every_steps=12', '--config.keep_checkpoints=9']
  return ['train.py', f'--config={runs.ROOT}/scripts/studies/kill_points.py:{arg}', f'--workdir={workdir}', *fields, *more]


def free_port():
  """One that nobody listens on, below those that connections are given."""
  while True:
    port = random.randint(20_000, 32_000)
    try:
      socket.create_server(('', port)).close()
    except OSError:
      continue
    return port


def pair(arguments, at=('', ''), second=(), timeout=TIMEOUT):
  """The processes of a pair as fork_server.py wants them.

  Args:
    arguments: of both.
    at: for each of the two where it gets which signals, as SOAK_AT of kill_points.py.
    second: arguments that the second alone has.
    timeout: as --timeout.
  """
  meet = [f'--coordinator=127.0.0.1:{free_port()}', '--process_count=2', f'--timeout={timeout}']
  own, devices = ((), second), {'XLA_FLAGS': '--xla_force_host_platform_device_count=2'}
  return [
    {
      'argv': [*map(str, arguments), *meet, f'--process_index={index}', *own[index]],
      'env': devices | ({'SOAK_AT': at[index]} if at[index] else {}),
    }
    for index in (0, 1)
  ]


def results(pairs):
  """[[(exit code, stdout, stderr) of the first, of the second] of each pair], without empty lines and what gloo says of its connections."""
  found = runs.served(pairs, timeout=240 + 60 * len(pairs))
  return [[(code, re.sub(r'^(.*(peer ranks|\[Gloo\]).*)?\n', '', out, flags=re.M), err) for code, out, err, _ in two] for two in found]
