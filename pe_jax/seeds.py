"""Several seeds of one configuration in one process: their states are stacked, and one `vmap` of the step serves all of them.

Each seed is a run like any other (`loop.Loop`) in a folder of its own, with its own start, order of data, log and checkpoints, and has the
numbers of a run alone to rounding: either may go on where the other stopped. A finished seed is left out. Seeds that were stopped at
different steps meet first, while those ahead wait, so that nothing is lost or trained twice. One whose numbers are not finite, or whose
folder another process takes over, ends, and the others go on.
"""

import contextlib
import dataclasses

import jax

from pe_jax import data, encodings, hosts, memory, model, optim, parallel, process, progress, resolve, signals, step, train
from pe_jax import workdir as workdir_lib
from pe_jax.errors import ConfigError, NotFinite, Preempted, WorkdirInUse


def run(config, folders, override=False, caught=None):
  """Trains the config with each seed of {seed: folder}, from where it was left. Returns {seed: final validation loss in nats}.

  `override`, `caught`: as in `train.run`, for all of them.
  """
  configs = {seed: resolve.resolve(seeded(config, seed)) for seed in folders}
  check(config)
  with signals.noted(caught) as caught:
    with hosts.at_once(caught, ', '.join(map(str, folders.values()))):
      done = {seed: train.check(configs[seed], folders[seed], override) for seed in folders}
      losses = {seed: said['validation_loss'] for seed, said in done.items() if said}
      left = [seed for seed in folders if seed not in losses]
      streams = {seed: data.streams(configs[seed]) for seed in left} if len(left) > 1 else {}
      for seed in streams if not override else ():
        workdir_lib.check_data(folders[seed], streams[seed][-1])
    if not streams:
      return losses | {seed: train.run(configs[seed], folders[seed], override, caught) for seed in left}
    return losses | trained(configs, folders, streams, override, caught)


def trained(configs, folders, streams, override, caught):
  """Trains the seeds of {seed: streams} together, with what else is given for each. Returns {seed: final validation loss}."""
  left = list(streams)
  config, devices = configs[left[0]], jax.devices()
  train_step, eval_step = steps_of(config)
  spread = parallel.make(config, train_step, eval_step, devices)
  environment = train.environment(config) | {'seeds_together': left}
  stops = []  # what the loops look at
  with contextlib.ExitStack() as stack, memory.explained(config, len(left)):
    begun = [train.begun(configs[seed], folders[seed], streams[seed], environment, stops, spread, override) for seed in left]
    loops = [stack.enter_context(run) for run in begun]
    if hint := process.hint():
      progress.say(hint)
    together = Together(loops, parallel.stacked(config, train_step, devices))
    return dict(zip(left, together.run(caught, stops), strict=True))


def seeded(config, seed):
  """A copy of the config with that seed."""
  c = config.copy_and_resolve_references()
  c.unlock()
  c.seed = seed
  return c


def check(config):
  """Refuses what takes one seed at a time."""
  alone = 'train one seed at a time, with --config.seed'
  if config.parallel != 'jit':
    raise ConfigError(f"--seeds: seeds are trained together under parallel='jit', and this config has '{config.parallel}' ({alone})")
  if jax.process_count() > 1:
    raise ConfigError(f'--seeds: seeds are trained together in one process, and this is one of {jax.process_count()} ({alone})')


def steps_of(config):
  """(train_step, eval_step) of a config, the same for every seed."""
  enc = encodings.make(config.encoding, model.dims(config))
  return step.make(config, enc, optim.make(config)), step.make_eval(config, enc)


class Together:
  """Loops that are stepped together, each in a lane of its own. A loop's state is the number of its lane from here on."""

  def __init__(self, loops, stacked):
    self.stacked, self.states = stacked, stacked.put_states([loop.state for loop in loops])
    self.loops, self.lanes = loops, range(len(loops))
    for lane, loop in zip(self.lanes, loops):
      loop.state, loop.spread = lane, dataclasses.replace(loop.spread, get_state=lambda lane: stacked.get_state(self.states, lane))
    taken = [int(n) for n in self.states.step]
    for loop, n in zip(loops, taken):
      if min(taken) < n < loop.config.num_train_steps:
        progress.say(f'{loop.folder}: waits at step {n} for the seeds that are behind')

  def run(self, caught, stops):
    """Trains all to the last step and returns their final validation losses. Errors of single lanes are raised together at the end.

    `caught`: the signals that came, as they come; `stops`: those that the loops know of.
    """
    self.asked, self.losses, self.ended = {}, {}, []
    with contextlib.ExitStack() as stack:
      self.steps = [stack.enter_context(contextlib.closing(loop.steps())) for loop in self.loops]
      going, numbers = self.lanes, [None] * len(self.loops)
      while going:
        stops[:] = caught  # once for all, so that all stop at one step
        for lane in going:
          self._send(lane, numbers[lane])
        n = min((n for n, _ in self.asked.values()), default=0)
        going = [lane for lane, (wanted, _) in self.asked.items() if wanted == n]
        if any(isinstance(error, Preempted) for error in self.ended):
          break  # lanes that still wait have taken no step: all that they are is on disk
        if going:
          # Any rows do for a lane that does not go.
          batches = [self.asked[lane if lane in going else going[0]][1] for lane in self.lanes]
          self.states, numbers = self.stacked.step(self.states, batches, [lane in going for lane in self.lanes], n - 1)
    if self.ended:
      # A stop before all else, then a folder that was taken over: the same command goes on, and comes to what was not finite again.
      first = next(error for kind in (Preempted, WorkdirInUse, NotFinite) for error in self.ended if isinstance(error, kind))
      raise type(first)('; '.join(map(str, self.ended))) from first
    return [self.losses[lane] for lane in self.lanes]

  def _send(self, lane, numbers):
    """Hands a lane the numbers of its step, and takes what it asks for next."""
    try:
      self.asked[lane] = self.steps[lane].send(numbers)
    except StopIteration as end:
      self.losses[lane] = end.value
      self.asked.pop(lane, None)
    except (NotFinite, Preempted, WorkdirInUse) as error:
      self.ended.append(error)
      self.asked.pop(lane, None)
      if self.asked and not isinstance(error, Preempted):
        progress.say(f'{error}; the other seeds go on')
