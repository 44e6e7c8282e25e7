"""The same targets with more and more context: does what lies beyond the training length help, harm, or nothing?

Spans of targets are chosen in documents that are long enough. For each length n the n tokens that end with a span are fed, at positions
0 .. n - 1, and the span alone is scored; n counts the span's own tokens. D(n) is the loss at n minus that at the training length L, paired
span by span: below 0 the far context is used, above 0 it harms. The row of L itself is the crop baseline, what one gets by throwing the
far context away. Two more arms at n > L say what of the far context matters: its tokens in another order (shuffled_far), and another
document's tokens (replaced_far). Where an arm's D equals D(n), that part of the far context is not used.
"""

import dataclasses

import numpy as np

from pe_jax import data
from pe_jax.evaluate.prefix import too_long
from pe_jax.evaluate.result import Measured, fingerprint
from pe_jax.statistics import bootstrap


def tokens(subject, lengths, options):
  """How many are read for one encoding."""
  train = subject.config.train_length
  grid = {*lengths, train}
  spans = len(choose(subject, max(grid), size_of(options, train), options.spans).end_N)
  return spans * sum(n * (3 if n > train else 1) for n in grid)


def size_of(options, train):
  """Targets of a span."""
  return options.span or min(64, max(1, train // 2))


def measure(subject, spec, lengths, options, advance):
  """Yields a Measured for the training length and for each other length."""
  train = subject.config.train_length
  grid = sorted({*lengths, train})
  spans = choose(subject, grid[-1], size_of(options, train), options.spans)
  reference, rng = None, np.random.default_rng([options.seed, 1])
  for length in [train, *(n for n in grid if n != train)]:
    at_length, rows = subject.at_length(spec, length), spans.rows(subject, length)
    nll_T, weight_T, nll_U = scored(subject, at_length, length, rows, spans, advance)
    reference = nll_U if reference is None else reference
    convention = {'window': length, 'stride': spans.size, 'windows': len(rows), 'window_mean': float(length), 'span': spans.size}
    convention |= {'reference_length': train, 'difference': versus(nll_U, reference, spans, options.seed)}
    for name, change in (('shuffled_far', shuffled), ('replaced_far', replaced)) if length > train else ():
      changed = change(subject, rows, spans, length - train, rng)
      convention[name] = versus(scored(subject, at_length, length, changed, spans, advance)[2], reference, spans, options.seed)
    convention['by_unit'] = {'unit': spans.unit, 'nll': nll_U.tolist(), 'targets': spans.targets_U.tolist()}
    yield Measured(length, at_length, nll_T, weight_T, fingerprint(rows), convention)


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

  def rows(self, subject, length):
    """The `length` tokens that end with each span, of which the span alone has weight."""
    size = np.full_like(self.end_N, length)
    rows = data.packing.pieces(subject.documents, length, subject.tokenizer.bos, self.source_N, self.end_N - length, size)
    last = np.arange(length)[None] >= length - self.size
    return dataclasses.replace(rows, weight_BT=np.where(last, rows.weight_BT, np.float32(0)))


def choose(subject, longest, size, most=0):
  """Spans that have `longest` tokens before their end, one after the other in every document, and evenly taken where they are too many."""
  ends = [np.arange(longest, len(d) - (subject.tokenizer.bos is None) + 1, size) for d in subject.documents]
  source_N, end_N = np.repeat(np.arange(len(ends)), [len(e) for e in ends]), np.concatenate(ends)
  if not len(end_N):
    raise too_long(subject, longest)
  most = most or int(np.clip(subject.info['targets'] // longest, 16, 256))
  taken = np.unique(np.linspace(0, len(end_N) - 1, min(most, len(end_N))).round().astype(int))
  return Spans(source_N[taken], end_N[taken], size)


def scored(subject, spec, length, rows, spans, advance):
  """(nll by position, targets by position, nll of each unit)."""
  nll_N, nll_T, done = np.zeros(len(rows)), np.zeros(length), 0
  for part, nll_BT in subject.scored(spec, length, rows, advance):
    real = min(len(part), len(rows) - done)
    nll_N[done : done + real] = nll_BT[:real].sum(1)
    nll_T += nll_BT[:real].sum(0)
    done += real
  return nll_T, rows.weight_BT.sum(0, dtype=np.float64), np.bincount(spans.unit_N, nll_N)


def versus(nll_U, reference_U, spans, seed):
  """Mean difference in nats a target, with a 95 % interval and one-sided bounds over units where there are several."""
  targets_U = spans.targets_U
  found = {'mean': float((nll_U - reference_U).sum() / targets_U.sum())}
  if len(targets_U) > 1:
    interval = bootstrap.difference(nll_U[None], reference_U[None], targets_U[None], seed=seed)
    found |= {name: getattr(interval, name) for name in ('low', 'high', 'lower', 'upper')}
  return found


def shuffled(subject, rows, spans, far, rng):
  """The far tokens of each row in another order; a BOS stays."""
  del spans
  first = 0 if subject.tokenizer.bos is None else 1
  tokens_BT = rows.tokens_BT.copy()
  tokens_BT[:, first:far] = rng.permuted(tokens_BT[:, first:far], axis=1)
  return dataclasses.replace(rows, tokens_BT=tokens_BT)


def replaced(subject, rows, spans, far, rng):
  """The far tokens of each row from the start of another document, or of the same one's other spans where there is one alone."""
  first = 0 if subject.tokenizer.bos is None else 1
  tokens_BT, documents = rows.tokens_BT.copy(), [d for d in subject.documents if len(d) >= far - first]
  for n, source in enumerate(spans.source_N):
    others = [d for d in documents if d is not subject.documents[source]]
    if others:
      text = others[rng.integers(len(others))]
      start = rng.integers(len(text) - (far - first) + 1)
      tokens_BT[n, first:far] = text[start : start + far - first]
    else:
      tokens_BT[n, first:far] = rows.tokens_BT[(n + 1 + rng.integers(max(1, len(rows) - 1))) % len(rows), first:far]
  return dataclasses.replace(rows, tokens_BT=tokens_BT)
