"""The token of a workdir's writer, for places where locks do not hold: drives mounted over a network, buckets.

Every start writes a new token into OWNER, and reads it again before each checkpoint: who finds another's there ends without writing
(exit code 5). So of two writers that no lock keeps apart the later one goes on, and the earlier one stops at its next checkpoint; what it
had written until then is what the later one would have written, bit for bit. Where LOCK holds nobody gets this far.
"""

import fcntl
import json
import os
import platform
import time
import uuid

from pe_jax import remote
from pe_jax import workdir as workdir_lib
from pe_jax.errors import WorkdirInUse

SETTLE = 2.0  # seconds after which simultaneous starts can see which token stayed


def claim(folder, settle=SETTLE):
  """Makes this process the writer of a folder whose LOCK it has; returns a function that raises WorkdirInUse once it is not any more."""
  path, token = remote.path(folder) / 'OWNER', uuid.uuid4().hex
  workdir_lib.write_json(path, {'token': token, 'process': os.getpid(), 'host': platform.node()})

  def still_mine():
    try:
      now = json.loads(path.read_text())
    except (OSError, ValueError):
      now = {}
    if now.get('token') != token:
      who = f'process {now["process"]} on {now["host"]}' if {'process', 'host'} <= now.keys() else 'another process, and OWNER is gone'
      raise WorkdirInUse(f'{folder}: taken over by {who} (this one stops and writes nothing more; let only one train there)')

  if not locks_hold(folder):
    time.sleep(settle)
    still_mine()
  return still_mine


def claim_for_all(folder):
  """The same of several processes: the first claims the folder, and what is returned asks it and raises in all, who must ask together."""
  from pe_jax import hosts  # jax takes a second to import

  with hosts.together():
    mine = claim(folder) if hosts.is_first() else None
  hosts.see(remote.path(folder) / 'OWNER')

  def still_mine():
    with hosts.together():
      if hosts.is_first():
        mine()

  return still_mine


def locks_hold(folder):
  """Whether a second lock on LOCK is refused, as it must be while this process has the first. In a bucket there is none."""
  if remote.is_remote(folder):
    return False
  try:
    with (remote.path(folder) / 'LOCK').open() as handle:
      fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
      return False
  except BlockingIOError:
    return True
  except OSError:
    return False
