"""Training batches of a task: fresh samples at every step, each a pure function of (seed, step, row).

The length of a sample is uniform over the lengths there are from `data.task_min_length` to a longest one, or the longer of two such draws
(`data.task_sampling` = 'long'): where lengths are uniform up to N, place n is seen in proportion to N - n. With a curriculum the longest
grows in even steps from the shortest to `data.task_max_length` over that share of the training.
"""

import numpy as np

from pe_jax.data.documents import ROLES
from pe_jax.errors import ConfigError, DataError
from pe_jax.tasks import samples


def trained_lengths(task, data):
  """The lengths that training makes, a range."""
  found = task.lengths(data.task_min_length, data.task_max_length)
  if not found:
    task.check_length(data.task_max_length, 'data.task_max_length')
    raise ConfigError(
      f'data.task_max_length: {data.task_max_length} leaves {task.spec} no length from data.task_min_length={data.task_min_length} on '
      '(raise it)'
    )
  return found


class TaskBatches:
  """Iterator of batches as `data.Batches` gives them, one sample a row. `state()` is {'step'}: how many were given."""

  def __init__(self, task, config, process_index=0, process_count=1):
    if config.batch_size % process_count:
      raise ConfigError(f'batch_size: {config.batch_size} rows do not divide among {process_count} processes (take a multiple)')
    self._task, self._width, self._seed = task, config.train_length, config.seed
    self._lengths, self._longer = trained_lengths(task, config.data), config.data.task_sampling == 'long'
    self._growing = config.data.task_curriculum * config.num_train_steps  # steps
    local = config.batch_size // process_count
    self._mine = range(process_index * local, (process_index + 1) * local)
    self._step, self._role = 0, {}  # of each length: whose samples are drawn

  def __iter__(self):
    return self

  def __next__(self):
    rows = samples.rows([self._sample(self._step, row) for row in self._mine], self._width, self._task.bos).as_dict()
    del rows['source']
    self._step += 1
    return rows | {'row': np.asarray(self._mine, np.int32)}

  def state(self):
    return {'step': self._step}

  def set_state(self, state):
    if 'step' not in state or state['step'] < 0:
      raise DataError(f'data state: {state} is not of a task (the run began with another data.source)')
    self._step = int(state['step'])

  def lengths_at(self, step):
    """The lengths that step (from 0) draws from, a range."""
    share = min(1.0, step / self._growing) if self._growing else 1.0
    return self._lengths[: 1 + int(share * (len(self._lengths) - 1))]

  def _sample(self, step, row):
    key, lengths = (self._seed, len(ROLES), step, row), self.lengths_at(step)
    draws = np.random.default_rng((*key, 0)).integers(len(lengths), size=2)
    length = lengths[draws.max() if self._longer else draws[0]]
    if length not in self._role:
      self._role[length] = 'train' if samples.divided(self._task, length) else None
    return samples.draw(self._task, self._role[length], (*key, 1), length)


def validation_rows(task, config):
  """Fixed rows of about `config.eval_targets` targets: the same number of samples of each of the lengths that training makes.

  Of many lengths at most 16 are taken, evenly apart, the first and the last among them.
  """
  lengths = trained_lengths(task, config.data)
  chosen = sorted({lengths[round(i)] for i in np.linspace(0, len(lengths) - 1, min(16, len(lengths)))})
  answers = sum(int(task.sample(np.random.default_rng(0), length)[1].sum()) for length in chosen)
  count = max(1, config.eval_targets // answers)
  parts = [samples.test_set(task, 'validation', length, count, lengths[-1]).samples for length in chosen]
  return samples.rows([sample for part in parts for sample in part], config.train_length, task.bos)
