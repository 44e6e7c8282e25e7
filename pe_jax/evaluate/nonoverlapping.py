"""Non-overlapping windows: every document is cut into windows of the length; every target is scored once.

Positions restart in each window, which begins with a BOS iff training rows did. What is left of a document at its end is a shorter
window. A longer length gives the same targets more context on average, (n - 1) / 2 tokens, so some gain is bookkeeping and not the use
of far context; compare `context`, and the accounting line.
"""

import dataclasses

import numpy as np

from pe_jax import data
from pe_jax.evaluate import accounting
from pe_jax.evaluate.result import Measured, targets


def measure(subject, spec, lengths, options, advance):
  """Yields a Measured for each length. Beyond the training length, if that is among them, it has the accounting line."""
  del options
  train = subject.config.train_length
  found = {n: _measured(subject, spec, n, advance) for n in sorted({*lengths}, reverse=True)}  # what does not fit is refused first
  in_range = found.get(train)
  for length, one in sorted(found.items(), key=lambda item: (item[0] != train, item[0])):
    told = in_range and in_range.weight_T[3 * train // 4 :].sum()  # some document is long enough to say what full context costs
    if told and length > train and np.isfinite(in_range.nll_T).all() and np.isfinite(one.nll_T).all():
      account = accounting.account(in_range.nll_T, in_range.weight_T, one.nll_T, one.weight_T)
      one.convention['accounting'] = dataclasses.asdict(account) | {'residual': account.residual}
    yield one


def _measured(subject, spec, length, advance):
  rows = data.packing.windows(subject.documents, length, subject.tokenizer.bos)
  pieces, at_length = rows.piece_lengths(), subject.at_length(spec, length)
  convention = {'window': length, 'stride': length, 'windows': len(pieces), 'window_mean': float(pieces.mean())}
  sums = subject.by_position(at_length, length, rows, advance)
  return Measured(length, at_length, *sums, targets(subject, rows), convention, packed=len(pieces) > len(rows))
