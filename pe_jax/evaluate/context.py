"""The same targets with more and more context: does what lies beyond the training length help, harm, or nothing?

Spans of targets are chosen in documents that are long enough. For each length n the n tokens that end with a span are fed, at positions
0 .. n - 1, and the span alone is scored; n counts the span's own tokens. D(n) is the loss at n minus that at the training length L, paired
span by span: below 0 the far context is used, above 0 it harms. Two more arms at n > L say what of the far context matters: its tokens in
another order (shuffled_far), and another document's tokens (replaced_far; of a single document a part that the row has nothing of, and if
it has no such part the arm is left out). Where an arm's D equals D(n), that part of the far context is not used.

What a reading is worth is told against the crop: the encoding of training on the last min(n, L) tokens, which costs nothing but the far
context. Up to L the difference is what the reading costs inside, beyond L it pays only where it is below 0.

With a needle the rows of the same forward also say a key somewhere in their far text and ask for it after the span (planted.py).
"""

import dataclasses

import numpy as np

from pe_jax import data, windows
from pe_jax.evaluate import planted
from pe_jax.evaluate.prefix import too_long
from pe_jax.evaluate.result import Measured, Targets
from pe_jax.evaluate.result import targets as targets_of
from pe_jax.statistics import bootstrap


def tokens(subject, lengths, options):
  """How many are read for one encoding, at each length."""
  train = subject.config.train_length
  grid = {*lengths, train}
  spans = len(choose(subject, max(grid), size_of(options, train), options.spans).end_N)
  return {n: spans * n * (3 if n > train and options.arms else 1) for n in grid}


def size_of(options, train):
  """Targets of a span."""
  return options.span or windows.span(train)


def measure(subject, spec, lengths, options, advance):
  """Yields a Measured for the training length and for each other length."""
  train = subject.config.train_length
  grid = sorted({*lengths, train})
  spans = choose(subject, grid[-1], size_of(options, train), options.spans)
  needles = planted.Needles.of(subject, options, len(spans.end_N), spans.size)
  for length in grid if needles else ():
    needles.room(length)
  # The longest first: what does not fit into memory is refused before time has gone into the others.
  found = {n: _measured(subject, spec, n, spans, needles, options, advance) for n in reversed(grid)}
  reference_U = found[train].nll_U
  for length in [train, *(n for n in grid if n != train)]:
    one = found[length]
    convention = {'window': length, 'stride': spans.size, 'windows': len(spans.end_N), 'window_mean': float(length), 'span': spans.size}
    for name, nll_U in {'difference': one.nll_U, **one.arms}.items():
      if np.isfinite(nll_U).all() and np.isfinite(reference_U).all():
        convention[name] = versus(nll_U, reference_U, spans.targets_U, options.seed)
    convention |= {'reference_length': train, 'needle': one.needle} if needles else {'reference_length': train}
    convention['by_unit'] = {'unit': spans.unit, 'nll': one.nll_U.tolist(), 'targets': spans.targets_U.tolist()}
    at_length = subject.at_length(spec, length)
    yield Measured(length, at_length, one.nll_T, one.weight_T, one.targets, convention)


@dataclasses.dataclass(frozen=True, eq=False)
class _Found:
  """What was scored at one length: sums by position and by unit, {arm: by unit}, what became of the needle."""

  nll_T: np.ndarray
  weight_T: np.ndarray
  nll_U: np.ndarray
  targets: Targets
  arms: dict
  needle: dict | None


def _measured(subject, spec, length, spans, needles, options, advance):
  train, at_length = subject.config.train_length, subject.at_length(spec, length)
  rows, answer = spans.rows(subject, length, needles.tail if needles else 0), needles.answer if needles else 0
  asked = needles.planted(rows, length) if needles else rows
  nll_T, weight_T, nll_U, value_N = scored(subject, at_length, length, asked, spans, advance, answer)
  rng, arms = np.random.default_rng([options.seed, 1, length]), {}
  for name, change in (('shuffled_far', shuffled), ('replaced_far', replaced)) if length > train and options.arms else ():
    changed = change(subject, asked, spans, length - train, rng)
    if changed is None:
      continue
    arms[name] = scored(subject, at_length, length, changed, spans, advance, answer)[2]
  needle = needles.summary(value_N) if needles else None
  return _Found(nll_T, weight_T, nll_U, targets_of(subject, rows), arms, needle)


@dataclasses.dataclass(frozen=True, eq=False)
class Spans:
  """`size` targets ending at target number `end` (exclusive) of document `source`, in order."""

  source_N: np.ndarray
  end_N: np.ndarray
  size: int

  @property
  def unit(self):
    """What is drawn anew for intervals: documents, or spans where all are of one document."""
    return 'document' if len(np.unique(self.source_N)) > 1 else 'span'

  @property
  def unit_N(self):
    """Number of each span's unit."""
    return np.unique(self.source_N, return_inverse=True)[1] if self.unit == 'document' else np.arange(len(self.source_N))

  @property
  def targets_U(self):
    """Targets of each unit."""
    return np.bincount(self.unit_N) * self.size

  def rows(self, subject, length, tail=0):
    """The `length` tokens that end with each span, of which the span alone has weight. `tail`: of them so many are left free at the end."""
    width = length - tail
    size = np.full_like(self.end_N, width)
    rows = data.packing.pieces(subject.documents, length, subject.tokenizer.bos, self.source_N, self.end_N - width, size)
    of_span = (np.arange(length) >= width - self.size) & (np.arange(length) < width)
    return dataclasses.replace(rows, weight_BT=np.where(of_span[None], rows.weight_BT, np.float32(0)))


def choose(subject, longest, size, most=0):
  """Spans that have `longest` tokens before their end, one after the other in every document, and evenly taken where they are too many."""
  ends = [np.arange(longest, len(d) - (subject.tokenizer.bos is None) + 1, size) for d in subject.documents]
  source_N, end_N = np.repeat(np.arange(len(ends)), [len(e) for e in ends]), np.concatenate(ends)
  if not len(end_N):
    raise too_long(subject, longest)
  most = most or int(np.clip(subject.info['targets'] // longest, 16, 256))
  taken = np.unique(np.linspace(0, len(end_N) - 1, min(most, len(end_N))).round().astype(int))
  return Spans(source_N[taken], end_N[taken], size)


def scored(subject, spec, length, rows, spans, advance, answer=0):
  """(nll by position, targets by position, nll of each unit, nll of each row's answer): `answer` is how many last targets are one."""
  nll_N, value_N, nll_T, weight_T, done = np.zeros(len(rows)), np.zeros(len(rows)), np.zeros(length), np.zeros(length), 0
  text = slice(0, length - answer)
  for part, nll_BT in subject.scored(spec, length, rows, advance):
    real = min(len(part), len(rows) - done)
    nll_N[done : done + real] = nll_BT[:real, text].sum(1)
    value_N[done : done + real] = nll_BT[:real, length - answer :].sum(1)
    nll_T[text] += nll_BT[:real, text].sum(0)
    done += real
  weight_T[text] = rows.weight_BT[:, text].sum(0, dtype=np.float64)
  return nll_T, weight_T, np.bincount(spans.unit_N, nll_N), value_N


def versus(nll_U, reference_U, targets_U, seed):
  """Mean difference in nats a target, with a 95 % interval and one-sided bounds over units where there are several."""
  found = {'mean': float((nll_U - reference_U).sum() / targets_U.sum())}
  if len(targets_U) > 1:
    interval = bootstrap.difference(nll_U[None], reference_U[None], targets_U[None], seed=seed)
    found |= {name: getattr(interval, name) for name in ('low', 'high', 'lower', 'upper')}
  return found


def compared(new, rows, options):
  """Adds to new rows their `against_crop`, where `rows` has some of the encoding of training that scored the same targets."""
  plain = {row['length']: row for row in rows if row['asked_encoding'] == row['trained_encoding']}
  for row in new:
    crop = plain.get(min(row['length'], row['train_length']))
    if crop and crop['targets_sha256'] == row['targets_sha256']:
      nll_U, crop_U, targets_U = (np.asarray(x) for x in (row['by_unit']['nll'], crop['by_unit']['nll'], row['by_unit']['targets']))
      row['against_crop'] = versus(nll_U, crop_U, targets_U, options.seed)


def shuffled(subject, rows, spans, far, rng):
  """The far tokens of each row in another order; a BOS stays."""
  del spans
  first = 0 if subject.tokenizer.bos is None else 1
  tokens_BT = rows.tokens_BT.copy()
  tokens_BT[:, first:far] = rng.permuted(tokens_BT[:, first:far], axis=1)
  return dataclasses.replace(rows, tokens_BT=tokens_BT)


def replaced(subject, rows, spans, far, rng):
  """The far tokens of each row from another document; where no other is long enough, from a part of its own that the row has nothing of.

  None where a document has no such part: what is near, or the targets themselves, must not be told in advance.
  """
  first, width = 0 if subject.tokenizer.bos is None else 1, rows.tokens_BT.shape[1]
  tokens_BT, size = rows.tokens_BT.copy(), far - first
  for n, (source, end) in enumerate(zip(spans.source_N, spans.end_N, strict=True)):
    text, others = subject.documents[source], [d for d in subject.documents if len(d) >= size and d is not subject.documents[source]]
    if others:
      text = others[rng.integers(len(others))]
      start = rng.integers(len(text) - size + 1)
    else:
      # Tokens before the row's first and behind its last target; one more on either side, since inputs and targets are a token apart.
      before, behind = max(0, end - width - size), max(0, len(text) - size - end)
      if not before + behind:
        return None
      start = rng.integers(before + behind)
      start = start if start < before else end + 1 + start - before
    tokens_BT[n, first:far] = text[start : start + size]
  return dataclasses.replace(rows, tokens_BT=tokens_BT)
