"""The training loop: dispatch step n, read the numbers of step n - 1, save, stop cleanly, go on exactly.

Started again with the same config in the same workdir it continues from the newest checkpoint, and ends with the same bits as a run that
was never interrupted (on the same machine and versions; env.json says which).
"""

import contextlib
import dataclasses
import hashlib
import math
import pathlib
import signal
import time

import jax
import numpy as np

from pe_jax import (
  attention,
  checkpoint,
  data,
  encodings,
  flops,
  init_from,
  metrics,
  model,
  optim,
  parallel,
  process,
  progress,
  resolve,
  step,
)
from pe_jax import workdir as workdir_lib
from pe_jax.errors import NotFinite, Preempted
from pe_jax.evaluate import score


def run(config, workdir):
  """Trains the config in the workdir, from where it was left. Returns the final validation loss in nats."""
  config = resolve.resolve(config)
  if done := check(config, workdir):
    return done['validation_loss']
  streams = data.streams(config, jax.process_index(), jax.process_count())
  workdir_lib.check_data(workdir, streams[-1])
  if hint := process.hint():
    progress.say(hint)
  with stop_signals() as caught, begun(config, workdir, streams, environment(config), caught) as loop:
    return loop.run()


def check(config, workdir):
  """Refuses a run that cannot go on here, and creates nothing. Returns what DONE says of one that is finished, None otherwise."""
  workdir_lib.check_config(workdir, config)
  if done := workdir_lib.finished(workdir):
    progress.say(f'{workdir}: finished already ({done["step"]} steps)')
    return done
  workdir_lib.check_free(workdir)
  parallel.check(config, jax.devices())
  if config.init_from and not (pathlib.Path(workdir) / 'config.json').exists():
    init_from.check(config)
  return None


@contextlib.contextmanager
def begun(config, workdir, streams, environment, caught, spread=None):
  """The Loop of a run whose folder this process holds."""
  batches, rows, record = streams
  with workdir_lib.locked(workdir) as folder:
    workdir_lib.check_config(workdir, config)
    workdir_lib.write(folder / 'config.json', workdir_lib.config_lib.to_json(config))
    workdir_lib.write_environment(folder, environment)
    workdir_lib.write_json(folder / 'data.json', record)
    with contextlib.closing(checkpoint.Checkpoints(workdir, config.keep_checkpoints)) as checkpoints:
      yield Loop(config, folder, batches, rows, checkpoints, caught, spread)


def environment(config):
  """What env.json says of this run in this process: versions, devices, options, and the path that attention takes."""
  enc, length = encodings.make(config.encoding, model.dims(config)), config.train_length
  records = [record for _, record in enc.schedule] or [enc]
  taken = [attention.paths(config, record, length, single=config.data.packing == 'pad') for record in records]
  return workdir_lib.environment(', then '.join(taken), long=length >= attention.LONG)


@contextlib.contextmanager
def stop_signals():
  """A list of the SIGTERM and SIGINT that came: they do nothing else, the loop saves at the end of its step."""
  caught = []

  def note(number, frame):
    del frame
    caught.append(signal.Signals(number).name)

  before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
  try:
    yield caught
  finally:
    for number, handler in before.items():
      signal.signal(number, handler)


class Loop:
  """One process's share of a run. Everything that must survive is in the checkpoints; this holds only what is at hand."""

  def __init__(self, config, folder, batches, validation_rows, checkpoints, stop_signals=(), spread=None):
    self.config, self.folder, self.batches, self.checkpoints = config, folder, batches, checkpoints
    self.validation_rows, self.stop_signals = validation_rows, stop_signals
    enc = encodings.make(config.encoding, model.dims(config))
    tx = optim.make(config)
    self.schedule = optim.schedule(config)
    self.spread = spread or parallel.make(config, step.make(config, enc, tx), step.make_eval(config, enc), jax.devices())
    start = jax.jit(lambda: step.init(config, enc, tx))()
    if config.init_from and checkpoints.latest() is None:
      start = step.init(config, enc, tx, init_from.params(config, start.params))
    self.targets, self.pending = 0, []
    self.state = self._restore(start)
    self.timer = (time.perf_counter(), self.targets)

  def run(self):
    """Trains to the last step and returns the final validation loss."""
    with contextlib.closing(self.steps()) as steps:
      numbers = None
      while True:
        try:
          _, batch = steps.send(numbers)
        except StopIteration as end:
          return end.value
        self.state, numbers = self.spread.step(self.state, self.spread.put_batch(batch))

  def steps(self):
    """All of a run but its steps, so that several runs can be stepped together (seeds.py).

    A generator of (n, the batch of step n): the caller takes that step and sends its numbers. Returns the final validation loss.
    """
    config, first = self.config, int(self._host_state().step)
    self.log = metrics.Log(self.folder, first, config.tensorboard)
    self.peak, self.peak_source = flops.peak()
    # A run that was killed between its last checkpoint and DONE has only the latter to write.
    loss = self.log_validation(first, write=False) if first == config.num_train_steps else None
    with (
      contextlib.closing(self.log),
      contextlib.closing(data.prefetch(self.batches)) as stream,
      progress.bar(config.num_train_steps, first, str(self.folder)) as bar,
    ):
      for n in range(first + 1, config.num_train_steps + 1):
        batch, position = next(stream)
        numbers = yield n, batch
        self.pending.append((n, numbers))
        self._read(keep=1)
        self.checkpoints.check_for_errors()
        bar.advance(1, self.note)
        loss = self._boundary(n, position, loss)
    self._finish(loss)
    return loss

  note = 'compiling'

  def _boundary(self, n, position, loss):
    """Validation first, then the checkpoint: what is restored at step n has n's rows in the log."""
    config, last = self.config, n == self.config.num_train_steps
    if last or (config.eval_every_steps and n % config.eval_every_steps == 0):
      self._read()
      loss = self.log_validation(n)
    due = config.checkpoint_every_steps and n % config.checkpoint_every_steps == 0
    stop = self.stop_signals[:1]  # looked at once: a signal that comes from here on finds the next step
    if last or due or stop:
      self._read()
      fresh = loss if last or (config.eval_every_steps and n % config.eval_every_steps == 0) else None
      self.checkpoints.save(n, self._host_state(), {'position': position, 'targets': self.targets}, fresh)
    if stop and not last:
      self.checkpoints.close()
      raise Preempted(f'{self.folder}: stopped by {stop[0]} and saved at step {n} (the same command goes on from there)')
    return loss

  def _read(self, keep=0):
    """Fetches the numbers of all but the newest `keep` steps, logs them and stops on the first that are not finite."""
    while len(self.pending) > keep:
      n, numbers = self.pending.pop(0)
      numbers = jax.device_get(numbers)
      self.targets += int(numbers['targets'])
      rate = float(self.schedule(n - 1))
      if not numbers['finite']:
        raise NotFinite(
          f'{self.folder}: step {n}: loss {numbers["loss"]}, gradient norm {numbers["gradient_norm"]} at learning rate {rate:.3g} '
          f'(lower optim.learning_rate or lengthen optim.warmup_steps; the newest checkpoint is of step {self.checkpoints.latest()})'
        )
      self.note = f'loss {numbers["loss"]:.3f}'
      if n % self.config.log_every_steps == 0 or n == self.config.num_train_steps:
        row = {'step': n, 'loss': float(numbers['loss']), 'targets': self.targets, 'learning_rate': rate}
        self.log.metrics(row | {'gradient_norm': float(numbers['gradient_norm'])})
        self._log_speed(n)

  def _log_speed(self, n):
    now, (then, targets) = time.perf_counter(), self.timer
    speed = (self.targets - targets) / (now - then)
    self.timer = (now, self.targets)
    share = speed * flops.per_token(self.config) / self.peak
    self.log.timing({'step': n, 'tokens_per_second': speed, 'model_flops_share': share, 'peak': self.peak_source, 'time': time.time()})

  def log_validation(self, n, write=True):
    """Mean nats a validation target."""
    nll, weight = score.sums(self.spread.evaluate, self._host_state().params, self.validation_rows, self.config.batch_size)
    if not math.isfinite(nll):
      raise NotFinite(f'{self.folder}: step {n}: validation loss {nll / weight} (lower optim.learning_rate or lengthen optim.warmup_steps)')
    if write:
      self.log.metrics({'step': n, 'validation_loss': nll / weight, 'validation_targets': int(weight)})
    return nll / weight

  def _host_state(self):
    return self.spread.get_state(self.state)

  def _restore(self, start):
    latest = self.checkpoints.latest()
    if latest is None:
      return self.spread.put_state(start)
    like = start if self.config.parallel == 'pmap' else self.spread.put_state(start)
    tree, saved = self.checkpoints.restore(latest, like)
    self.batches.set_state(saved['position'])
    self.targets = saved['targets']
    progress.say(f'{self.folder}: going on from step {latest}')
    state = dataclasses.replace(start, **tree) if isinstance(tree, dict) else tree
    return self.spread.put_state(state) if self.config.parallel == 'pmap' else state

  def _finish(self, loss):
    self.checkpoints.close()
    done = {'step': self.config.num_train_steps, 'validation_loss': loss, 'params_sha256': digest(self._host_state().params)}
    workdir_lib.write_json(self.folder / 'DONE', done)


def digest(tree):
  """SHA-256 over every leaf's name, type, shape and bytes."""
  total = hashlib.sha256()
  for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
    array = np.asarray(leaf)
    total.update(f'{jax.tree_util.keystr(path)} {array.dtype} {array.shape}'.encode())
    total.update(array.tobytes())
  return total.hexdigest()
