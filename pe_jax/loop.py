"""The training loop: dispatch step n, read the numbers of step n - 1, save, stop cleanly, go on exactly."""

import contextlib
import dataclasses
import math
import time

import jax

from pe_jax import data, encodings, flops, hosts, init_from, metrics, model, nonfinite, optim, parallel, progress, step
from pe_jax import workdir as workdir_lib
from pe_jax.errors import ConfigDiffers, NotFinite, Preempted
from pe_jax.evaluate import score
from pe_jax.fingerprint import digest


class Loop:
  """One process's share of a run. Everything that must survive is in the checkpoints; this holds only what is at hand."""

  def __init__(self, config, folder, batches, validation_rows, checkpoints, writer, stop_signals=(), spread=None):
    self.config, self.folder, self.batches, self.checkpoints, self.writer = config, folder, batches, checkpoints, writer
    self.validation_rows, self.stopped_by = validation_rows, hosts.Stop(stop_signals)
    enc = encodings.make(config.encoding, model.dims(config))
    tx = optim.make(config)
    self.schedule = optim.schedule(config)
    self.spread = spread or parallel.make(config, step.make(config, enc, tx), step.make_eval(config, enc), jax.devices())
    start = jax.block_until_ready(jax.jit(lambda: step.init(config, enc, tx))())  # a lack of memory is told here
    if config.init_from and checkpoints.latest() is None:
      start = step.init(config, enc, tx, init_from.params(config, start.params))
    self.targets, self.skipped, self.in_a_row, self.pending = 0, 0, 0, []
    checkpoints.check_space(start)
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
    self.log = metrics.Log(self.folder, first, config, self.writer.holds) if hosts.is_first() else metrics.NoLog()
    self.peak, self.peak_source = flops.peak()
    before = self.batches.state()
    # A run that was killed between its last checkpoint and DONE has only the latter to write.
    loss = self.log_validation(first, write=False) if first == config.num_train_steps else None
    with (
      contextlib.closing(self.log),
      contextlib.closing(data.prefetch(self.batches)) as stream,
      progress.bar(config.num_train_steps, first, str(self.folder)) as bar,
    ):
      if (stop := self.stopped_by.now()) and first < config.num_train_steps:
        self._preempted(stop, first, before)  # before minutes go into compiling
      for n in range(first + 1, config.num_train_steps + 1):
        batch, position = next(stream)
        numbers = yield n, batch
        self.pending.append((n, numbers, batch, before))
        before = position
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
    stop = self.stopped_by()  # asked once: a signal that comes from here on finds the next step
    if last or due or stop:
      self._read()
      fresh = loss if last or (config.eval_every_steps and n % config.eval_every_steps == 0) else None
      self._save(n, self._host_state(), position, fresh)
    if stop and not last:
      self._preempted(stop, n, position)
    return loss

  def _save(self, n, state, position, loss=None):
    self.log.flush()
    progress = {'position': position, 'targets': self.targets, 'skipped': self.skipped, 'in_a_row': self.in_a_row}
    self.checkpoints.save(n, hosts.shared(state), progress, loss)

  def _preempted(self, stop, n, position):
    self.checkpoints.wait()
    if not self.checkpoints.has(n):
      self._save(n, self._host_state(), position)
    self.checkpoints.close()
    raise Preempted(f'{self.folder}: stopped by {stop} and saved at step {n} (the same command goes on from there)')

  def _read(self, keep=0):
    """Fetches the numbers of all but the newest `keep` steps, logs them, and stops on or skips those that are not finite."""
    while len(self.pending) > keep:
      n, numbers, batch, before = self.pending.pop(0)
      numbers = jax.device_get(numbers) | {'learning_rate': float(self.schedule(n - 1 - self.skipped))}
      if self.config.log_batches:
        self.log.batch({'step': n, 'sha256': digest(hosts.all_rows(batch))})
      if not numbers['finite']:
        self._not_finite(n, numbers, batch, before)
        continue
      self.targets, self.in_a_row = self.targets + int(numbers['targets']), 0
      self.note = f'loss {numbers["loss"]:.3f}'
      if n % self.config.log_every_steps == 0 or n == self.config.num_train_steps:
        row = {'step': n, 'loss': float(numbers['loss']), 'targets': self.targets, 'learning_rate': numbers['learning_rate']}
        self.log.metrics(row | {'gradient_norm': float(numbers['gradient_norm'])})
        self._log_speed(n)

  def _not_finite(self, n, numbers, batch, before):
    """The step changed nothing. Writes it down; then raises with the state before it saved, or goes on with the next batch."""
    nonfinite.dump(self.folder, n, numbers, hosts.all_rows(batch), before, self._host_state(), self.log.mine())
    said = f'{self.folder}: step {n}: loss {numbers["loss"]}, gradient norm {numbers["gradient_norm"]}'
    if self.config.nonfinite == 'skip':
      self.skipped, self.in_a_row = self.skipped + 1, self.in_a_row + 1
      self.log.metrics({'step': n, 'skipped': self.skipped})
      until = f'can be replayed while one of the keep_checkpoints={self.config.keep_checkpoints} checkpoints is from before it'
      progress.say(f'{said}: skipped, the {self.in_a_row}. in a row and the {self.skipped}. in all ({until})')
      if self.in_a_row < self.config.nonfinite_in_a_row:
        return
    else:
      self.checkpoints.wait()
      if not self.checkpoints.has(n - 1):
        with contextlib.suppress(NotFinite):  # where the state itself is broken, what is on disk must do
          state = self._host_state()
          self._save(n - 1, dataclasses.replace(state, finite=state.finite | True), before)
    self.checkpoints.close()
    newest = self.checkpoints.latest()
    there = 'there is no checkpoint yet' if newest is None else f'the newest checkpoint is of step {newest}'
    raise NotFinite(
      f'{said} at learning rate {numbers["learning_rate"]:.3g} (lower optim.learning_rate, lengthen optim.warmup_steps, or look into it: '
      f'python scripts/replay.py --workdir={self.folder}; {there})'
    )

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
    like = start if self.config.parallel == 'pmap' else self.spread.put_state(start)
    found = self.checkpoints.restore_newest(like)
    if found is None:
      return self.spread.put_state(start)
    latest, state, saved = found
    with hosts.together():
      if latest > self.config.num_train_steps:
        raise ConfigDiffers(f'{self.folder}: has a checkpoint of step {latest} (num_train_steps: {self.config.num_train_steps} is less)')
    self.batches.set_state(saved['position'])
    self.targets = saved['targets']
    self.skipped, self.in_a_row = saved.get('skipped', 0), saved.get('in_a_row', 0)
    progress.say(f'{self.folder}: going on from step {latest}')
    return self.spread.put_state(state) if self.config.parallel == 'pmap' else state

  def _finish(self, loss):
    self.checkpoints.close()
    params = hosts.fetch(self._host_state().params)
    done = {'step': self.config.num_train_steps, 'validation_loss': loss, 'params_sha256': digest(params)}
    hosts.agree(done, 'a fault of the program or of a device: all compute the same')
    self.writer()
    if hosts.is_first():
      workdir_lib.write_json(self.folder / 'DONE', done)
