"""Loss by position in one long segment, against the last positions that training knew.

Full windows of the longest length are scored once, and their loss is taken in buckets of positions: quarters of the training length L,
then [L, 2L), [2L, 4L) ... Each bucket's difference to the last in-range one, [3L/4, L), has an interval from resampled documents. The
mean over a whole window dilutes the damage beyond L by L / length; this does not. Targets of different buckets are different text, so a
small difference needs many windows, or `context`.
"""

import itertools

import numpy as np

from pe_jax.evaluate.prefix import full_windows
from pe_jax.evaluate.result import Measured, targets
from pe_jax.statistics import bootstrap


def tokens(subject, lengths, options):
  """How many are read for one encoding, by length."""
  del options
  return {max(lengths): full_windows(subject, max(lengths)).tokens_BT.size}


def measure(subject, spec, lengths, options, advance):
  """Yields one Measured, of the longest length."""
  longest, train = max(lengths), subject.config.train_length
  rows = full_windows(subject, longest)
  at_length = subject.at_length(spec, longest)
  starts = np.asarray([start for start, _ in edges(train, longest)])
  of_row = np.unique(rows.source_BT[:, 0], return_inverse=True)[1]
  nll_UE, nll_T, done = np.zeros((of_row.max() + 1, len(starts))), np.zeros(longest), 0
  for part, nll_BT in subject.scored(at_length, longest, rows, advance):
    real = min(len(part), len(rows) - done)
    np.add.at(nll_UE, of_row[done : done + real], np.add.reduceat(nll_BT[:real], starts, axis=1))
    nll_T += nll_BT[:real].sum(0)
    done += real
  windows_U = np.bincount(of_row)
  convention = {'window': longest, 'stride': longest, 'windows': len(rows), 'window_mean': float(longest)}
  convention['buckets'] = against_in_range(nll_UE, windows_U, edges(train, longest), train, options.seed)
  yield Measured(longest, at_length, nll_T, np.full(longest, float(len(rows))), targets(subject, rows), convention)


def edges(train, longest):
  """[start, end) of the buckets."""
  cuts = sorted({0, train // 4, train // 2, 3 * train // 4, train})
  while cuts[-1] < longest:
    cuts.append(2 * cuts[-1])
  cuts = [c for c in cuts if c < longest] + [longest]
  return list(itertools.pairwise(cuts))


def against_in_range(nll_UE, windows_U, spans, train, seed):
  """For each bucket its mean, its targets, and its difference to the last in-range bucket with a 95 % interval over documents.

  Args:
    nll_UE: sums of nll of each document in each bucket.
    windows_U: windows of each document.
    spans: the buckets, [start, end).
    train: the training length.
    seed: of the resamples.
  """
  reference = max((n for n, (_, end) in enumerate(spans) if end <= train), default=None)
  out = []
  for n, (start, end) in enumerate(spans):
    targets_U = windows_U * (end - start)
    bucket = {'start': start, 'end': end, 'nll': float(nll_UE[:, n].sum() / targets_U.sum()), 'targets': int(targets_U.sum())}
    if reference is not None and n != reference:
      a, b = spans[reference]
      pair = nll_UE[None, :, n], nll_UE[None, :, reference], targets_U[None], (windows_U * (b - a))[None]
      bucket['difference'] = float(pair[0].sum() / pair[2].sum() - pair[1].sum() / pair[3].sum())
      if len(windows_U) > 1 and np.isfinite(nll_UE).all():
        found = bootstrap.difference(*pair, seed=seed)
        bucket |= {'low': found.low, 'high': found.high}
    out.append(bucket)
  return out
