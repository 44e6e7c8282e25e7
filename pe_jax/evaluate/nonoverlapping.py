"""Non-overlapping windows: every document is cut into windows of the length; every target is scored once.

Positions restart in each window, which begins with a BOS iff training rows did. What is left of a document at its end is a shorter
window. A longer length gives the same targets more context on average, (n - 1) / 2 tokens, so some gain is bookkeeping and not the use
of far context; compare `context`, and the accounting line.
"""

from pe_jax import data
from pe_jax.evaluate.result import Measured, fingerprint


def measure(subject, spec, lengths, options, advance):
  """Yields a Measured for each length."""
  del options
  for length in lengths:
    rows = data.packing.windows(subject.documents, length, subject.tokenizer.bos)
    pieces = rows.piece_lengths()
    convention = {'window': length, 'stride': length, 'windows': len(pieces), 'window_mean': float(pieces.mean())}
    at_length = subject.at_length(spec, length)
    yield Measured(length, at_length, *subject.by_position(at_length, length, rows, advance), fingerprint(rows), convention)
