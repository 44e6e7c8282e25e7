"""Non-overlapping windows: every document is cut into windows of the length; every target is scored once.

Positions restart in each window, which begins with a BOS iff training rows did. What is left of a document at its end is a shorter
window. A longer length gives the same targets more context on average, (n - 1) / 2 tokens, so some gain is bookkeeping and not the use
of far context; compare `context`, and the accounting line.
"""

import dataclasses

import numpy as np

from pe_jax import data
from pe_jax.evaluate import accounting
from pe_jax.evaluate.result import Measured, fingerprint


def measure(subject, spec, lengths, options, advance):
  """Yields a Measured for each length. Beyond the training length, if that is among them, it has the accounting line."""
  del options
  train, in_range = subject.config.train_length, None
  for length in sorted(lengths, key=lambda n: (n != train, n)):
    rows = data.packing.windows(subject.documents, length, subject.tokenizer.bos)
    pieces = rows.piece_lengths()
    convention = {'window': length, 'stride': length, 'windows': len(pieces), 'window_mean': float(pieces.mean())}
    at_length = subject.at_length(spec, length)
    sums = subject.by_position(at_length, length, rows, advance)
    if length == train:
      in_range = sums
    elif in_range and length > train and np.isfinite(sums[0]).all():
      account = accounting.account(*in_range, *sums)
      convention['accounting'] = dataclasses.asdict(account) | {'residual': account.residual}
    yield Measured(length, at_length, *sums, fingerprint(rows), convention, packed=len(pieces) > len(rows))
