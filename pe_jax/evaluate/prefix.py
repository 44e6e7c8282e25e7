"""Prefixes of long windows: the first n tokens of every full window of the longest length, for each n.

All lengths see the same windows, so the loss at n is the mean of one curve of loss against position up to n. Where an encoding does not
depend on the length, one pass at the longest length gives all of them; the others are run once a length. This is another estimator than
non-overlapping windows: text at the starts of windows counts more.
"""

import numpy as np

from pe_jax import data
from pe_jax.errors import DataError
from pe_jax.evaluate.result import Measured, targets


def measure(subject, spec, lengths, options, advance):
  """Yields a Measured for each length."""
  del options
  longest = max(lengths)
  rows = full_windows(subject, longest)
  convention = {'window': longest, 'stride': longest, 'windows': len(rows), 'window_mean': float(longest)}
  whole = None
  for length in sorted(lengths, reverse=True):
    at_length, part = subject.at_length(spec, length), cut(rows, length)
    if whole is None or subject.length_dependent(at_length, length) or at_length != whole[0]:
      whole = (at_length, *subject.by_position(at_length, length, part, advance))
    yield Measured(length, at_length, whole[1][:length], whole[2][:length], targets(subject, part), convention)


def full_windows(subject, length):
  """The windows of `length` targets that lie in one document, a row each."""
  rows = data.packing.windows(subject.documents, length, subject.tokenizer.bos)
  rows = rows.take(np.flatnonzero((rows.weight_BT.sum(1) == length) & (rows.doc_BT.max(1) == 1)))
  if not len(rows):
    raise too_long(subject, length)
  return rows


def too_long(subject, length):
  """The error for a length that no document has."""
  have = max(len(d) for d in subject.documents) - (subject.tokenizer.bos is None)
  return DataError(f'lengths: no document has {length} targets (the longest has {have}); ask for shorter lengths or give longer text')


def cut(rows, length):
  """The first `length` positions of each row."""
  return data.packing.Rows(*(a[:, :length] for a in rows.arrays()), rows.dropped)
