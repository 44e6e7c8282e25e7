"""Step 4, the position mechanism: what it does inside the training length, just past it and far past it.

A break right at the training length points at a table or at a map of frequencies, a slow climb at distances and lengths that were never
seen; a loss that is bad inside already is no matter of length at all.
"""

import dataclasses
import math

import numpy as np

from pe_jax import data, encodings, model
from pe_jax.diagnose import turning, untrained
from pe_jax.diagnose.finding import Finding, judged
from pe_jax.errors import ConfigError, DataError, NotFinite
from pe_jax.evaluate import context
from pe_jax.report import anatomy

STEP, TITLE = 4, 'position mechanism'
MARGIN = 0.05  # nats that a longer context may cost
CLIFF = 0.5  # the share of the damage that stands right after the training length
MAPS = ('rope', 'linear', 'ntk', 'dynamic_ntk', 'yarn', 'llama3')
OVERFLOWS = ('interpolate', 'wrap', 'clip')
LOST = 0.05  # nats that the same validation rows may cost more than training wrote: other devices sum in another order


def findings(case):
  """Exactness of phases, parameters that training never read, losses, and what other readings would change."""
  found = [*phases(case), *never_read(case), *table(case), *validation(case)]
  try:
    curve = Curve.measured(case)
  except (DataError, NotFinite) as error:
    return [*found, Finding(STEP, 'losses', 'note', f'not measured: {error}')]
  found += [inside(case, curve), *beyond(case, curve)]
  return [*found, *readings(case, curve)] if curve.degrades else found


def phases(case):
  """Scores of a relative rotation, and products of a table's rows, must not change when both tokens are shifted."""
  turns = [turning.shift_error(case, r) for r in case.layers() if r.rotate and r.traits.relative and not r.score]
  enc = case.encoding()
  rows = turning.table_error(case) if enc.embed and not enc.init and not enc.positions else None
  measured = turns + ([rows] if rows else [])
  if not measured:
    return []
  error, shift = max(measured)
  evidence = f'a shift of query and key by up to {case.served - 1} changes scores by {error:.2g} of the largest (worst at {shift})'
  remedy = 'make phases in float32 from integer positions and host float64 frequencies (encodings/phases.py); cast what they have turned'
  return [judged(STEP, 'phases', error <= turning.EXACT, evidence, 'phases', remedy)]


def never_read(case):
  """Parameters that only this length reads: rows of an extended table, buckets of distances beyond training."""
  found = untrained.sentences(case)
  if found is None:
    return []
  evidence = '; '.join(found) or f'all position parameters that {case.served} tokens read are read in training rows of {case.train_length}'
  remedy = 'train with rows of this length, interpolate the trained rows instead (init_resize), or read shorter text'
  return [judged(STEP, 'position parameters', not found, evidence, 'untrained parameters', remedy)]


def table(case):
  """Which rotary pairs turn further than training ever did (report/anatomy.py has the whole table)."""
  enc = case.encoding()
  if case.served <= case.train_length or not any(r.rotate for r in case.layers()):
    return []
  shape = model.dims(case.subject.config)
  a = anatomy.anatomy(enc.spec, shape, case.served, case.subject.config.encoding)
  groups = [g['pairs'] for part in a['parts'] for g in part['rotation']]
  if not groups:
    return []
  pairs = max(groups, key=lambda g: sum(p['out_of_distribution'] for p in g))
  new = [n for n, p in enumerate(pairs) if p['out_of_distribution']]
  evidence = f'{len(new)} of {len(pairs)} rotary pairs turn to phases that training on {case.train_length} tokens never had'
  if new:
    worst = pairs[new[0]]
    evidence += f' (from pair {new[0]} on: {worst["turns_in_training"]:.2g} of a turn in training, {worst["turns_read"]:.2g} here)'
  return [Finding(STEP, 'phase table', 'note' if new else 'ok', evidence)]


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
  """The loss of the same targets with contexts of different lengths.

  Attributes:
    inside: nats a target at the training length, or at the longest length below it.
    difference: {length: nats above that}, each with a lower bound where several documents give one.
    spans, subject: what was scored.
    nll_U: nats of each document inside.
    train: the length that the others are compared with.
  """

  inside: float
  difference: dict
  spans: context.Spans
  subject: object
  nll_U: np.ndarray
  train: int

  @classmethod
  def measured(cls, case):
    """At the training length, just past it, at twice, and at the length."""
    train, size = min(case.train_length, case.served), max(1, min(32, case.train_length // 4))
    lengths = sorted({n for n in (train, train + size, 2 * train, case.served) if n <= case.served})
    subject = case.subject
    if max(map(len, subject.documents)) <= lengths[-1]:
      subject = dataclasses.replace(subject, documents=[case.stream])
    spans = context.choose(subject, lengths[-1], size)
    nll = {n: _scored(subject, case.spec, n, spans) for n in lengths}
    difference = {n: context.versus(nll[n], nll[train], spans.targets_U, 0) for n in lengths if n != train}
    return cls(float(nll[train].sum() / spans.targets_U.sum()), difference, spans, subject, nll[train], train)

  @property
  def worst(self):
    """Of the lengths beyond training; 0 where there is none."""
    return max((d['mean'] for n, d in self.difference.items() if n > self.train), default=0.0)

  @property
  def degrades(self):
    """Whether some longer context costs more than MARGIN, and surely something."""
    return any(n > self.train and d['mean'] > MARGIN and d.get('lower', d['mean']) > 0 for n, d in self.difference.items())

  @property
  def shape(self):
    """'cliff' or 'slope'."""
    past = [d['mean'] for n, d in sorted(self.difference.items()) if n > self.train]
    return 'cliff' if past[0] >= CLIFF * self.worst else 'slope'


def _scored(subject, spec, length, spans):
  return context.scored(subject, subject.at_length(spec, length), length, spans.rows(subject, length), spans, lambda tokens: None)[2]


def validation(case):
  """The validation rows of training, scored again: a loss that is lost inside the training length is no matter of length at all."""
  if case.recorded is None:
    return []
  config = case.subject.config
  _, rows, _ = data.streams(config)
  nll_T, weight_T = case.subject.by_position(case.spec, config.train_length, rows, lambda tokens: None)
  now = float(nll_T.sum() / weight_T.sum())
  evidence = f'{now:.3f} nats a target on the validation rows of training, which wrote {case.recorded:.3f}'
  remedy = 'compare config, tokenizer, text and step with those of training: this is not the model, or not the text, that was trained'
  return [judged(STEP, 'validation loss', now <= case.recorded + LOST, evidence, 'checkpoint', remedy)]


def inside(case, curve):
  """Whether the model has learned anything that could be lost."""
  chance = math.log(case.config.model.vocab_size)
  evidence = f'{curve.inside:.3f} nats a token at {curve.train} tokens; blind guessing costs {chance:.3f}'
  if curve.inside < chance - 0.1:
    return Finding(STEP, 'loss inside', 'ok', evidence)
  remedy = 'train it first, or compare its logits with those of the program it comes from: it knows nothing that a longer text could lose'
  return Finding(STEP, 'loss inside', 'note', evidence, remedy=remedy)


def beyond(case, curve):
  """D(n), the same targets with more context than in training."""
  past = {n: d for n, d in sorted(curve.difference.items()) if n != curve.train}
  if not past or max(past) <= curve.train:
    return []
  values = ', '.join(f'{d["mean"]:+.3f} at {n}' for n, d in past.items())
  evidence = f'loss of the same {len(curve.spans.end_N)} x {curve.spans.size} targets against {curve.train} tokens of context: {values}'
  if not curve.degrades:
    return [Finding(STEP, 'losses beyond', 'ok', f'{evidence}: nothing is lost')]
  where = {'cliff': 'a cliff right after the training length', 'slope': 'a slope that grows with the length'}[curve.shape]
  look = {'cliff': 'a table or a map of frequencies', 'slope': 'distances that training did not have'}[curve.shape]
  return [Finding(STEP, 'losses beyond', 'note', f'{evidence}: {where}', remedy=f'look at {look} first')]


def readings(case, curve):
  """The same parameters under other maps of their frequencies, or another use of their table, at the length."""
  changes = {}
  for spec in alternatives(case):
    try:
      nll_U = _scored(curve.subject, spec, case.served, curve.spans)
      change = context.versus(nll_U, curve.nll_U, curve.spans.targets_U, 0)['mean']
    except (ConfigError, NotFinite):
      continue
    changes[str(case.subject.at_length(spec, case.served))] = change
  if not changes:
    return []
  best, now = min(changes, key=changes.get), curve.difference[case.served]['mean']
  evidence = f'at {case.served} tokens, against {now:+.3f} now: ' + ', '.join(f'{name} {d:+.3f}' for name, d in changes.items())
  better = f'read it with --encoding={best!r}' if changes[best] < now - MARGIN else 'none of these readings helps'
  return [Finding(STEP, 'other readings', 'note', evidence, remedy=better)]


def alternatives(case):
  """Other specs for the same parameters."""
  trained = encodings.parse(case.config.encoding)
  parts = [part.name for part in trained.walk()]
  if 'learned' in parts:
    return [encodings.inherit(encodings.parse(f'learned(overflow={how!r})'), trained) for how in OVERFLOWS]
  if not {*parts} & {'rope', *encodings.MAPS}:
    return []
  specs = [encodings.inherit(encodings.parse(name), trained) for name in MAPS]
  return [spec for spec in specs if spec != case.spec]
