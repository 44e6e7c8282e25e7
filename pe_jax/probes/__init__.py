"""Probes: what a model does at a length, beside what it loses there. A file each, with one function

    measure(subject, spec, lengths, options) -> an iterator of dicts that JSON can hold, one or more for each length.

Each dict has its `length` and the `encoding` at it; `probe` adds the names and the conditions that every row carries. A length is the
number of tokens that the model is fed, BOS included, of text and of tasks alike.
"""

import importlib

from pe_jax import encodings, evaluate, hosts, metrics, progress, remote
from pe_jax.config import did_you_mean
from pe_jax.errors import ConfigError
from pe_jax.evaluate import result
from pe_jax.probes import forward, text
from pe_jax.probes.options import Options as Options

ALL = ('needle', 'distance', 'repetition', 'attention', 'position', 'permutation', 'phases', 'leak')
TEXTS = {'repetition', 'attention', 'position', 'permutation', 'leak'}  # read whole texts of the run


def names(subject=None):
  """Names of the probes, each a file of this folder; with a subject those that fit it."""
  return [name for name in ALL if subject is None or not refusal(name, subject)]


def refusal(name, subject):
  """Why a probe cannot be made on this subject, '' if it can."""
  module = load(name)
  return module.refusal(subject) if hasattr(module, 'refusal') else ''


def load(name):
  """The module of a probe."""
  return importlib.import_module(f'pe_jax.probes.{name}')


def probe(subject, lengths, specs=None, wanted=(), extra=None, options=None, keep=lambda rows: None):
  """Rows of every probe, encoding and length.

  Args:
    subject: an `evaluate.Subject`.
    lengths: in tokens that the model is fed.
    specs: encodings as strings or Specs; None: the trained one. Fields they leave open are the trained encoding's.
    wanted: names of probes; none: all that fit the subject.
    extra: more entries for every row, such as the checkpoint's step.
    options: an `Options`.
    keep: called with the rows of each probe and encoding when they are there.
  """
  trained, specs = evaluate.asked(subject, specs)
  wanted, options, lengths = list(wanted) or names(subject), options or Options(), sorted(set(lengths))
  check(subject, lengths, specs, wanted, options)
  common = {'train_length': subject.config.train_length, 'documents_sha256': subject.info.get('documents_sha256', '')}
  common |= result.conditions(subject) | {'probe_seed': options.seed} | (extra or {})
  rows = []
  with progress.bar(len(wanted) * len(specs), label='probing', unit='probe') as bar:
    for name in wanted:
      for spec in specs:
        bar.advance(0, f'{name} {spec}')
        new = []
        for found in load(name).measure(subject, spec, lengths, options):
          named = {'probe': name, 'encoding': found['encoding'], 'asked_encoding': str(spec), 'trained_encoding': str(trained)}
          named['left_out'] = ', '.join(encodings.left_out(spec, trained))
          new.append(named | {'length': found['length']} | common | found)
          bar.advance(0, f'{name} {spec} {found["length"]}')
        bar.advance(1, f'{name} {spec}')
        rows += new
        keep(new)
  return rows


def check(subject, lengths, specs, wanted, options):
  """Refuses what cannot be measured, before anything is compiled."""
  for name in wanted:
    if name not in ALL:
      raise ConfigError(f"probes: '{name}' is unknown{did_you_mean(name, ALL)} (there are {', '.join(ALL)})")
    if why := refusal(name, subject):
      raise ConfigError(f"probes: '{name}' does not fit this run: {why}")
  if not lengths or lengths[0] < 2:
    raise ConfigError(f'lengths: {list(lengths)} must be one or more numbers of tokens, each at least 2')
  options.check()
  if TEXTS & {*wanted}:
    text.ends(subject, lengths, 1)
  for name in wanted:
    if hasattr(load(name), 'check'):
      load(name).check(subject, lengths, options)
  for spec in specs:
    for length in lengths:
      forward.at(subject, spec, length)


def write(workdir, rows):
  """Appends rows to WORKDIR/eval/<probe>.jsonl, in one of the processes."""
  for name in {r['probe'] for r in rows} if hosts.is_first() else ():
    metrics.append(remote.path(workdir) / 'eval' / f'{name}.jsonl', [r for r in rows if r['probe'] == name])
