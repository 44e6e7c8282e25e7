"""The bootstrap against all its resamples, written out; against closed forms; and how often its bounds hold."""

import itertools

import numpy as np
import pytest

from pe_jax.errors import ConfigError, DataError, NotFinite
from pe_jax.statistics import bootstrap

RNG = np.random.default_rng(7)


def all_means(sum_RU, count_RU, shared):
  """The mean of every resample there is, each as likely as another."""
  R, U = sum_RU.shape
  documents = list(itertools.product(range(U), repeat=U))
  for runs in itertools.product(range(R), repeat=R):
    for drawn in itertools.product(documents, repeat=1 if shared else R):
      cells = [(r, u) for k, r in enumerate(runs) for u in drawn[0 if shared else k]]
      yield sum(sum_RU[c] for c in cells) / sum(count_RU[c] for c in cells)


@pytest.mark.parametrize('shared', [True, False])
def test_the_resamples_are_distributed_as_all_of_them_written_out(shared):
  sum_RU = np.array([[1.0, 5.0, 2.0], [3.0, 0.5, 9.0]])
  count_RU = np.array([[1.0, 2.0, 4.0], [1.0, 2.0, 4.0]])
  exact = np.sort(list(all_means(sum_RU, count_RU, shared)))
  total, count = bootstrap.totals([sum_RU, count_RU], resamples=40_000, seed=3, shared=shared).T
  value = np.sort(total / count)
  at = np.unique(exact.round(9))
  below = [np.searchsorted(x, at + 1e-7) / len(x) for x in (exact, value)]
  np.testing.assert_allclose(below[0], below[1], atol=0.01)  # 4 standard errors of a share of 40 000


def test_the_variance_is_the_closed_form_of_crossed_and_of_nested_draws():
  a_R, b_U = RNG.normal(size=6), RNG.normal(size=50)
  x_RU, ones_RU = a_R[:, None] + b_U, np.ones((6, 50))
  for shared, of_documents in ((True, 50), (False, 6 * 50)):
    value_B = bootstrap.totals([x_RU, ones_RU], seed=1, shared=shared)
    want = a_R.var() / 6 + b_U.var() / of_documents
    assert (value_B[:, 0] / value_B[:, 1]).var() == pytest.approx(want, rel=0.05)


def test_runs_and_documents_are_drawn_apart():
  """As many runs as documents with the same effects: were the draws the same, the variance would be twice as large."""
  a_R = RNG.normal(size=6)
  value_B = bootstrap.totals([a_R[:, None] + a_R])[:, 0] / 36
  assert value_B.var() == pytest.approx(2 * a_R.var() / 6, rel=0.05)


def test_for_many_documents_it_is_the_standard_error():
  sum_1U = RNG.exponential(size=(1, 3000))
  got = bootstrap.mean(sum_1U, np.ones((1, 3000)), resamples=4000)
  error = sum_1U.std() / np.sqrt(3000)
  assert got.estimate == pytest.approx(sum_1U.mean())
  for bound, z in ((got.low, -1.96), (got.high, 1.96), (got.lower, -1.645), (got.upper, 1.645)):
    assert (bound - got.estimate) / error == pytest.approx(z, abs=0.12)
  assert (got.runs, got.documents) == (1, 3000)


@pytest.mark.parametrize('shared', [True, False])
def test_blocks_and_other_arrays_beside_change_nothing(shared, monkeypatch):
  part_KRU = RNG.normal(size=(3, 4, 11))
  whole = bootstrap.totals(part_KRU, 500, 9, shared)
  np.testing.assert_allclose(bootstrap.totals(part_KRU[1:2], 500, 9, shared)[:, 0], whole[:, 1], rtol=1e-12)
  monkeypatch.setattr(bootstrap, 'BLOCK', 700)
  np.testing.assert_allclose(bootstrap.totals(part_KRU, 500, 9, shared), whole, rtol=1e-12)
  assert not np.allclose(bootstrap.totals(part_KRU, 500, 10, shared), whole)


def test_targets_weigh_the_same_and_documents_do_not():
  sum_RU, count_RU = np.array([[10.0, 900.0]]), np.array([[10.0, 100.0]])
  got = bootstrap.mean(sum_RU, count_RU)
  assert (got.estimate, got.low, got.high) == (910 / 110, 1, 9)
  # Both documents are drawn, or one of them twice: three values.
  total, count = bootstrap.totals([sum_RU, count_RU], 200).T
  assert set((total / count).round(9)) == {1.0, round(910 / 110, 9), 9.0}


def test_a_paired_difference_leaves_out_what_both_share():
  hard_RU, count_RU = 100 * RNG.normal(size=(3, 20)), RNG.integers(1, 9, (3, 20))
  same = bootstrap.difference(hard_RU, hard_RU, count_RU)
  assert (same.estimate, same.low, same.high) == (0, 0, 0)
  more = bootstrap.difference(hard_RU + 0.5 * count_RU, hard_RU, count_RU)
  np.testing.assert_allclose([more.estimate, more.lower, more.upper], 0.5, atol=1e-10)
  other = bootstrap.difference(hard_RU, 2 * hard_RU, count_RU, 2 * count_RU)
  np.testing.assert_allclose([other.low, other.high], 0, atol=1e-10)


def coverage(runs, documents, sd_runs, sd_documents, times=400):
  """How often the one-sided 95 % upper bound of the mean lies above the true mean, 0."""
  rng, held = np.random.default_rng(5), 0
  for k in range(times):
    x_RU = sd_runs * rng.normal(size=(runs, 1)) + sd_documents * rng.normal(size=documents) + 0.3 * rng.normal(size=(runs, documents))
    total_BK = bootstrap.totals([x_RU], 400, seed=k)
    held += np.quantile(total_BK, 0.95) > 0
  return held / times


def test_the_bounds_hold_as_often_as_the_docstring_says():
  assert coverage(5, 60, 0.0, 1.0) == pytest.approx(0.95, abs=0.03)
  assert coverage(5, 60, 1.0, 0.1) == pytest.approx(0.90, abs=0.03)


def test_nested_draws_would_miss_what_documents_share():
  """Why shared documents are the default: the same data, the bound that nested draws give."""
  b_U = RNG.normal(size=60)
  x_RU, ones_RU = b_U + np.zeros((5, 1)), np.ones((5, 60))
  wide, narrow = (bootstrap.mean(x_RU, ones_RU, shared=s) for s in (True, False))
  assert (wide.high - wide.low) / (narrow.high - narrow.low) == pytest.approx(np.sqrt(5), rel=0.05)


@pytest.mark.parametrize(
  ('sums', 'counts', 'error', 'words'),
  [
    ([[1.0]], [[1.0]], DataError, 'one run on one document leaves nothing to resample'),
    ([[1.0, np.nan]], [[1.0, 1.0]], NotFinite, r'sums: 1 of 2 values are not finite, the first at \(0, 1\)'),
    ([[1.0, 2.0]], [[1.0, 0.0]], DataError, r'counts: the count at \(0, 1\) is 0 \(leave out documents without targets\)'),
    ([[1.0, 2.0]], [[1.0]], ConfigError, 'must be the same'),
    ([1.0, 2.0], [[1.0]], ConfigError, r'2 axes are needed and shape \(2,\) has 1'),
    (np.zeros((0, 3)), np.zeros((0, 3)), DataError, 'holds no values'),
  ],
)
def test_what_cannot_be_resampled_is_refused_in_a_sentence(sums, counts, error, words):
  with pytest.raises(error, match=words):
    bootstrap.mean(sums, counts)


def test_settings_that_cannot_work_are_refused():
  with pytest.raises(ConfigError, match=r'alpha: 1\.5 must lie between 0 and 1'):
    bootstrap.mean([[1.0, 2.0]], [[1.0, 1.0]], alpha=1.5)
  with pytest.raises(ConfigError, match='resamples: 10 cannot give'):
    bootstrap.mean([[1.0, 2.0]], [[1.0, 1.0]], resamples=10)
