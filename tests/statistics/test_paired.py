"""Paired tests against scipy, against every choice of signs, and how often they err."""

import itertools

import numpy as np
import pytest
from scipy import stats

from pe_jax.errors import ConfigError, DataError, NotFinite
from pe_jax.statistics import paired

RNG = np.random.default_rng(11)


@pytest.mark.parametrize('n', [2, 3, 5, 9])
def test_the_interval_is_scipys_paired_t(n):
  a_R, b_R = RNG.normal(size=n), RNG.normal(size=n)
  got = paired.difference(a_R - b_R, alpha=0.1)
  want = stats.ttest_rel(a_R, b_R).confidence_interval(0.9)
  np.testing.assert_allclose([got.low, got.high], [want.low, want.high], rtol=1e-10)
  assert got.mean == pytest.approx(np.mean(a_R) - np.mean(b_R))
  assert got.runs == n


@pytest.mark.parametrize('n', [1, 2, 4, 7, 10])
def test_the_sign_flip_p_counts_every_choice_of_signs(n):
  for d_R in (RNG.normal(0.5, size=n), RNG.integers(-2, 4, n).astype(float), RNG.integers(-3, 4, n) / 10):
    signs = np.array(list(itertools.product([-1, 1], repeat=n)))
    p = np.mean(abs(signs @ d_R) >= abs(d_R.sum()) - 1e-9)
    assert paired.sign_flip(d_R) == (pytest.approx(p), 2.0 ** (1 - n))


def test_the_sign_flip_p_is_scipys_permutation_test():
  d_R = RNG.normal(0.7, size=8)
  want = stats.permutation_test((d_R,), np.mean, permutation_type='samples', n_resamples=np.inf)
  assert paired.sign_flip(d_R)[0] == pytest.approx(want.pvalue)


@pytest.mark.parametrize(('n', 'floor'), [(3, 0.25), (5, 0.0625), (6, 0.03125)])
def test_no_effect_however_large_gets_below_the_smallest_p(n, floor):
  assert paired.sign_flip(np.full(n, 1e9) + np.arange(n)) == (floor, floor)
  got = paired.difference(1000.0 + np.arange(n))
  assert (got.p, got.smallest_p) == (floor, floor)


def test_twenty_runs_are_counted_and_more_are_refused():
  p, smallest = paired.sign_flip(RNG.normal(size=20))
  assert smallest <= p <= 1
  with pytest.raises(ConfigError, match='21 runs have too many choices of signs to count'):
    paired.sign_flip(np.ones(21))


@pytest.mark.parametrize('mean', [-0.08, -0.03, 0.0, 0.04, 0.2])
def test_equivalence_is_two_one_sided_t_tests(mean):
  d_R = RNG.normal(mean, 0.02, 6)
  got = paired.equivalence(d_R, 0.05)
  below, above = stats.ttest_1samp(d_R, 0.05, alternative='less'), stats.ttest_1samp(d_R, -0.05, alternative='greater')
  assert got.p == pytest.approx(max(below.pvalue, above.pvalue), rel=1e-9)
  assert got.holds == (got.p <= 0.05) == (got.low >= -0.05 and got.high <= 0.05)


@pytest.mark.parametrize('mean', [-0.1, 0.0, 0.03, 0.06])
def test_non_inferiority_is_one_of_the_two(mean):
  d_R = RNG.normal(mean, 0.02, 5)
  got = paired.non_inferiority(d_R, 0.05)
  assert got.p == pytest.approx(stats.ttest_1samp(d_R, 0.05, alternative='less').pvalue, rel=1e-9)
  assert got.holds == (got.high <= 0.05)
  assert paired.non_inferiority(d_R, 0.0).p == pytest.approx(stats.ttest_1samp(d_R, 0.0, alternative='less').pvalue, rel=1e-9)


def test_not_significant_is_not_flat():
  d_R = np.array([-0.2, 0.25, -0.1, 0.15, 0.02])
  assert paired.difference(d_R).low < 0 < paired.difference(d_R).high
  assert not paired.equivalence(d_R, 0.05).holds
  assert paired.equivalence(d_R / 100, 0.05).holds


def test_runs_that_agree_exactly():
  same = paired.difference(np.zeros(5))
  assert (same.mean, same.low, same.high, same.p) == (0, 0, 0, 1)
  assert paired.equivalence(np.zeros(5), 0.05).p == 0
  assert paired.equivalence(np.full(4, 0.25), 0.05).p == 1


def test_the_errors_are_as_frequent_as_alpha():
  rng, times, n = np.random.default_rng(2), 2000, 5
  x = rng.normal(size=(times, n))
  inside = np.mean([low <= 0 <= high for low, high in (paired.bounds(d, 0.025) for d in x)])
  assert inside == pytest.approx(0.95, abs=0.015)
  # At the edge of the margin equivalence is false, and is called true no more often than alpha.
  wrong = np.mean([paired.equivalence(1.0 + 0.2 * d, 1.0).holds for d in x])
  assert wrong == pytest.approx(0.05, abs=0.015)
  rejected = np.mean([paired.sign_flip(d)[0] <= 0.125 for d in x])
  assert rejected == pytest.approx(0.125, abs=0.02)


@pytest.mark.parametrize('test', [paired.difference, lambda d: paired.equivalence(d, 0.05), lambda d: paired.non_inferiority(d, 0.05)])
def test_one_run_and_nan_are_refused_in_a_sentence(test):
  with pytest.raises(DataError, match='one run has no spread between runs; 2 are needed, and 5 for a claim'):
    test([0.1])
  with pytest.raises(NotFinite, match=r'differences: 1 of 3 values are not finite, the first at \(1,\)'):
    test([0.1, np.nan, 0.2])


def test_margins_that_cannot_work_are_refused():
  for margin in (0, -0.1, np.nan):
    with pytest.raises(ConfigError, match=r'margin: .* must be a number above 0'):
      paired.equivalence([0.1, 0.2], margin)
  with pytest.raises(ConfigError, match=r'margin: -0\.1 must be a number from 0 on'):
    paired.non_inferiority([0.1, 0.2], -0.1)
