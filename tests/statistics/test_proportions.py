"""Wilson intervals and interquartile means against scipy, their definitions and all resamples."""

import itertools

import numpy as np
import pytest
from scipy import stats

from pe_jax.errors import ConfigError, DataError, NotFinite
from pe_jax.statistics import proportions

RNG = np.random.default_rng(3)


def test_the_wilson_interval_is_scipys():
  k = np.arange(21)
  low, high = proportions.wilson(k, 20, alpha=0.1)
  for n, a, b in zip(k, low, high):
    want = stats.binomtest(int(n), 20).proportion_ci(0.9, method='wilson')
    assert (a, b) == (pytest.approx(want.low, abs=1e-12), pytest.approx(want.high, abs=1e-12))


def test_its_ends_are_what_the_z_test_just_rejects():
  for p in proportions.wilson(13, 50):
    assert abs(13 / 50 - p) == pytest.approx(stats.norm.ppf(0.975) * np.sqrt(p * (1 - p) / 50))


def test_two_hundred_trials_are_as_sure_as_the_protocol_says():
  low, high = proportions.wilson(100, 200)
  assert (high - low) / 2 == pytest.approx(0.069, abs=5e-4)
  np.testing.assert_allclose(proportions.wilson(190, 200), [0.91, 0.97], atol=5e-3)


def test_it_covers_near_one():
  n, p = 50, 0.95
  k = np.arange(n + 1)
  low, high = proportions.wilson(k, n)
  assert stats.binom.pmf(k, n, p)[(low <= p) & (p <= high)].sum() == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize('shape', [(1, 1), (3, 1), (5, 4), (7, 3)])
def test_the_interquartile_mean_is_scipys_trimmed_mean(shape):
  x_RM = RNG.normal(size=shape)
  assert proportions.iqm(x_RM) == pytest.approx(stats.trim_mean(x_RM.ravel(), 0.25))


def test_outliers_at_both_ends_do_not_move_it():
  assert proportions.iqm([[-1e9], [1.0], [2.0], [1e9]]) == 1.5


def test_its_interval_is_that_of_all_resamples():
  x_R = np.array([0.0, 1.0, 4.0, 9.0])
  exact = [np.sort(x_R[list(i)])[1:3].mean() for i in itertools.product(range(4), repeat=4)]
  got = proportions.iqm_interval(x_R[:, None], alpha=0.2)
  assert got == (2.5, *np.quantile(exact, [0.1, 0.9]))


def test_checkpoints_that_did_all_tasks_are_drawn_whole():
  x_RM = RNG.normal(size=(6, 1)) + 0.01 * RNG.normal(size=(6, 8))
  wide, narrow = (proportions.iqm_interval(x_RM, shared=s) for s in (True, False))
  assert wide[2] - wide[1] > 1.5 * (narrow[2] - narrow[1])


def test_blocks_change_nothing(monkeypatch):
  x_RM = RNG.normal(size=(4, 3))
  whole = proportions.iqm_interval(x_RM, resamples=300)
  monkeypatch.setattr(proportions, 'BLOCK', 100)
  assert proportions.iqm_interval(x_RM, resamples=300) == whole


def test_what_is_no_proportion_is_refused_in_a_sentence():
  with pytest.raises(DataError, match='trials: 0 must be above 0'):
    proportions.wilson(0, 0)
  with pytest.raises(ConfigError, match='successes: 3 must lie between 0 and the number of trials, 2'):
    proportions.wilson(3, 2)
  with pytest.raises(ConfigError, match='successes: nan must lie'):
    proportions.wilson(np.nan, 2)
  with pytest.raises(DataError, match='one run has no spread'):
    proportions.iqm_interval([[0.5, 0.7]])
  with pytest.raises(NotFinite, match='scores: 1 of 2 values are not finite'):
    proportions.iqm([[0.5, np.inf]])
