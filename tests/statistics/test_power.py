"""Seeds to plan for: the numbers of the protocol, textbook values, and a simulated t test."""

import numpy as np
import pytest
from scipy import integrate, stats

from pe_jax.errors import ConfigError
from pe_jax.statistics import power


@pytest.mark.parametrize(('sd', 'difference', 'normal', 'by_t'), [(0.015, 0.05, 2, 3), (0.015, 0.02, 9, 10), (0.05, 0.05, 16, 17)])
def test_the_protocols_numbers_are_the_normal_formula_and_a_t_test_needs_one_more(sd, difference, normal, by_t):
  assert power.runs_needed(sd, difference) == normal
  assert power.runs_needed(sd, -difference, known_sd=False) == by_t
  assert power.of_t_test(by_t, sd, difference) >= 0.8 > power.of_t_test(by_t - 1, sd, difference)


def test_a_medium_effect_needs_64_in_each_arm_and_34_pairs():
  """Cohen's d = .5 at 80 % power, the textbook numbers of the t test."""
  assert power.runs_needed(1, 0.5, known_sd=False) == 64
  assert power.runs_needed(1, 0.5, known_sd=False, paired=True) == 34
  assert power.of_t_test(64, 1, 0.5) == pytest.approx(0.8015, abs=1e-4)


def test_the_power_is_how_often_a_t_test_rejects():
  rng, times = np.random.default_rng(0), 4000
  a, b = rng.normal(0.9, size=(times, 8)), rng.normal(size=(times, 8))
  assert np.mean(stats.ttest_ind(a, b, axis=1).pvalue < 0.05) == pytest.approx(power.of_t_test(8, 1, 0.9), abs=0.025)
  assert np.mean(stats.ttest_1samp(a, 0, axis=1).pvalue < 0.05) == pytest.approx(power.of_t_test(8, 1, 0.9, paired=True), abs=0.025)


@pytest.mark.parametrize('n', [2, 3, 6])
def test_for_few_runs_it_is_the_normal_tail_averaged_over_the_measured_sd(n):
  for paired, m, freedom in ((False, 2, 2 * n - 2), (True, 1, n - 1)):
    shift, limit = 1.5 / np.sqrt(m / n), stats.t.ppf(0.975, freedom)

    def rejected(s2, shift=shift, limit=limit, freedom=freedom):
      edge = limit * np.sqrt(s2 / freedom)
      return (stats.norm.sf(edge - shift) + stats.norm.cdf(-edge - shift)) * stats.chi2.pdf(s2, freedom)

    assert power.of_t_test(n, 1, 1.5, paired=paired) == pytest.approx(integrate.quad(rejected, 0, np.inf)[0], abs=1e-6)


def test_what_cannot_be_planned_is_refused_in_a_sentence():
  with pytest.raises(ConfigError, match='difference: 0 must be a number above 0'):
    power.runs_needed(1, 0)
  with pytest.raises(ConfigError, match='sd: nan must be a number above 0'):
    power.runs_needed(np.nan, 1)
  with pytest.raises(ConfigError, match='would need 15697760 runs'):
    power.runs_needed(1, 1e-3)
  with pytest.raises(ConfigError, match='runs: 1 has no spread'):
    power.of_t_test(1, 1, 1)
