"""The token of a workdir's writer, for places where locks do not hold: drives mounted over a network, buckets.

Every start writes a new token into OWNER, and reads it again before each checkpoint and each row of a log: who finds another's there
writes nothing more and ends at its next checkpoint (exit code 5). So of two writers that no lock keeps apart the later one goes on, and the
earlier one stops; what it had written until then is what the later one would have written, bit for bit. Where LOCK holds nobody gets this
far.
"""

import dataclasses
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
  """Makes this process the writer of a folder whose LOCK it has; returns a function that raises WorkdirInUse once it is not any more.

  Whoever was told so once is told so for ever: a row that was not written then is missing in the log.
  """
  path, token, lost = remote.path(folder) / 'OWNER', uuid.uuid4().hex, []
  workdir_lib.write_json(path, {'token': token, 'process': os.getpid(), 'host': platform.node()})

  def still_mine():
    try:
      now = json.loads(path.read_text())
    except (OSError, ValueError):
      now = {}
    if now.get('token') != token:
      who = f'process {now["process"]} on {now["host"]}' if {'process', 'host'} <= now.keys() else 'another process, and OWNER is gone'
      lost.append(f'{folder}: taken over by {who} (this one stops and writes nothing more; let only one train there)')
    if lost:
      raise WorkdirInUse(lost[0])

  if not locks_hold(folder):
    time.sleep(settle)
    still_mine()
  return still_mine


@dataclasses.dataclass(frozen=True)
class Writer:
  """The hold of a run's processes on its folder, which the first of them has claimed; `claimed` is what `claim` returned there."""

  claimed: object

  def __call__(self):
    """Raises WorkdirInUse in all once the folder is another's; all must ask together."""
    from pe_jax import hosts  # jax takes a second to import

    with hosts.together():
      self.claimed()

  def holds(self):
    """Whether the folder is still theirs, for the first to ask by itself."""
    try:
      self.claimed()
    except WorkdirInUse:
      return False
    return True


def claim_for_all(folder):
  """The Writer of a folder, of one process or several."""
  from pe_jax import hosts  # jax takes a second to import

  with hosts.together():
    claimed = claim(folder) if hosts.is_first() else lambda: None
  hosts.see(remote.path(folder) / 'OWNER')
  return Writer(claimed)


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
