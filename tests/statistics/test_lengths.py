"""Reliable lengths: in order, without interpolation, censored where the grid ends, and none for a model that is not good enough."""

import json
import math
import pathlib

import numpy as np
import pytest

from pe_jax.errors import ConfigError, DataError, NotFinite
from pe_jax.statistics import bootstrap, lengths
from pe_jax.statistics.lengths import Lengths, Reach

TABLES = json.loads((pathlib.Path(__file__).parents[2] / 'docs' / 'data' / 'alibi_tables.json').read_text())
GRID, R, U = [32, 64, 91, 128, 256], 5, 30


def measured(mean_N, spread=0.01, seed=0):
  """Sums and counts whose means are near mean_N."""
  rng = np.random.default_rng(seed)
  count_RU = np.broadcast_to(rng.integers(16, 33, U), (R, U)).astype(float)
  noise = spread * rng.normal(size=(len(mean_N), R, U))
  return (np.reshape(mean_N, (-1, 1, 1)) + noise) * count_RU, count_RU


def of_losses(mean_N, grid=GRID, **how):
  how = {'in_distribution': ([1.5] * R, 1.6), 'resamples': 500} | how
  return lengths.of_losses(grid, *measured(mean_N), 64, 'same targets', **how)


@pytest.mark.parametrize(
  ('mean_N', 'want'),
  [
    ([0.3, 0, 0.01, 0.02, 0.03], Reach(256, None)),  # 0.3 at L/2 is the use of context and no failure
    ([0.3, 0, 0.01, 0.02, 0.06], Reach(128, 256)),
    ([0.3, 0, 0.06, 0.0, 0.0], Reach(None, 91)),  # what comes after a failure is not looked at
    ([0.3, 0, -0.1, 0.2, -0.1], Reach(91, 128)),
  ],
)
def test_the_reliable_length_is_the_last_before_the_first_failure(mean_N, want):
  got = of_losses(mean_N)
  assert got.reach == want
  np.testing.assert_allclose(got.estimates, mean_N, atol=0.002)
  assert all(b >= e for b, e in zip(got.bounds, got.estimates))
  assert (got.runs, got.documents, got.warnings) == (R, U, ())


def test_it_is_the_bound_that_passes_and_not_the_mean():
  sums, counts = measured([0.0, 0.0, 0.045, 0.045, 0.045], spread=0.3)
  got = lengths.of_losses(GRID, sums, counts, 64, 'p', resamples=1000)
  assert got.reach == Reach(None, 91)
  assert got.bounds[2] == bootstrap.mean(sums[2], counts, resamples=1000).upper
  assert got.estimates[2] == bootstrap.mean(sums[2], counts, resamples=1000).estimate


def test_useful_means_surely_below_zero():
  assert of_losses([0.3, 0, -0.1, -0.05, -0.001]).useful == Reach(128, 256)
  assert of_losses([0.3, 0, -0.1, -0.05, -0.02]).useful == Reach(256, None)
  assert of_losses([0.3, 0, 0.02, -0.2, -0.2]).useful == Reach(None, 91)
  same = lengths.of_losses(GRID, np.zeros((5, R, U)), np.ones((R, U)), 64, 'p', resamples=100)
  assert (same.reach, same.useful) == (Reach(256, None), Reach(None, 91))  # the crop baseline: harmless, of no use


def test_no_length_where_a_run_misses_the_bar():
  got = of_losses([0.3, 0, 0, 0, 0], in_distribution=([1.5, 1.94, 1.5, 1.5, 1.7], 1.6))
  assert (got.reach, got.useful) == (None, None)
  assert got.text() == 'reliable: gate failed, loss 1.940 in run 1, 1.700 in run 4, above the bar of 1.6'
  assert not got.gate.passed
  assert of_losses([0.3, 0, 0, 0, 0]).gate.passed


def test_doubts_are_said():
  assert of_losses([0] * 4, grid=[64, 91, 128, 256]).warnings == ()
  assert of_losses([0] * 2, grid=[91, 128]).warnings == ()
  (warning,) = of_losses([0] * 3, grid=[32, 64, 128]).warnings
  assert warning == 'the grid goes from 64 to 128, a step of 2 where sqrt(2) is the most near 64'
  assert 'from 64 to 92' in of_losses([0] * 3, grid=[64, 92, 128]).warnings[0]
  sums, counts = measured([0.0, 0.0])
  few = lengths.of_losses([91, 128], sums[:, :1], counts[:1], 64, 'p', resamples=100)
  assert few.warnings == ('1 run: 5 are needed for a claim', 'no in-distribution gate: an under-trained model looks robust')


def accuracies(p_N, p=0.95, trials=200, **how):
  trials_RU = np.full((R, 8), float(trials))
  right = [np.full((R, 8), round(q * trials)) for q in [*p_N, p]]
  return lengths.of_accuracies(GRID[1:], right[:-1], [trials_RU] * len(p_N), right[-1], trials_RU, 64, 'needle', resamples=100, **how)


def test_accuracy_is_judged_as_a_share_of_the_one_in_distribution():
  got = accuracies([0.95, 0.9, 0.81, 0.80])
  assert got.reach == Reach(128, 256)  # .81/.95 = .853, .80/.95 = .842
  assert got.useful is None
  np.testing.assert_allclose(got.estimates, np.array([0.95, 0.9, 0.81, 0.80]) / 0.95)
  assert got.text() == 'reliable 128 (2 L) by acc(n)/acc(L) >= 0.85 (needle, 95% bound, 5 runs, 8 documents)'
  assert accuracies([0.95, 0.9, 0.81, 0.80], share=0.8).reach == Reach(256, None)


def test_the_ratio_is_paired_over_runs_and_documents():
  rng = np.random.default_rng(0)
  right_RU, trials_RU = rng.integers(80, 101, (R, 12)).astype(float), np.full((R, 12), 100.0)
  got = lengths.of_accuracies([91, 128], [right_RU, 0.9 * right_RU], [trials_RU] * 2, right_RU, trials_RU, 64, 'p', resamples=200)
  np.testing.assert_allclose(got.bounds, [1, 0.9], rtol=1e-12)


def test_the_lower_bound_of_the_share_must_pass():
  rng = np.random.default_rng(1)
  right_RU, trials_RU = np.full((R, 12), 95.0), np.full((R, 12), 100.0)
  right_NRU = [right_RU, 0.87 * right_RU + 6 * rng.normal(size=(R, 12))]
  got = lengths.of_accuracies([91, 128], right_NRU, [trials_RU] * 2, right_RU, trials_RU, 64, 'p')
  assert got.bounds[1] < 0.85 < got.estimates[1]
  assert got.reach == Reach(91, 128)
  want = bootstrap.mean(right_NRU[1], trials_RU).lower / 0.95  # the accuracy at L does not vary here
  assert got.bounds[1] == pytest.approx(want)


def test_an_accuracy_gate_asks_for_the_bar_and_for_more_than_chance():
  got = accuracies([0.5] * 4, p=0.7)
  assert got.reach is None
  assert 'accuracy 0.700 in run 0, below the bar of 0.8; accuracy 0.700 in run 1' in got.text()
  # 90 % of 80 trials a run reach the bar, and are too few to be sure of more than a chance of .85.
  got = accuracies([0.9] * 4, p=0.9, trials=10, chance=0.85)
  assert got.gate.why.startswith('accuracy 0.900 in run 0, not surely above chance, 0.85; accuracy 0.900 in run 1')
  assert accuracies([0.9] * 4, p=0.9, trials=10, chance=0.5).gate.passed
  nothing = accuracies([0.0] * 4, p=0.0)
  assert (nothing.reach, nothing.estimates, nothing.bounds) == (None, (None,) * 4, (None,) * 4)
  json.dumps(nothing.bounds, allow_nan=False)


def published(protocol, name):
  table = TABLES[protocol]
  return lengths.of_perplexities(table['lengths'], table['perplexity'][name], 512, protocol)


@pytest.mark.parametrize(
  ('protocol', 'name', 'want'),
  [
    ('nonoverlapping', 'sinusoidal', Reach(612, 712)),
    ('nonoverlapping', 'rotary', Reach(712, 1012)),  # 912 needs columns between the two that this selection does not have
    ('nonoverlapping', 't5', Reach(2512, 3512)),
    ('nonoverlapping', 'alibi', Reach(15512, None)),
    ('sliding', 'sinusoidal', Reach(None, 1024)),
    ('sliding', 't5', Reach(1024, 1536)),
    ('sliding', 'alibi', Reach(3072, None)),
  ],
)
def test_the_published_tables_give_another_length_for_another_protocol(protocol, name, want):
  got = published(protocol, name)
  assert got.reach == want
  assert got.estimates == got.bounds
  assert (got.alpha, got.runs, got.useful) == (None, None, None)


def test_a_table_ends_where_memory_did():
  ppl = [20.0, 20.1, None, 20.0]
  assert lengths.of_perplexities([512, 612, 712, 812], ppl, 512, 'p').reach == Reach(612, None)
  assert lengths.of_perplexities([512, 612], [10.0, 10.0 * math.exp(0.0499)], 512, 'p').reach == Reach(612, None)
  assert lengths.of_perplexities([512, 612], [10.0, 10.0 * math.exp(0.0501)], 512, 'p').reach == Reach(None, 612)


def test_a_reach_in_words():
  assert [Reach(*r).text() for r in ((None, None), (512, None), (None, 96), (512, 1024))] == ['any', '>= 512', '< 96', '512']
  assert Reach(512, None).text(64) == '>= 512 (8 L)'
  assert Reach(None, 96).text(64) == '< 96 (1.5 L)'


def test_the_three_lengths_in_a_line_and_as_strict_json():
  got = Lengths('alibi', Reach(), Reach(1024, None), of_losses([0.3, 0, 0.01, 0.02, 0.03]))
  assert got.text() == (
    'alibi: acceptable any, computable >= 1024 (16 L), reliable >= 256 (4 L), useful < 91 (1.42 L) by D(n) <= 0.05 nats '
    '(same targets, 95% bound, 5 runs, 30 documents)'
  )
  read = json.loads(json.dumps(got.as_json(), allow_nan=False))
  assert read['acceptable'] == {'passed': None, 'failed': None}
  assert read['reliable']['reach'] == {'passed': 256, 'failed': None}
  assert read['reliable']['protocol'] == 'same targets'
  assert read['reliable']['lengths'] == GRID
  assert len(read['reliable']['bounds']) == 5


def test_the_chance_of_too_long_a_length_is_alpha():
  """D is the margin from 2L on: to pass there is an error."""
  rng, times, wrong = np.random.default_rng(4), 300, 0
  for k in range(times):
    d_NRU = 0.05 + 0.02 * rng.normal(size=(3, 1, 40)) + 0.02 * rng.normal(size=(3, 5, 40))
    d_NRU[0] -= 0.05
    got = lengths.of_losses([91, 128, 181], d_NRU, np.ones((5, 40)), 64, 'p', resamples=300, seed=k)
    assert got.reach.passed is not None
    wrong += got.reach.passed > 91
  assert wrong / times == pytest.approx(0.05, abs=0.03)


@pytest.mark.parametrize(
  ('change', 'error', 'words'),
  [
    ({'grid': [32, 64, 91, 128]}, ConfigError, '4 lengths and values at 5'),
    ({'grid': [32, 64, 91, 91, 256]}, ConfigError, 'must rise'),
    ({'grid': [4, 8, 16, 32, 64]}, ConfigError, 'none of .* lies above the reference 64'),
    ({'margin': -1}, ConfigError, 'margin: -1 must be'),
    ({'alpha': 0}, ConfigError, 'alpha: 0 must lie'),
    ({'in_distribution': ([1.5], 1.6)}, ConfigError, '1 values for 5 runs'),
    ({'in_distribution': ([math.nan] * R, 1.6)}, NotFinite, 'in-distribution losses: 5 of 5 values'),
  ],
)
def test_what_cannot_be_judged_is_refused_in_a_sentence(change, error, words):
  with pytest.raises(error, match=words):
    of_losses([0.0] * 5, **change)


def test_losses_that_are_not_finite_and_documents_without_targets_are_refused():
  sums, counts = measured([0.0] * 5)
  sums[2, 1, 3] = np.nan
  with pytest.raises(NotFinite, match=r'sums: 1 of 750 values are not finite, the first at \(2, 1, 3\)'):
    lengths.of_losses(GRID, sums, counts, 64, 'p')
  sums[2, 1, 3] = 0
  with pytest.raises(DataError, match='leave out documents without targets'):
    lengths.of_losses(GRID, sums, 0 * counts, 64, 'p')
  with pytest.raises(ConfigError, match='the reference 500 is not among'):
    lengths.of_perplexities([512, 612], [20.0, 21.0], 500, 'p')
  with pytest.raises(ConfigError, match=r'0\.5 is below 1'):
    lengths.of_perplexities([512, 612], [20.0, 0.5], 512, 'p')
