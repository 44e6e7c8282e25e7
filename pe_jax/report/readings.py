"""Runs put together: the seeds of one configuration, read under one encoding, are one line of every table and figure.

Two runs are seeds of one another if their configurations differ in nothing that changes what is trained but the seed. An encoding under
which parameters are read and that is not the trained one makes a line of its own.
"""

import collections
import dataclasses
import json

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
  """Parameters of one configuration under one encoding.

  Attributes:
    label: its name in tables and figures; no two have the same.
    trained, read_as: the encodings.
    train_length: positions of a training row.
    runs: the Runs, one a seed.
  """

  label: str
  trained: str
  read_as: str
  train_length: int
  runs: tuple

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
    found = [[row for row in run.of(measure) if row['asked_encoding'] == self.read_as] for run in self.runs]
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
    config = members[0].config
    trained = config['encoding']
    asked = [row['asked_encoding'] for run in members for row in run.rows]
    for read_as in dict.fromkeys([trained, *asked]):
      label = trained if read_as == trained else f'{trained} read as {read_as}'
      label += f', L={config["train_length"]}' if several else ''
      out.append(Reading(label + said, trained, read_as, config['train_length'], tuple(members)))
  return sorted(_distinct(out), key=lambda r: (r.train_length, r.trained, not r.own, r.label))


def essence(run):
  """The fields of a run's configuration that make it what it is."""
  return {name: value for name, value in run.flat.items() if name not in NEUTRAL}


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
