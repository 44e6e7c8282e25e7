"""Sliding windows: each scores its last `stride` targets, so that every target but the first of a document has much context.

A window of n tokens goes on by the stride S; the first window of a document scores all of its targets. Every other target has at least
n - S tokens before it, and is scored once. Positions run from 0 in each window, and a window begins with a BOS iff training rows did. With
S = n these are non-overlapping windows; S = 1 gives every target the most context and costs n forwards a window of text.
"""

from pe_jax import data, windows
from pe_jax.evaluate.result import Measured, targets


def tokens(subject, lengths, options):
  """About how many are read for one encoding, at each length."""
  return {n: sum(map(len, subject.documents)) * n // (options.stride or windows.stride(n)) for n in lengths}


def measure(subject, spec, lengths, options, advance):
  """Yields a Measured for each length."""
  for length in sorted(lengths, reverse=True):  # what does not fit is refused first
    stride = options.stride or windows.stride(length)
    rows = data.packing.sliding(subject.documents, length, stride, subject.tokenizer.bos)
    convention = {'window': length, 'stride': stride, 'windows': len(rows), 'window_mean': float(rows.piece_lengths().mean())}
    at_length = subject.at_length(spec, length)
    yield Measured(length, at_length, *subject.by_position(at_length, length, rows, advance), targets(subject, rows), convention)
