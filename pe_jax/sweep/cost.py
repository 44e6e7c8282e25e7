"""What a run costs before it is started: tokens, arithmetic, and hours at a measured speed.

A trained token is 6 FLOPs a weight and 12 K a visible pair of each head (pe_jax/flops.py); one that is read is a third of that, at the
length at which it is read. The speed is in FLOP/s of this count, as runs of the sweep have logged it or as some steps of one of them are
measured. What encodings add to this count is left out, and so are starting and compiling: on small models they are minutes in an hour.
"""

import dataclasses
import pathlib
import tempfile
import time

from pe_jax import evaluate, flops, tasks, windows
from pe_jax.errors import UserError
from pe_jax.sweep import child, commands, evaluations, plan, slots, state

STEPS = 30  # of a measurement
EVALUATE_AT_MOST = 1024  # validation targets of a measurement
DEFAULT = ['context', 'nonoverlapping']  # eval.py's protocols where none are named


@dataclasses.dataclass(frozen=True)
class Cost:
  """Tokens trained on and read in evaluation, and FLOPs of both together."""

  tokens: int
  read: int
  flops: float

  def __add__(self, other):
    return Cost(self.tokens + other.tokens, self.read + other.read, self.flops + other.flops)


def of(run):
  """The Cost of a plan's Run."""
  config = run.resolved
  tokens = config.num_train_steps * config.batch_size * config.train_length
  read = [part for evaluation in run.evaluations for part in _read(evaluation, config)]
  arithmetic = tokens * flops.per_token(config) + sum(count * flops.per_token(_at(config, length)) / 3 for length, count in read)
  return Cost(tokens, sum(count for _, count in read), arithmetic)


def _at(config, length):
  """The config as if trained at another length."""
  return plan.changed(config, {'train_length': length})


def _read(evaluation, config):
  """[(length, about how many tokens are read at it)] of an evaluation; the text is taken to hold `max_targets`."""
  targets = evaluation.get('max_targets') or evaluations.MAX_TARGETS
  lengths, found = evaluation['lengths'], []
  protocols = evaluation.get('protocols') or ([] if evaluation.get('probes') else ['task'] if config.data.source == 'task' else DEFAULT)
  protocols = (['task'] if config.data.source == 'task' else evaluate.protocols()[:-1]) if protocols == ['all'] else protocols
  for protocol in protocols:
    for _ in evaluations.specs(evaluation, config):
      found += [(length, count) for length, count in _of_protocol(protocol, lengths, targets, evaluation, config)]
  return found


def _of_protocol(protocol, lengths, targets, evaluation, config):
  if protocol == 'task':
    task = tasks.make(evaluation.get('task') or config.data.name)
    samples = evaluation.get('samples', evaluations.SAMPLES)
    return [(task.positions(n), samples * task.positions(n)) for n in lengths]
  if protocol == 'context':
    train, spans = config.train_length, evaluation.get('spans') or min(256, max(16, targets // max(lengths)))
    return [(n, spans * n * (3 if n > train else 1)) for n in sorted({*lengths, train})]
  if protocol == 'sliding':
    return [(n, targets * n // (evaluation.get('stride') or windows.stride(n))) for n in lengths]
  return [(max(lengths), targets)] if protocol == 'buckets' else [(n, targets) for n in lengths]


def logged(runs):
  """FLOP/s that the runs' own logs show (the median over runs), None before any has begun."""
  speeds = [(state.of(run.folder).speed, run) for run in runs]
  found = sorted(speed * flops.per_token(run.resolved) for speed, run in speeds if speed)
  return found[len(found) // 2] if found else None


def measured(run, slot=None):
  """FLOP/s of some steps of the run, trained in a folder that is thrown away; in a slot of this machine, as in a sweep."""
  slot = slot or slots.local()[0]
  steps = min(STEPS, run.config.num_train_steps)
  few = {'num_train_steps': steps, 'log_every_steps': max(1, steps // 3), 'eval_every_steps': 0, 'checkpoint_every_steps': 0}
  few |= {'eval_targets': min(EVALUATE_AT_MOST, run.config.eval_targets), 'optim.warmup_steps': 0, 'init_from': ''}
  few |= {'tensorboard': False, 'wandb': ''}  # nobody is to see it
  with tempfile.TemporaryDirectory() as folder:
    workdir = pathlib.Path(folder) / 'speed'
    training = child.Child(commands.train(plan.changed(run.config, few), workdir), workdir / 'log.txt', slot.cores, slot.environment)
    try:
      while (code := training.poll()) is None:
        time.sleep(0.1)
    finally:
      training.kill()
    if code:
      raise UserError(f"run '{run.name}': {child.reason(code, training.said())}")
    rows = state.tail(workdir / 'timing.jsonl')
  return rows[-1]['tokens_per_second'] * flops.per_token(run.resolved)
