"""The accounting line: a small example by hand, a scorer that uses 63 tokens, and the ALiBi paper's own numbers."""

import json
import math
import pathlib

import numpy as np
import pytest

from pe_jax.errors import ConfigError, DataError
from pe_jax.evaluate import accounting

TABLES = json.loads((pathlib.Path(__file__).parents[1] / 'docs' / 'data' / 'alibi_tables.json').read_text())


def test_two_documents_by_hand():
  """Documents of 6 and 4 targets. Windows of 4: pieces of 4, 2 and 4; windows of 6: pieces of 6 and 4."""
  got = accounting.account([12, 6, 2, 2], [3, 3, 2, 2], [8, 4, 2, 2, 0.5, 0.7], [2, 2, 2, 2, 1, 1])
  assert (got.train_length, got.length) == (4, 6)
  assert got.in_range == pytest.approx(22 / 10)
  assert got.full_context == 1  # [3, 4) is the last quarter
  assert got.predicted == pytest.approx((2 * 4 + 2 * 2 + 2 * 1 + 2 * 1 + 1 + 1) / 10)
  assert got.actual == pytest.approx(17.2 / 10)
  assert got.residual == pytest.approx(-0.08)
  assert (got.inside, got.beyond) == (pytest.approx(0), pytest.approx(-0.08))
  assert got.gain == pytest.approx(0.48)
  assert got.bookkeeping == pytest.approx(0.40)
  assert got.text() == (
    'non-overlapping 6: 1.720 nats; 2.200 at 4, 1.800 predicted without use of context beyond it; residual -0.080 (benefit)'
  )


def scorer(tokens, window, used):
  """Sums and counts by position of documents in windows; a target with c tokens before it costs 1/(1 + min(c, used))."""
  weight_T = np.zeros(window)
  for n in tokens:
    for start in range(0, n, window):
      weight_T[: min(window, n - start)] += 1
  return weight_T / (1 + np.minimum(np.arange(window), used)), weight_T


@pytest.mark.parametrize('length', [64, 128, 256, 512])
def test_a_scorer_that_uses_63_tokens_gains_by_bookkeeping_alone(length):
  tokens = [1000, 517, 300, 64, 40]
  got = accounting.account(*scorer(tokens, 64, 63), *scorer(tokens, length, 63), full_context=1 / 64)
  assert got.residual == pytest.approx(0, abs=1e-12)
  assert got.gain == pytest.approx(got.bookkeeping)
  assert (got.gain > 0.01) == (length > 64)
  # The last quarter of a curve that still falls costs more than its end: a benefit that is none, and this bounds it.
  rough = accounting.account(*scorer(tokens, 64, 63), *scorer(tokens, length, 63))
  assert -(1 / 49 - 1 / 64) < rough.residual <= 0


def test_use_of_longer_context_is_a_benefit_and_a_cliff_is_harm():
  tokens = [2000, 700]
  more = accounting.account(*scorer(tokens, 64, 63), *scorer(tokens, 256, 255), full_context=1 / 64)
  assert more.residual == more.beyond < 0
  nll_T, weight_T = scorer(tokens, 256, 63)
  nll_T[64:] += 0.5 * weight_T[64:]
  cliff = accounting.account(*scorer(tokens, 64, 63), nll_T, weight_T, full_context=1 / 64)
  assert cliff.residual == pytest.approx(0.5 * weight_T[64:].sum() / weight_T.sum())
  assert '(harm)' in cliff.text()


def test_a_change_below_the_training_length_is_told_from_one_beyond():
  tokens = [2000]
  nll_T, weight_T = scorer(tokens, 128, 63)
  nll_T[:64] += 0.25 * weight_T[:64]
  got = accounting.account(*scorer(tokens, 64, 63), nll_T, weight_T, full_context=1 / 64)
  assert got.inside == pytest.approx(0.25 * weight_T[:64].sum() / weight_T.sum())
  assert got.beyond == pytest.approx(0, abs=1e-12)
  assert got.inside + got.beyond == pytest.approx(got.residual)


def test_the_alibi_papers_gain_follows_from_two_numbers():
  """Non-overlapping and sliding loss at 512 predict the perplexity at longer inputs, without any use of them, to .14."""
  non, sliding = TABLES['nonoverlapping']['perplexity']['alibi'][0], TABLES['sliding']['perplexity']['alibi'][0]
  assert (non, sliding) == (19.73, 17.98)
  table = TABLES['alibi_nonoverlapping_at_multiples']
  got = [math.exp(accounting.from_two_numbers(math.log(non), math.log(sliding), 512, n)) for n in table['lengths']]
  np.testing.assert_allclose(got, [18.83, 18.55, 18.40, 18.26], atol=0.005)
  np.testing.assert_allclose(got, table['perplexity'], atol=0.14 + 0.005)


def test_two_numbers_are_a_flat_curve_and_a_measured_full_context():
  got = accounting.account(np.full(4, 3.0), np.ones(4), np.zeros(10), np.ones(10), full_context=2.0)
  assert got.predicted == pytest.approx(accounting.from_two_numbers(3.0, 2.0, 4, 10)) == 2.4


def test_what_cannot_be_accounted_for_is_refused_in_a_sentence():
  ones = np.ones(4)
  with pytest.raises(ConfigError, match='windows of 3 are shorter than those of 4'):
    accounting.account(ones, ones, ones[:3], ones[:3])
  with pytest.raises(DataError, match='position 2 has targets in windows of 4 and none in windows of 4'):
    accounting.account(ones, [1, 1, 0, 0], ones, ones)
  with pytest.raises(DataError, match='no document reaches position 3 of 4'):
    accounting.account(ones, [1, 1, 1, 0], ones, [1, 1, 1, 0])
  with pytest.raises(DataError, match='must be 0 or more, and one above 0'):
    accounting.account(ones, ones, ones, 0 * ones)
  with pytest.raises(ConfigError, match='length: 3 must be at least the training length, 4'):
    accounting.from_two_numbers(3.0, 2.0, 4, 3)
