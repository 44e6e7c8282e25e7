"""The lengths of an encoding: what it accepts, what can be computed, what is reliable, and where more context is of use.

    reliable = the largest tested n such that every tested n' in (L, n] passes:   losses      upper bound of D(n') <= margin
                                                                                  accuracies  lower bound of acc(n') / acc(L) >= share
    useful   = the same with   upper bound of D(n') < 0

D(n) is the loss of the same targets read with n tokens minus read with L. Lengths are tested in order and the first failure ends the test
(a fixed sequence), so each bound may miss alpha and so does the whole, without a correction. Lengths up to L are in distribution and are
reported, not tested: D(L/2) > 0 says that context helps. Nothing is interpolated; a `Reach` says between which tested lengths the answer
lies. Another protocol gives another length, so each result carries its protocol.
"""

import dataclasses
import itertools
import math

import numpy as np

from pe_jax.errors import ConfigError
from pe_jax.statistics import bootstrap, checks
from pe_jax.statistics.reach import Gate, Reach, Reliable
from pe_jax.statistics.reach import Lengths as Lengths

MARGIN = 0.05  # nats a target
SHARE = 0.85  # of the accuracy in distribution
CLAIM = 5  # runs
FEW = 10  # documents: with fewer a resampled bound is too short


def of_losses(lengths, sum_NRU, count_RU, reference, protocol, *, in_distribution=None, margin=MARGIN, alpha=0.05, **how):
  """Reliable and useful length from paired differences of losses.

  Args:
    lengths: N tested lengths, rising, at least one above the reference.
    sum_NRU: sums over targets of loss at n minus loss at L, nats; runs by documents.
    count_RU: numbers of targets, the same at every length since the targets are the same.
    reference: L, the length the differences are to.
    protocol: what was run, such as 'same targets, last 32'.
    in_distribution: (loss of each run in nats, bar it must not exceed); None: no gate, and the result says so.
    margin: nats, from 0 on.
    alpha: what each one-sided bound misses.
    **how: resamples, seed, shared of `bootstrap.totals`.

  Returns a `Reliable`. Errors: ConfigError, DataError, NotFinite.
  """
  sum_NRU, count_RU = checks.numbers('sums', sum_NRU, 3), checks.counts('counts', count_RU, 2)
  checks.same_shape('sums at each length', sum_NRU[0], 'counts', count_RU)
  lengths = grid(lengths, len(sum_NRU), reference)
  if not 0 <= margin < math.inf:
    raise ConfigError(f'margin: {margin} must be a number of nats from 0 on')
  total_BK = bootstrap.totals([*sum_NRU, count_RU], **how)
  upper_N = np.quantile(total_BK[:, :-1] / total_BK[:, -1:], 1 - checks.fraction('alpha', alpha), axis=0)
  estimate_N = sum_NRU.sum((1, 2)) / count_RU.sum()
  gate = None if in_distribution is None else loss_gate(*in_distribution, len(count_RU))
  return result('loss', protocol, reference, margin, alpha, lengths, estimate_N, upper_N, gate, count_RU.shape)


def of_accuracies(
  lengths, right_NRU, trials_NRU, right_RU, trials_RU, reference, protocol, *, bar=0.8, chance=0.0, share=SHARE, alpha=0.05, **how
):
  """Reliable length from accuracies, as a share of the accuracy in distribution.

  Args:
    lengths, reference, protocol, alpha, **how: as for `of_losses`.
    right_NRU, trials_NRU: right answers and trials at each length, runs by documents (or groups of trials that belong together).
    right_RU, trials_RU: the same in distribution, at L; the same units, so that the ratio is paired.
    bar: accuracy in distribution that every run must reach.
    chance: accuracy of guessing; the lower Wilson bound of every run must lie above it.
    share: of the accuracy in distribution; .85 after RULER and NoLiMa (arXiv:2404.06654, 2502.05167).

  Returns a `Reliable`. Errors: ConfigError, DataError, NotFinite.
  """
  right_NRU, trials_NRU = checks.numbers('right answers', right_NRU, 3), checks.counts('trials', trials_NRU, 3)
  right_RU, trials_RU = checks.numbers('right answers at L', right_RU, 2), checks.counts('trials at L', trials_RU, 2)
  checks.same_shape('right answers', right_NRU, 'trials', trials_NRU)
  checks.same_shape('right answers at L', right_RU, 'trials at L', trials_RU)
  checks.same_shape('right answers at each length', right_NRU[0], 'right answers at L', right_RU)
  lengths = grid(lengths, len(right_NRU), reference)
  checks.positive('share', share)
  checks.fraction('alpha', alpha)
  gate = accuracy_gate(right_RU.sum(1), trials_RU.sum(1), bar, chance)
  if not right_RU.sum():
    estimate_N = lower_N = np.full(len(lengths), np.nan)
  else:
    N, total_BK = len(lengths), bootstrap.totals([*right_NRU, *trials_NRU, right_RU, trials_RU], **how)
    of_reference = total_BK[:, -2:-1] / total_BK[:, -1:]
    # A resample without a right answer at L says nothing of a share; it counts against the encoding.
    ratio_BN = np.divide(total_BK[:, :N] / total_BK[:, N : 2 * N], of_reference, out=np.zeros((len(total_BK), N)), where=of_reference > 0)
    lower_N = np.quantile(ratio_BN, alpha, axis=0)
    estimate_N = right_NRU.sum((1, 2)) / trials_NRU.sum((1, 2)) / (right_RU.sum() / trials_RU.sum())
  return result('accuracy', protocol, reference, share, alpha, lengths, estimate_N, lower_N, gate, right_RU.shape)


def first_not_finite(rows, train):
  """The first length beyond training at which some loss of the rows' reading was no number; None where all were."""
  return min((n for row in rows for n in row.get('not_finite') or () if n > train), default=None)


def ended(reliable, end):
  """The Reliable of lengths below `end`, where losses are no numbers: that length has failed. None: as it is."""
  if end is None:
    return reliable

  def failed(reach):
    return reach and (Reach(reach.passed, end) if reach.failed is None else reach)

  return dataclasses.replace(reliable, reach=failed(reliable.reach), useful=failed(reliable.useful))


def exact_match(task, at, reach):
  """The `protocol` of a task's accuracies, in words: they are shares of that at length `at`, and training went to `reach`."""
  return f'{task}, exact match' + (f' as a share of that at {at}' if at != reach else '')


def of_perplexities(lengths, perplexity_N, reference, protocol, *, margin=MARGIN):
  """Reliable length of a published table: ln(ppl(n)/ppl(L)) against the margin, without documents and so without bounds.

  Args:
    lengths: rising; the reference is one of them.
    perplexity_N: None where the table has no number (out of memory); the test ends before it.

  Returns a `Reliable` whose alpha is None. It has no useful length: a lower perplexity in longer non-overlapping windows is bookkeeping
  (evaluate/accounting.py), and without bounds "surely below zero" means nothing.
  """
  lengths, ppl = list(lengths), list(perplexity_N)
  if len(lengths) != len(ppl):
    raise ConfigError(f'lengths: {len(lengths)} lengths have {len(ppl)} perplexities')
  if None in ppl:
    ppl = ppl[: ppl.index(None)]
    lengths = lengths[: len(ppl)]
  ppl = checks.numbers('perplexities', ppl, 1)
  if reference not in lengths:
    raise ConfigError(f'lengths: the reference {reference} is not among {lengths} with a perplexity')
  if ppl.min() < 1:
    raise ConfigError(f'perplexities: {ppl.min():g} is below 1 and no perplexity')
  d_N = np.log(ppl / ppl[lengths.index(reference)])
  return result('loss', protocol, reference, margin, None, grid(lengths, len(ppl), reference), d_N, d_N, None, (None, None))


def grid(lengths, number, reference):
  """The lengths as a tuple, refused where they cannot be tested in order."""
  lengths = tuple(int(n) for n in lengths)
  if len(lengths) != number:
    raise ConfigError(f'lengths: {len(lengths)} lengths and values at {number}')
  if any(b <= a for a, b in itertools.pairwise(lengths)) or lengths[0] < 1:
    raise ConfigError(f'lengths: {list(lengths)} must rise and start at 1 or more')
  if lengths[-1] <= reference:
    raise ConfigError(f'lengths: none of {list(lengths)} lies above the reference {reference}, so nothing is tested')
  return lengths


def result(metric, protocol, reference, threshold, alpha, lengths, estimate_N, bound_N, gate, shape):
  """The Reliable of tested bounds."""
  numbers = {'lengths': lengths, 'estimates': tuple(map(plain, estimate_N)), 'bounds': tuple(map(plain, bound_N))}
  common = {'gate': gate, 'runs': shape[0], 'documents': shape[1], 'warnings': warnings(lengths, reference, shape, gate, alpha)}
  reach = useful = None
  if gate is None or gate.passed:
    passed_N = bound_N <= threshold if metric == 'loss' else bound_N >= threshold
    reach = in_sequence(lengths, passed_N, reference)
    useful = in_sequence(lengths, bound_N < 0, reference) if metric == 'loss' and alpha is not None else None
  return Reliable(metric, protocol, reference, float(threshold), alpha, reach=reach, useful=useful, **numbers, **common)


def in_sequence(lengths, passed_N, reference):
  """The Reach of tests taken in order from the first length above the reference to the first failure."""
  last = None
  for length, passed in zip(lengths, passed_N):
    if length <= reference:
      continue
    if not passed:
      return Reach(last, length)
    last = length
  return Reach(last, None)


def loss_gate(loss_R, bar, runs):
  """The Gate of losses in distribution, one a run."""
  loss_R = checks.numbers('in-distribution losses', loss_R, 1)
  if len(loss_R) != runs:
    raise ConfigError(f'in-distribution losses: {len(loss_R)} values for {runs} runs')
  checks.positive('bar', bar)
  failed = np.flatnonzero(loss_R > bar)
  named = ', '.join(f'{loss_R[r]:.3f} in run {r}' for r in failed)
  return Gate(tuple(loss_R.tolist()), float(bar), False, f'loss {named}, above the bar of {bar:g}' if named else '')


def accuracy_gate(right_R, trials_R, bar, chance):
  """The Gate of accuracies in distribution: the bar, and surely above chance (lower Wilson bound, one-sided 95 %)."""
  # Late: scipy.stats takes a second, and losses do without it.
  from pe_jax.statistics import proportions

  checks.fraction('bar', bar)
  accuracy_R, (lower_R, _) = right_R / trials_R, proportions.wilson(right_R, trials_R, alpha=0.1)
  low, guessed = np.flatnonzero(accuracy_R < bar), np.flatnonzero(lower_R <= chance)
  why = [f'accuracy {accuracy_R[r]:.3f} in run {r}, below the bar of {bar:g}' for r in low]
  why += [f'accuracy {accuracy_R[r]:.3f} in run {r}, not surely above chance, {chance:g}' for r in guessed if r not in low]
  return Gate(tuple(accuracy_R.tolist()), float(bar), True, '; '.join(why))


def warnings(lengths, reference, shape, gate, alpha):
  """What a reader must know before believing a length. `shape`: runs and documents."""
  out, (runs, documents) = [], shape
  # A length is a whole number: 91 is the step from 64. Lengths below the reference are not tested, so the first step starts there.
  for a, b in itertools.pairwise([reference, *(n for n in lengths if n > reference)]):
    if a < 2 * reference and b > math.ceil(math.sqrt(2) * a):
      out.append(f'the grid goes from {a} to {b}, a step of {b / a:.3g} where sqrt(2) is the most near {reference}')
      break
  if alpha is not None and runs < CLAIM:
    out.append(f'{runs} run{"s" * (runs > 1)}: {CLAIM} are needed for a claim')
  if alpha is not None and documents < FEW:
    out.append(f'{documents} documents: resampled bounds are too short with fewer than {FEW}')
  if alpha is not None and gate is None:
    out.append('no in-distribution gate: an under-trained model looks robust')
  return tuple(out)


def plain(x):
  """A float that strict JSON can hold: NaN is None."""
  return float(x) if math.isfinite(x) else None
