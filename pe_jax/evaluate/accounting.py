"""The accounting line: how much of a gain at longer windows is bookkeeping.

Windows of n > L hold fewer tokens with little context, so their mean loss falls even where nothing beyond L is used. With the loss by
position in windows of L, l(p) for p = 0 .. L-1, and the number of targets w_n(p) at each position of windows of n:

    predicted(n) = sum_p w_n(p) l*(p) / sum_p w_n(p),    l*(p) = l(p) for p < L,  l* for p >= L
    residual(n)  = actual(n) - predicted(n)              below zero: true benefit of the context beyond L; above: harm

l* is what D = 0 means: a token with more than L tokens before it is predicted to cost what it costs with all the context that training
knew. Strictly that is the loss with exactly L tokens, a sliding window of stride 1; it can be given. Otherwise it is the mean over the last
quarter of the curve, [3L/4, L): one position alone is noisy. Where the curve still falls there, l* is too high by less than
l(3L/4) - l(L-1), and so is the benefit. Windows of unequal lengths are no matter: w_n(p) counts what was there.

Assumes that text far into a window of n is as hard as other text. The residual is given in two parts: what lies at positions below L,
where the context is the same, shows how far that holds (and what an encoding that changes with the length does inside L).

With l(p) constant at the mean loss and l* from sliding windows this is (L nonoverlap(L) + (n - L) sliding(L)) / n, which predicts the
non-overlapping losses of the ALiBi paper (arXiv:2108.12409) from two numbers.
"""

import dataclasses

import numpy as np

from pe_jax.errors import ConfigError, DataError
from pe_jax.statistics import checks


@dataclasses.dataclass(frozen=True)
class Account:
  """Losses in nats a target. in_range = the mean in windows of L; actual - predicted = inside + beyond = residual."""

  train_length: int
  length: int
  in_range: float
  full_context: float
  predicted: float
  actual: float
  inside: float
  beyond: float

  @property
  def residual(self):
    """Harm above zero, benefit below."""
    return self.actual - self.predicted

  @property
  def bookkeeping(self):
    """The gain, loss(L) - loss(n), that is predicted without any use of the context beyond L."""
    return self.in_range - self.predicted

  @property
  def gain(self):
    """loss(L) - loss(n)."""
    return self.in_range - self.actual

  def text(self):
    """One line."""
    word = 'harm' if self.residual > 0 else 'benefit'
    return (
      f'non-overlapping {self.length}: {self.actual:.3f} nats; {self.in_range:.3f} at {self.train_length}, {self.predicted:.3f} predicted '
      f'without use of context beyond it; residual {self.residual:+.3f} ({word})'
    )


def account(nll_L, weight_L, nll_T, weight_T, full_context=None):
  """The accounting of non-overlapping windows of T tokens against windows of L.

  Args:
    nll_L, weight_L: sum of losses and number of targets at each position of windows of L, as `score.by_position` gives them.
    nll_T, weight_T: the same for windows of T >= L, of the same documents.
    full_context: loss of a token with L tokens of context, if it was measured (sliding windows); None: the mean over [3L/4, L).

  Returns an `Account`. Errors: ConfigError, DataError where the longer windows hold positions that the shorter ones never saw, NotFinite.
  """
  nll_L, weight_L = checks.numbers('losses at L', nll_L, 1), checks.numbers('targets at L', weight_L, 1)
  nll_T, weight_T = checks.numbers('losses', nll_T, 1), checks.numbers('targets', weight_T, 1)
  checks.same_shape('losses at L', nll_L, 'targets at L', weight_L)
  checks.same_shape('losses', nll_T, 'targets', weight_T)
  L, T = len(nll_L), len(nll_T)
  if T < L:
    raise ConfigError(f'length: windows of {T} are shorter than those of {L} that predict them')
  unseen = np.flatnonzero((weight_T[:L] > 0) & (weight_L <= 0))
  if len(unseen):
    raise DataError(f'targets: position {unseen[0]} has targets in windows of {T} and none in windows of {L} (use the same documents)')
  if min(weight_L.min(), weight_T.min()) < 0 or not weight_L.sum() or not weight_T.sum():
    raise DataError('targets: numbers of targets must be 0 or more, and one above 0')
  if full_context is None:
    tail = slice(3 * L // 4, L)
    if not weight_L[tail].sum():
      raise DataError(f'targets: no document reaches position {3 * L // 4} of {L}, and full context has no cost (give longer text)')
    full_context = nll_L[tail].sum() / weight_L[tail].sum()
  curve_T = np.full(T, checks.numbers('full context', full_context, 0))
  curve_T[:L] = np.divide(nll_L, weight_L, out=np.zeros(L), where=weight_L > 0)
  excess_T, total = nll_T - weight_T * curve_T, weight_T.sum()
  return Account(
    train_length=L,
    length=T,
    in_range=float(nll_L.sum() / weight_L.sum()),
    full_context=float(full_context),
    predicted=float((weight_T * curve_T).sum() / total),
    actual=float(nll_T.sum() / total),
    inside=float(excess_T[:L].sum() / total),
    beyond=float(excess_T[L:].sum() / total),
  )


def from_two_numbers(nonoverlapping, sliding, train_length, length):
  """(L nonoverlapping(L) + (n - L) sliding(L)) / n in nats: the prediction where only two losses at L were published."""
  if not 1 <= train_length <= length:
    raise ConfigError(f'length: {length} must be at least the training length, {train_length}')
  return (train_length * nonoverlapping + (length - train_length) * sliding) / length
