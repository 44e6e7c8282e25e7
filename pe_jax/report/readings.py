"""Runs put together: the seeds of one configuration, read under one encoding, are one line of every table and figure.

Two runs are seeds of one another if their configurations differ in nothing that changes what is trained but the seed. An encoding under
which parameters are read and that is not the trained one makes a line of its own, and so do another split, a text, and another task.
"""

import collections
import dataclasses
import hashlib
import json
import pathlib

import ml_collections

from pe_jax import config as config_lib
from pe_jax.errors import ConfigError, UserError
from pe_jax.report.rows import whole

# Fields without influence on the parameters or on what is measured of them.
NEUTRAL = {
  'seed',
  'tensorboard',
  'keep_checkpoints',
  'log_every_steps',
  'eval_every_steps',
  'eval_targets',
  'checkpoint_every_steps',
  'data.data_dir',
}


@dataclasses.dataclass(frozen=True, eq=False)
class Reading:
  """Parameters of one configuration under one encoding, on one text or task.

  Attributes:
    label: its name in tables and figures; no two have the same.
    trained, read_as: the encodings.
    train_length: positions of a training row.
    runs: the Runs, one a seed.
    split: what was scored: 'test', another split, or a text of one's own.
    task: the task that was tested; '' on text.
    own_task: the one that it was trained on.
  """

  label: str
  trained: str
  read_as: str
  train_length: int
  runs: tuple
  split: str = 'test'
  task: str = ''
  own_task: str = ''

  @property
  def reach(self):
    """The longest length of a task that training makes; None on text, and where this version does not know."""
    from pe_jax import tasks
    from pe_jax.tasks import batches

    longest = self.runs[0].flat.get('data.task_max_length')
    try:
      return batches.trained_lengths(tasks.make(self.own_task), ml_collections.ConfigDict(self.runs[0].config['data']))[-1]
    except (UserError, AttributeError, KeyError, TypeError, ValueError, IndexError):
      return longest if whole(longest) else None

  @property
  def kin(self):
    """Readings that agree in this can be compared."""
    return self.train_length, self.split, self.task

  @property
  def own(self):
    """Whether it is read as it was trained."""
    return self.read_as == self.trained

  @property
  def seeds(self):
    """The seeds, sorted."""
    return sorted(run.config['seed'] for run in self.runs if whole(run.config.get('seed')))

  def rows(self, measure):
    """[rows of a run by length] of the runs that have some: what a protocol or probe found under this encoding."""
    found = [[row for row in run.of(measure) if _scored(row, self.own_task) == (self.read_as, self.split, self.task)] for run in self.runs]
    return [rows for rows in found if rows]

  def at(self, measure):
    """{length: [a row of each run that has it]}; of a probe with variants see `rows`."""
    by_length = collections.defaultdict(list)
    for rows in self.rows(measure):
      for row in rows:
        by_length[row['length']].append(row)
    return dict(sorted(by_length.items()))


def of_runs(runs):
  """The Readings, in order of their encodings; a configuration read under nothing yet has its trained one."""
  groups = collections.defaultdict(list)
  for run in runs:
    if run.config:
      groups[json.dumps(essence(run), sort_keys=True, default=str)].append(run)
  told = _differences(list(groups.values()))
  several = len({run.config['train_length'] for run in runs if run.config}) > 1
  out = []
  for members, said in zip(groups.values(), told):
    config, task = members[0].config, task_of(members[0].flat)
    trained = config['encoding']
    scored = dict.fromkeys(_scored(row, task) for run in members for row in run.rows)
    if not any(read_as == trained for read_as, _, _ in scored):
      scored = {(trained, 'test', task): None} | scored
    for read_as, split, tested in scored:
      label = trained if read_as == trained else f'{trained} read as {read_as}'
      label += f', L={config["train_length"]}' if several else ''
      label += said + (f', on {split}' if split != 'test' else '') + (f', tested on {tested}' if tested != task else '')
      out.append(Reading(label, trained, read_as, config['train_length'], tuple(members), split, tested, task))
  return sorted(_distinct(out), key=lambda r: (r.train_length, r.trained, not r.own, r.label))


def _scored(row, task):
  """(encoding, split or text, task) of a row; `task` is the run's own, which a probe's rows are of."""
  split, tested = row.get('split'), row.get('task')
  tested = tested if row['measure'] == 'task' and isinstance(tested, str) else task
  return row['asked_encoding'], split if isinstance(split, str) else 'test', tested


def task_of(flat):
  """The task that a configuration trains on, as rows name it; '' on text."""
  from pe_jax import tasks

  name = flat.get('data.name')
  if flat.get('data.source') != 'task' or not isinstance(name, str):
    return ''
  try:
    return tasks.make(name).spec
  except ConfigError:  # of another version
    return name


def essence(run):
  """The fields of a run's configuration that make it what it is."""
  return _essence(run.flat)


def _essence(flat):
  found = {name: value for name, value in flat.items() if name not in NEUTRAL}
  source = found.get('init_from')
  return found | {'init_from': _source(source)} if source and isinstance(source, str) else found


def _source(path):
  """What a run began from, without the seed of that: the parameters of seeds that began from seeds are seeds of one another."""
  try:
    flat = config_lib.flatten(config_lib.completed(json.loads((pathlib.Path(path) / 'config.json').read_text(encoding='utf-8'))))
    text = json.dumps(_essence({'encoding': '', 'init_from': ''} | flat), sort_keys=True, default=str)
  except (OSError, ValueError, AttributeError, TypeError, RecursionError, UserError):  # not here any more: then its name is all there is
    return path
  return f'{flat["encoding"]} {hashlib.sha256(text.encode()).hexdigest()[:6]}'


def _differences(groups):
  """For each group ', field=value' of the fields in which it differs from others of its encoding and training length."""
  kin = collections.defaultdict(list)
  for n, members in enumerate(groups):
    kin[members[0].config['encoding'], members[0].config['train_length']].append(n)
  told = [''] * len(groups)
  for numbers in kin.values():
    fields = {n: essence(groups[n][0]) for n in numbers}
    names = sorted({name for of in fields.values() for name in of})
    varying = [name for name in names if len({json.dumps(of.get(name), default=str) for of in fields.values()}) > 1]
    for n in numbers:
      told[n] = ''.join(f', {name.rpartition(".")[2]}={fields[n].get(name)}' for name in varying)
  return told


def _distinct(readings):
  """The same with labels that no two share."""
  seen, out = collections.Counter(), []
  for reading in readings:
    seen[reading.label] += 1
    number = seen[reading.label]
    out.append(reading if number == 1 else dataclasses.replace(reading, label=f'{reading.label} ({number})'))
  return out
