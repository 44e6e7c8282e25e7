"""Contestants in processes of their own take turns.

Only one computes at a time. In every round each has one turn, every second round in the opposite order, with a float32 1024 x 1024 x 1024
matmul among them that shows how fast the machine was. Ratios are taken within rounds (verdict.py), since this kind of machine changes its
speed from minute to minute. Nothing is dropped: what has to warm up does so before the first round.
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time

from benchmarks import machine
from benchmarks.plan import Contestant, Measured
from pe_jax import process, progress

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent
PROBE = Contestant('probe', 'ours', 'matmul')
PATIENCE = 900  # seconds for one answer
MEMORY_TIMES = 2


class Ended(Exception):
  """A worker is gone, and why."""


class Handle:
  """The driver's end of one worker process."""

  def __init__(self, module, settings, python, folder):
    self.log = tempfile.NamedTemporaryFile('w+', dir=folder, suffix='.log', delete=False)  # noqa: SIM115  # closed in `close`
    command = [python, '-m', 'benchmarks.worker', f'benchmarks.{module}']
    self.process = subprocess.Popen(
      command,
      cwd=SCRIPTS,
      env=environment(module, settings),
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=self.log,
      text=True,
    )

  def ask(self, **request):
    """The answer to a request."""
    try:
      self.process.stdin.write(json.dumps(request) + '\n')
      self.process.stdin.flush()
    except OSError:
      raise Ended(self.last_words()) from None
    if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
      self.process.kill()
      raise Ended(f'failed: no answer in {PATIENCE} s')
    line = self.process.stdout.readline()
    if not line:
      raise Ended(self.last_words())
    answer = json.loads(line)
    if 'missing' in answer:
      raise Ended(answer['missing'])
    return answer

  def last_words(self):
    """Why the process ended."""
    code = self.process.wait()
    said = [line for line in pathlib.Path(self.log.name).read_text(errors='replace').splitlines() if line.strip()]
    return f'failed: ended with {code}' + (f', {said[-1].strip()[:200]}' if said else '')

  def close(self):
    """Ends the process: at the end of stdin it leaves by itself."""
    with contextlib.suppress(OSError):
      self.process.stdin.close()
    try:
      self.process.wait(10)
    except subprocess.TimeoutExpired:
      self.process.kill()
      self.process.wait()
    self.process.stdout.close()
    self.log.close()


def environment(module, settings):
  """A worker's environment. Everything runs on the CPU, where the peers are."""
  if settings == 'same':
    env = process.MALLOC | process.child_environment()  # also where there is an accelerator, which is not used
    if module == 'nanodo' and env.get('PE_JAX_CPU_OPTIONS') != 'off':  # its own jit takes no options
      flags = ' '.join(f'--{name}={value}' for name, value in process.CPU_OPTIONS.items())
      env['XLA_FLAGS'] = f'{env.get("XLA_FLAGS", "")} {flags}'.strip()
  else:
    env = {name: value for name, value in os.environ.items() if name not in process.MALLOC}
  return env | {'JAX_PLATFORMS': 'cpu', 'HF_HUB_OFFLINE': '1', 'PYTHONUNBUFFERED': '1'}


class Bench:
  """Runs groups. Holds the interpreters and the probe, which lives as long as the benchmark."""

  def __init__(self, peers, folder):
    self.peers, self.folder, self.versions = peers, folder, {}
    self.probe = Handle(PROBE.module, PROBE.settings, sys.executable, folder)
    self.probe_facts = self.build(self.probe, PROBE)
    self.probe.ask(do='warm', key=PROBE.name, turn=0.1)

  def close(self):
    """Ends the probe."""
    self.probe.close()

  def measure(self, group, rounds):
    """The Measured of a group, with what is missing in it."""
    measured = Measured({}, {}, {PROBE.name: self.probe_facts})
    with contextlib.ExitStack() as stack:
      handles = self._start(group, measured, stack)
      live = [c for c in group.contestants if c.name in handles]
      self._in_parallel(handles, live, measured)
      for c in live:
        if c.name not in measured.missing:
          self._attempt(measured, c, lambda c=c: handles[c.name].ask(do='warm', key=c.name, turn=group.turn))
      self._rounds(handles, live, measured, group.rounds or rounds)
      for c in live:
        if c.memory and c.name not in measured.missing:
          self._attempt(measured, c, lambda c=c: self._memory(handles[c.name], c, measured))
    return measured

  def build(self, handle, contestant):
    """Imports and compiles; returns the case's facts."""
    said = handle.ask(do='build', key=contestant.name, case=contestant.case, args=contestant.args)
    self.versions |= said['versions']
    return said['facts']

  def _start(self, group, measured, stack):
    """{contestant: its worker}."""
    shared, handles = {}, {}
    for c in group.contestants:
      python = self.peers if c.module == 'torch_peers' else sys.executable
      if python is None:
        measured.missing[c.name] = 'no peer'
        continue
      key = c.process or c.name
      if key not in shared:
        shared[key] = Handle(c.module, c.settings, python, self.folder)
        stack.callback(shared[key].close)
      handles[c.name] = shared[key]
    return handles

  def _in_parallel(self, handles, live, measured):
    """Builds on all cores: nothing is measured meanwhile. Cases of one process are built one after the other."""

    def all_of(handle):
      for c in live:
        if handles[c.name] is handle:
          self._attempt(measured, c, lambda c=c: measured.facts.update({c.name: self.build(handle, c)}))

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
      list(pool.map(all_of, dict.fromkeys(handles.values())))

  def _attempt(self, measured, contestant, action):
    try:
      action()
    except Ended as error:
      measured.missing[contestant.name] = str(error)
      progress.say(f'  {contestant.name}: {error}')

  def _memory(self, handle, c, measured):
    answer = handle.ask(do='memory', key=c.name, times=MEMORY_TIMES)
    measured.memory[c.name] = answer['bytes']
    measured.facts[c.name]['memory'] = answer['how']

  def _rounds(self, handles, live, measured, rounds):
    handles = handles | {PROBE.name: self.probe}
    live = [PROBE] + [c for c in live if c.name not in measured.missing]
    measured.seconds = {c.name: [] for c in live}
    pids = [os.getpid(), *{h.process.pid for h in handles.values()}]
    clock, busy, own = time.monotonic(), machine.busy(), machine.used_by(pids)
    for n in range(rounds):
      for c in live if n % 2 == 0 else live[::-1]:
        if c.name not in measured.missing:
          self._attempt(measured, c, lambda c=c: measured.seconds[c.name].append(self._turn(handles[c.name], c)))
    clock = time.monotonic() - clock
    if busy is not None and clock > 0:
      measured.others = max(0.0, (machine.busy() - busy - (machine.used_by(pids) - own)) / clock)

  def _turn(self, handle, c):
    said = handle.ask(do='run', key=c.name)
    return said['least'] if c is PROBE else said['seconds']  # of the probe the fastest call, for the peak is looked for
