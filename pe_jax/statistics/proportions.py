"""Accuracies: the Wilson interval of one, and the interquartile mean of many."""

import numpy as np
from scipy import stats

from pe_jax.errors import ConfigError, DataError
from pe_jax.statistics import checks
from pe_jax.statistics.bootstrap import BLOCK, RESAMPLES


def wilson(successes, trials, alpha=0.05):
  """The Wilson score interval of a proportion, the p that a z test does not reject:

      (k + z^2/2  +-  z sqrt(k (n - k)/n + z^2/4)) / (n + z^2),   z = the normal quantile at 1 - alpha/2

  Unlike p +- z sqrt(p (1 - p)/n) it has a width at p = 0 and 1. Wilson, 1927. Trials must be independent: for a bound over seeds and
  documents take the bootstrap. For a one-sided bound of level 1 - a give alpha = 2 a.

  Args:
    successes: number or array, 0 .. trials.
    trials: of the same shape or one number, above zero.

  Returns (low, high), each of the arrays' shape.
  """
  k, n = np.broadcast_arrays(np.asarray(successes, np.float64), np.asarray(trials, np.float64))
  if not (np.all(np.isfinite(n)) and np.all(n > 0)):
    raise DataError(f'trials: {trials} must be above 0')
  if not np.all((k >= 0) & (k <= n)):
    raise ConfigError(f'successes: {successes} must lie between 0 and the number of trials, {trials}')
  z = stats.norm.ppf(1 - checks.fraction('alpha', alpha) / 2)
  centre = (k + z * z / 2) / (n + z * z)
  half = z * np.sqrt(k * (n - k) / n + z * z / 4) / (n + z * z)
  return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)


def iqm(score_RM):
  """Interquartile mean of all scores, of runs and tasks together: the lowest and the highest quarter are left out.

  As many as int(n/4) at each end, as rliable has it (Agarwal and others, 2021, arXiv:2108.13264): more robust than the mean and less noisy
  than the median.
  """
  return float(middle(checks.numbers('scores', score_RM, 2).ravel()))


def middle(x):
  """The mean over the last axis without the int(n/4) lowest and highest."""
  cut = x.shape[-1] // 4
  return np.sort(x, axis=-1)[..., cut : x.shape[-1] - cut].mean(-1)


def iqm_interval(score_RM, alpha=0.05, resamples=RESAMPLES, seed=0, shared=False):
  """(estimate, low, high): the interquartile mean with a percentile bootstrap over runs, tasks kept.

  Args:
    score_RM: (runs, tasks), two runs or more.
    shared: False draws runs anew for each task, as rliable does where tasks were trained separately; True draws whole runs, which is right
      where one checkpoint did all tasks.

  Errors: DataError for one run, NotFinite.
  """
  x = checks.numbers('scores', score_RM, 2)
  R, M = x.shape
  if R < 2:
    raise DataError('scores: one run has no spread between runs; 2 are needed, and 5 for a claim')
  checks.fraction('alpha', alpha)
  rng, size, values = np.random.default_rng(seed), max(1, BLOCK // x.size), []
  for start in range(0, resamples, size):
    b = min(size, resamples - start)
    run = rng.integers(R, size=(b, R, 1 if shared else M))
    values.append(middle(x[run, np.arange(M)].reshape(b, R * M)))
  low, high = np.quantile(np.concatenate(values), [alpha / 2, 1 - alpha / 2])
  return iqm(x), float(low), float(high)
