"""Prefixes of long windows: the first n tokens of every full window of the longest length, for each n.

All lengths see the same windows, so the loss at n is the mean of one curve of loss against position up to n. Where an encoding does not
depend on the length, one pass at the longest length gives all of them; the others are run once a length. This is another estimator than
non-overlapping windows: text at the starts of windows counts more.
"""

import numpy as np

from pe_jax import data
from pe_jax.errors import DataError


def measure(subject, spec, lengths, advance):
  """Yields (length, spec at that length, nll by position, targets by position, convention) for each length."""
  longest = max(lengths)
  rows = data.packing.windows(subject.documents, longest, subject.tokenizer.bos)
  rows = rows.take(np.flatnonzero((rows.weight_BT.sum(1) == longest) & (rows.doc_BT.max(1) == 1)))
  if not len(rows):
    have = max(len(d) for d in subject.documents)
    raise DataError(f'lengths: no document has {longest} targets (the longest has {have}); ask for shorter lengths or give longer text')
  convention = {'window': longest, 'stride': longest, 'windows': len(rows), 'window_mean': float(longest)}
  convention['packed'] = False
  whole = None
  for length in sorted(lengths, reverse=True):
    at_length = subject.at_length(spec, length)
    if whole is None or subject.length_dependent(at_length, length) or at_length != whole[0]:
      whole = (at_length, *subject.by_position(at_length, length, cut(rows, length), advance))
    yield length, at_length, whole[1][:length], whole[2][:length], convention


def cut(rows, length):
  """The first `length` positions of each row."""
  return data.packing.Rows(*(a[:, :length] for a in rows.arrays()), rows.dropped)
