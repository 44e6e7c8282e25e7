"""Evaluation of a checkpoint at lengths it was not trained on: protocols (a file each), one result row for each encoding and length.

The parameters are the checkpoint's and so is the config; an encoding that differs from the trained one is an explicit choice, and every
row carries both names.
"""

import dataclasses
import importlib

import numpy as np

from pe_jax import attention, data, encodings, flops, hosts, metrics, model, names, progress, remote, tasks
from pe_jax.config import did_you_mean
from pe_jax.data import sources
from pe_jax.encodings.base import Traits
from pe_jax.errors import ConfigError, NotFinite
from pe_jax.evaluate import result, score
from pe_jax.evaluate.options import Options as Options


def protocols(subject=None):
  """Names of the protocols, each a file of this folder; with a subject those that fit it, the most telling first."""
  of_text = ['context', 'nonoverlapping', 'sliding', 'buckets', 'prefix']
  return [*of_text, 'task'] if subject is None else ['task'] if subject.task else of_text


@dataclasses.dataclass(frozen=True)
class Subject:
  """What is evaluated: parameters under a config, on a fixed list of documents or on a task."""

  config: object
  params: dict
  tokenizer: object
  documents: list
  info: dict
  task: tasks.base.Task | None = None
  programs: dict = dataclasses.field(default_factory=dict, repr=False, compare=False)  # what was compiled, for all readings (score.py)

  def positions(self, length):
    """Of a row at this length: as many, or what a task's samples need."""
    return self.task.positions(length) if self.task else length

  def at_length(self, spec, length):
    """The spec with the factor it has at this length."""
    return encodings.at_length(spec, length, self.config.train_length)

  def encoding(self, spec, length):
    """The record, for this length."""
    enc = encodings.make(spec, model.dims(self.config), length)
    model.check_length(enc, length)
    model.check_parameters(enc, self.params)
    return enc

  def length_dependent(self, spec, length):
    """Whether what a token sees depends on its document's length, by itself or through positions that are drawn for the length."""
    traits = self.encoding(spec, length).traits
    return traits.length_dependent or traits.positions != Traits.positions

  def by_position(self, spec, length, rows, advance):
    """`score.by_position` under the spec; `advance` is told the work."""
    enc = self.encoding(spec, length)
    return score.by_position(self.config, enc, self.params, rows, self.work(length, advance), self.programs)

  def scored(self, spec, length, rows, advance):
    """`score.batches` under the spec; `advance` is told the work."""
    enc = self.encoding(spec, length)
    return score.batches(self.config, enc, self.params, rows, self.work(length, advance), self.programs)

  def work(self, length, advance):
    """What `advance` is to be told of a number of tokens in texts of a length: GFLOP, since a token of a longer text takes longer."""
    return lambda tokens: advance(tokens * flops.forward(self.config, length) / 1e9)


def subject(config, params, split='test', max_targets=0, samples=500, task='', text=''):
  """The Subject for a run's own data.

  Args:
    config: the resolved config.
    params: the parameters.
    split: 'train', 'validation' or 'test'.
    max_targets: targets to score of documents; 0: all.
    samples: of a task at each length.
    task: another task in the same words; default: the trained one.
    text: a file of any kind, or a folder of .txt and .jsonl files, to score whole instead of a split.
  """
  tokenizer, tested = data.make_tokenizer(config.data.tokenizer), asked_task(config.data, task, text)
  if tested:
    return Subject(config, params, tokenizer, [], {'split': split, 'samples': samples}, tested)
  source = own_text(config.data, text) if text else data.open_documents(config.data, split)
  least = 0 if text else config.data.min_bytes
  documents, info = data.evaluation_documents(source, tokenizer, max_targets=max_targets, min_bytes=least)
  return Subject(config, params, tokenizer, documents, info)


def split_name(split, text):
  """What was scored, for rows: the split, or the text of one's own."""
  return f'{names.OWN_TEXT}{text}' if text else split


def own_text(of_run, path):
  """The Documents of a file or a folder, read as the run's config says."""
  data_fields = of_run.copy_and_resolve_references()
  data_fields.unlock()
  data_fields.path = str(path)
  return sources.module('text').documents(data_fields, 'all')


def asked_task(of_run, other='', text=''):
  """The task that is tested, `other` or the trained one; None for a run on text. Refuses what the other kind of run is asked for."""
  if of_run.source == 'task' and text:
    raise ConfigError(f"text: '{text}', and this run was trained on a task, whose words it reads (leave it out)")
  if of_run.source != 'task' and other:
    raise ConfigError(f"task: '{other}', and this run was trained on text (leave it out)")
  return _task(of_run.name, other) if of_run.source == 'task' else None


def _task(trained, other):
  """The task that is tested."""
  task, words = tasks.make(other or trained), tasks.make(trained).words
  if task.words != words:
    raise ConfigError(f'task: {task.spec} has other words than {trained} (only one with the same words can be tested)')
  return task


def evaluate(subject, lengths, specs=None, wanted=(), extra=None, options=None, keep=lambda rows: None):
  """Result rows for every protocol, encoding and length.

  Args:
    subject: a `Subject`.
    lengths: the lengths, in tokens; of a task as it counts them.
    specs: encodings as strings or Specs; None: the trained one. Fields they leave open are the trained encoding's.
    wanted: names of protocols; none: 'nonoverlapping', or 'task' for a run that was trained on one.
    extra: more entries for every row, such as the checkpoint's step.
    options: an `Options`.
    keep: called with the rows of each protocol and encoding when they are there, the trained encoding first, so that a caller can have
      written what was measured before whatever ends the rest.

  Errors: ConfigError, DataError; NotFinite at the end, when all others have been kept, where some mean loss is no number.
  """
  trained, specs = asked(subject, specs)
  wanted, lengths = list(dict.fromkeys(wanted or ['task' if subject.task else 'nonoverlapping'])), list(dict.fromkeys(lengths))
  options = options or Options()
  check(subject, lengths, specs, wanted, options)
  modules = {protocol: importlib.import_module(f'pe_jax.evaluate.{protocol}') for protocol in wanted}
  work = [_work(module, subject, lengths, options) for module in modules.values()]
  rows, broken = [], []
  with progress.bar(len(specs) * sum(work), label='evaluating', unit='GFLOP') as bar:
    for protocol, module in modules.items():
      for spec in sorted(specs, key=lambda spec: spec != trained):
        note, new, bad = f'{protocol} {spec}', [], []
        for found in module.measure(subject, spec, lengths, options, lambda n, note=note: bar.advance(n, note)):
          if not np.isfinite(found.nll_T).all():
            bad.append(found.length)
            broken.append(f'{found.nll_T.sum()} at {found.length} under {spec} ({protocol})')
            continue
          new.append(_named(subject, spec, trained, protocol, found) | result.row(subject, found) | (extra or {}))
        for row in new if bad else ():
          row['not_finite'] = bad
        rows += new
        if hasattr(module, 'compared'):
          module.compared(new, [row for row in rows if row['protocol'] == protocol], options)
        keep(new)
  if broken:
    raise NotFinite(f'lengths: losses are {"; ".join(broken)} (leave out these lengths or encodings; all others have been measured)')
  asked_for = list(map(str, specs))
  return sorted(rows, key=lambda r: (wanted.index(r['protocol']), r['length'], asked_for.index(r['asked_encoding'])))


def _named(subject, spec, trained, protocol, found):
  """Who was measured how."""
  enc, count = subject.encoding(found.spec, len(found.nll_T)), len(found.nll_T)
  named = {'encoding': str(found.spec), 'asked_encoding': str(spec), 'trained_encoding': str(trained)}
  named |= {'length': found.length, 'protocol': protocol, 'positions': enc.traits.positions}
  named['left_out'] = ', '.join(encodings.left_out(found.spec, trained))
  one_row = not score.over_devices(count)
  named['attention'] = attention.paths(attention.reading(subject.config), enc, count, not found.packed, one_row)
  return named


def asked(subject, specs=None):
  """(the trained encoding, those to read the parameters under, each once), as Specs; what these leave open is the trained one's."""
  trained = encodings.parse(subject.config.encoding)
  # As written, and not in canonical form: a default that is asked for, such as base=10000, is not inherited.
  specs = [encodings.check_name(s) if isinstance(s, str) else s for s in (specs or [trained])]
  return trained, list(dict.fromkeys(encodings.parse(str(encodings.inherit(s, trained))) for s in specs))


def _work(module, subject, lengths, options):
  """GFLOP of a protocol for one encoding. It reads what it says, or every document once at each length."""
  if hasattr(module, 'tokens'):
    tokens = module.tokens(subject, lengths, options)
  else:
    tokens = dict.fromkeys(lengths, sum(map(len, subject.documents)))
  done = []
  for length, count in tokens.items():
    subject.work(length, done.append)(count)
  return sum(done)


def check(subject, lengths, specs, wanted, options):
  """Refuses what cannot be measured, before anything is compiled."""
  for protocol in wanted:
    if protocol not in protocols():
      known = protocols()
      raise ConfigError(f"protocols: '{protocol}' is unknown{did_you_mean(protocol, known)} (there are {', '.join(known)})")
    if (protocol == 'task') != (subject.task is not None):
      what, way_out = ('a task', 'task') if subject.task else ('text', ', '.join(protocols(subject)))
      raise ConfigError(f"protocols: '{protocol}' does not fit a run that was trained on {what} (take {way_out})")
  if not lengths or min(lengths) < 1:
    raise ConfigError(f'lengths: {list(lengths)} must be one or more numbers of tokens, each at least 1')
  options.check(lengths, subject.config.train_length)
  for length in lengths if subject.task else []:
    subject.task.check_length(length)
  for spec in specs:
    for positions in map(subject.positions, lengths):
      subject.encoding(subject.at_length(spec, positions), positions)


def write(workdir, rows):
  """Appends rows to WORKDIR/eval/<protocol>.jsonl, in one of the processes."""
  for protocol in {r['protocol'] for r in rows} if hosts.is_first() else ():
    metrics.append(remote.path(workdir) / 'eval' / f'{protocol}.jsonl', [r for r in rows if r['protocol'] == protocol])
