"""Paired differences between two encodings, one value a run: t interval, exact sign flips, equivalence, non-inferiority.

The same seed gives both encodings the same data order and the same shared initial weights, so d_r = a_r - b_r leaves out what a seed does
to both. "Not significant" is not "the same": `equivalence` is what shows that two agree within a margin. Differences are of losses: more is
worse.
"""

import dataclasses

import numpy as np
from scipy import stats

from pe_jax.errors import ConfigError
from pe_jax.statistics import checks

EXACT = 20  # runs; 2^19 sums are 4 MiB


@dataclasses.dataclass(frozen=True)
class Difference:
  """A mean difference over runs, its t interval, and the exact p beside the smallest p that so many runs can give."""

  mean: float
  sd: float
  low: float
  high: float
  alpha: float
  p: float
  smallest_p: float
  runs: int


@dataclasses.dataclass(frozen=True)
class Verdict:
  """Whether a difference stays within a margin; p <= alpha says the same as the bounds."""

  holds: bool
  p: float
  mean: float
  low: float
  high: float
  margin: float
  alpha: float
  runs: int


def difference(d_R, alpha=0.05):
  """mean(d) +- t_{1 - alpha/2, R-1} sd / sqrt(R), with the sign-flip test.

  Args:
    d_R: one difference a run, two runs or more.
    alpha: what the interval misses, both sides together.

  Returns a `Difference`. Errors: DataError for one run, NotFinite.
  """
  d_R = checks.paired_runs('differences', d_R)
  low, high = bounds(d_R, checks.fraction('alpha', alpha) / 2)
  p, smallest = sign_flip(d_R)
  return Difference(float(d_R.mean()), float(d_R.std(ddof=1)), low, high, alpha, p, smallest, len(d_R))


def bounds(d_R, alpha):
  """One-sided lower and upper t bounds of the mean; each misses alpha."""
  half = stats.t.ppf(1 - alpha, len(d_R) - 1) * d_R.std(ddof=1) / np.sqrt(len(d_R))
  return float(d_R.mean() - half), float(d_R.mean() + half)


def sign_flip(d_R):
  """Exact two-sided p of "each difference could as well have had the other sign", and the smallest p possible, 2^(1 - R).

  p is the share of the 2^R choices of signs whose sum is at least as far from zero as the observed one. Three runs cannot go below .25,
  five not below .0625: always read the two numbers together.

  Errors: ConfigError above 20 runs, where the t interval is the better tool.
  """
  d_R = checks.numbers('differences', d_R, 1)
  if len(d_R) > EXACT:
    raise ConfigError(f'differences: {len(d_R)} runs have too many choices of signs to count (at most {EXACT}; take the t interval)')
  # Half of the choices are the other half with all signs turned, so the first sign stays.
  sums = d_R[:1]
  for d in d_R[1:]:
    sums = np.concatenate([sums + d, sums - d])
  # Sums that are equal on paper differ by rounding.
  far = np.abs(sums) >= abs(d_R.sum()) - 1e-12 * np.abs(d_R).sum()
  return float(far.mean()), 2.0 ** (1 - len(d_R))


def equivalence(d_R, margin, alpha=0.05):
  """Two one-sided t tests: is the mean difference inside (-margin, margin)? This is what "flat" means.

  Args:
    d_R: one difference a run, two runs or more.
    margin: in the unit of d, above zero, chosen before looking.
    alpha: of each of the two tests; the interval that must lie inside the margins has level 1 - 2 alpha.

  Returns a `Verdict`; p is the larger of the two. Errors: DataError for one run, ConfigError, NotFinite.
  """
  d_R, margin = checks.paired_runs('differences', d_R), checks.positive('margin', margin)
  low, high = bounds(d_R, checks.fraction('alpha', alpha))
  p = max(below(d_R, margin), below(-d_R, margin))
  return Verdict(p <= alpha, p, float(d_R.mean()), low, high, margin, alpha, len(d_R))


def non_inferiority(d_R, margin, alpha=0.05):
  """One-sided t test: is the mean difference below the margin? The upper bound is at level 1 - alpha, the lower one likewise.

  Args and errors as for `equivalence`; margin 0 asks for a benefit.
  """
  d_R = checks.paired_runs('differences', d_R)
  if not (np.isfinite(margin) and margin >= 0):
    raise ConfigError(f'margin: {margin} must be a number from 0 on')
  low, high = bounds(d_R, checks.fraction('alpha', alpha))
  p = below(d_R, margin)
  return Verdict(p <= alpha, p, float(d_R.mean()), low, high, float(margin), alpha, len(d_R))


def below(d_R, margin):
  """p of "the mean is at least the margin" against "it is below". Runs that agree exactly decide: 0 or 1."""
  room, error = margin - d_R.mean(), d_R.std(ddof=1) / np.sqrt(len(d_R))
  if error == 0:
    return float(room <= 0)
  return float(stats.t.sf(room / error, len(d_R) - 1))
