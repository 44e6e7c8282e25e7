"""Tasks run as processes, as many at a time as there are slots; one that fails, hangs or is killed touches no other.

What an exit code means: 0 on to the next command; 75, SIGTERM and SIGINT again, some times; 5 somebody else has it, looked at again once
that one is quiet, and left to it after some times; anything else is a failure, with the line that says why. A process that gives no sign of
progress for too long is stopped, and killed if it will not stop.
"""

import collections
import contextlib
import dataclasses
import math
import signal
import threading
import time

from pe_jax import progress
from pe_jax.errors import Preempted, UserError, WorkdirInUse
from pe_jax.sweep import child
from pe_jax.sweep.child import Child

AGAIN = (Preempted.exit_code, -signal.SIGTERM, -signal.SIGINT)
LOOK = 2.0  # seconds between looks at a task that another process holds
QUIET = 60.0  # seconds without a sign of progress after which a task that another process took is tried again
TAKEN = 3  # times that another process may take a task before it is left to that one; without locks two pools could go on so for ever


@dataclasses.dataclass(frozen=True)
class Limits:
  """Attributes:
  stall: seconds without a sign of progress after which a process is stopped.
  grace: seconds from being asked to stop to being killed.
  again: how often a task is started again after it was stopped by a signal.
  """

  stall: float = 1800.0
  grace: float = 60.0
  again: int = 20


class Task:
  """What a pool asks of what it runs. A subclass has `name`, `folder` and `next`."""

  @property
  def log(self):
    """The file that gets what its processes print."""
    return self.folder / 'log.txt'

  @property
  def watched(self):
    """Files whose change is a sign of progress."""
    return [self.log, self.folder / 'metrics.jsonl']

  def next(self, last):
    """The command to run now, None when nothing is left; `last`: the one that has just ended with 0, if any."""
    raise NotImplementedError

  def held(self):
    """Whether another process works on it."""
    return False

  def verdict(self, since):
    """A Failure that stands, so that it is not started: one that would come again, or that somebody else found after `since`."""
    del since

  def started(self):
    """Told before a process starts."""

  def failed(self, code, reason):
    """Told when it has failed."""


@dataclasses.dataclass
class Work:
  """A process, the task it is for and the slot it is in; `reason` and `killed_at` once it has been asked to stop."""

  task: object
  child: Child
  slot: object
  reason: str = ''
  killed_at: float = math.inf


@dataclasses.dataclass(frozen=True)
class Failure:
  """How a task ended."""

  code: int
  reason: str


class Pool:
  """Use it as a context: on the way out every process that still runs is stopped and waited for.

  Attributes:
    waiting, held: {name: task}.
    left: {name: task} of what another process took again and again, and is not looked at any more.
    running: {name: Work}.
    finished: {name: task}, failed: {name: Failure}.
  """

  def __init__(self, slots, limits=None):
    self._free, self.limits = list(slots), limits or Limits()
    self.waiting, self.held, self.running, self.finished, self.failed = {}, {}, {}, {}, {}
    self.left, self._taken = {}, collections.Counter()
    self._last, self._again, self._look, self._began = {}, collections.Counter(), 0.0, time.time()
    self._caught, self._handlers = [], {}

  def __enter__(self):
    """From here on SIGINT and SIGTERM end the next `step` with Preempted."""
    if threading.current_thread() is threading.main_thread():
      self._handlers = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
    return self

  def __exit__(self, *error):
    self.stop()
    for number, handler in self._handlers.items():
      signal.signal(number, handler)

  def _note(self, number, frame):
    del frame
    self._caught.append(signal.Signals(number).name)

  @property
  def busy(self):
    """Whether there is anything to wait for."""
    return bool(self.waiting or self.running or self.held)

  def add(self, task):
    """Queues a task."""
    self.waiting[task.name] = task

  def step(self):
    """Looks at every process once and starts what there is room for. Returns whether a process has ended or a task was settled."""
    if self._caught:
      raise Preempted(f'stopped by {self._caught[0]} (the same command goes on from here)')
    before = len(self.finished) + len(self.failed)
    ended = [(name, work, code) for name, work in self.running.items() if (code := work.child.poll()) is not None]
    for name, work, code in ended:
      del self.running[name]
      self._free.append(work.slot)
      self._ended(work, code)
    for work in self.running.values():
      self._watch(work)
    self._take_back()
    while self._free and self.waiting:
      self._start(self.waiting.pop(next(iter(self.waiting))))
    return bool(ended) or len(self.finished) + len(self.failed) > before

  def _start(self, task):
    try:
      last = self._last.pop(task.name, None)
      command = task.next(last)
      if command is None:
        self.finished[task.name] = task
      elif command == last:
        self._fail(task, 0, 'ended with exit code 0 and left nothing done')
      elif task.held():
        self.held[task.name] = task
      elif failure := task.verdict(self._began):
        self.failed[task.name] = failure
      else:
        task.started()
        slot = self._free[0]
        self.running[task.name] = Work(task, Child(command, task.log, slot.cores, slot.environment), slot)
        self._free.pop(0)
    except (UserError, OSError) as error:  # such as a full disk: this one's trouble alone
      self._fail(task, getattr(error, 'exit_code', 1), str(error))

  def _ended(self, work, code):
    task, name = work.task, work.task.name
    if work.reason:
      self._fail(task, code, work.reason)
    elif code == 0:
      self._last[name] = work.child.command
      self.waiting = {name: task, **self.waiting}
    elif code in AGAIN:
      self._again[name] += 1
      if self._again[name] > self.limits.again:
        self._fail(task, code, f'stopped by a signal {self._again[name]} times')
      else:
        self.waiting[name] = task
    elif code == WorkdirInUse.exit_code:
      self._taken[name] += 1
      (self.held if self._taken[name] < TAKEN else self.left)[name] = task
    else:
      self._fail(task, code, child.reason(code, work.child.said()))

  def _fail(self, task, code, reason):
    self.failed[task.name] = Failure(code, reason)
    with contextlib.suppress(UserError, OSError):  # where its folder cannot be written, it is at least in the table
      task.failed(code, reason)

  def _watch(self, work):
    now = time.time()
    if not work.reason and now - _sign(work.task, work.child.started) > self.limits.stall:
      work.reason = f'no sign of progress for {self.limits.stall:.0f} s, so it was stopped (--stall_minutes gives it longer)'
      work.killed_at = now + self.limits.grace
      work.child.stop()
    elif now > work.killed_at:
      work.child.kill()

  def _take_back(self):
    """Queues what another process has let go of. One that took it where locks do not hold shows that it lives by what it writes alone."""
    if self.held and time.monotonic() > self._look:
      self._look = time.monotonic() + LOOK
      for name, task in list(self.held.items()):
        if not task.held() and not (self._taken[name] and time.time() - _sign(task) < QUIET):
          self.waiting[name] = self.held.pop(name)

  def stop(self):
    """Asks every process to save and end, and waits for it; one that does not is killed, all of them at a second signal."""
    asked, signals = time.monotonic(), len(self._caught)
    if self.running:
      progress.say(f'stopping {len(self.running)} processes, which save what they have (a second signal ends them at once)')
    for work in self.running.values():
      work.child.stop()
    while any(work.child.poll() is None for work in self.running.values()):
      if time.monotonic() - asked > self.limits.grace or len(self._caught) > signals:
        for work in self.running.values():
          work.child.kill()
      time.sleep(0.05)
    for name, work in self.running.items():
      self.waiting[name] = work.task
      self._free.append(work.slot)
    self.running = {}


def _sign(task, since=0.0):
  """When it last showed progress, in seconds since 1970."""
  for path in task.watched:
    with contextlib.suppress(OSError):
      since = max(since, path.stat().st_mtime)
  return since
