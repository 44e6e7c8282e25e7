"""How many seeds a difference needs, before training them.

    normal:  n = m ((z_{1 - alpha/2} + z_power) sd / d)^2,   m = 2 for two independent arms (n in each), 1 for paired runs

rounded up, where sd is that of one run, or of a paired difference. The normal formula takes sd as known; a t test estimates it from the
same few runs and needs about one more. `of_t_test` is exact for the t test (noncentral t).
"""

import math

from scipy import stats

from pe_jax.errors import ConfigError
from pe_jax.statistics import checks

MOST = 100_000


def runs_needed(sd, difference, power=0.8, alpha=0.05, paired=False, known_sd=True):
  """The smallest number of runs (in each arm, or of pairs) that finds `difference` with probability `power`, two-sided at alpha.

  Args:
    sd: standard deviation between runs, of a paired difference where paired; the unit of `difference`.
    known_sd: True is the normal formula, False counts with the t test.

  At 80 % and alpha .05, unpaired: sd .015 finds .05 with 2 and .02 with 9, sd .05 finds .05 with 16; by the t test 3, 10 and 17.
  """
  d, sd = checks.positive('difference', abs(difference)), checks.positive('sd', sd)
  checks.fraction('power', power)
  checks.fraction('alpha', alpha)
  z = stats.norm.ppf(1 - alpha / 2) + stats.norm.ppf(power)
  n = max(2, math.ceil((1 if paired else 2) * (z * sd / d) ** 2))
  if n > MOST:
    raise ConfigError(f'difference: {difference} at sd {sd} would need {n} runs (ask for a larger difference)')
  while not known_sd and of_t_test(n, sd, d, alpha, paired) < power:
    n += 1
  return n


def of_t_test(runs, sd, difference, alpha=0.05, paired=False):
  """Power of the two-sided t test with `runs` in each arm, or pairs: both tails of the noncentral t."""
  if runs < 2:
    raise ConfigError(f'runs: {runs} has no spread between runs (2 at least)')
  freedom = runs - 1 if paired else 2 * runs - 2
  shift = checks.positive('difference', abs(difference)) / (checks.positive('sd', sd) * math.sqrt((1 if paired else 2) / runs))
  limit = stats.t.ppf(1 - checks.fraction('alpha', alpha) / 2, freedom)
  return float(stats.nct.sf(limit, freedom, shift) + stats.nct.cdf(-limit, freedom, shift))
