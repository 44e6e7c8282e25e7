"""The tables of lengths and of the accounting line."""

import dataclasses

import numpy as np

from pe_jax.evaluate import accounting
from pe_jax.report import lengths_table, protocols
from pe_jax.statistics import lengths
from pe_jax.statistics.lengths import Lengths, Reach


def row(name, d_N, bar=1.6):
  sums = np.reshape(d_N, (-1, 1, 1)) * np.ones((3, 2, 4))
  reliable = lengths.of_losses([91, 128, 256], sums, np.ones((2, 4)), 64, 'prefix', in_distribution=([1.5, 1.5], bar), resamples=100)
  return Lengths(name, Reach(64, 65) if name == 'learned' else Reach(), Reach(1024, None), reliable)


def test_a_line_for_every_encoding_and_doubts_below():
  rows = [row('alibi', [0.01, 0.01, 0.02]), row('rope', [-0.01, 0.3, 0.9]), row('learned', [0.9] * 3), row('nope', [0.0] * 3, 1.4)]
  assert lengths_table.lengths(rows).splitlines() == [
    'encoding  protocol  acceptable      computable       reliable         useful          must pass',
    'alibi     prefix           any  >= 1024 (16 L)   >= 256 (4 L)  < 91 (1.42 L)  D(n) <= 0.05 nats',
    'rope      prefix           any  >= 1024 (16 L)    91 (1.42 L)    91 (1.42 L)  D(n) <= 0.05 nats',
    'learned   prefix      64 (1 L)  >= 1024 (16 L)  < 91 (1.42 L)  < 91 (1.42 L)  D(n) <= 0.05 nats',
    'nope      prefix           any  >= 1024 (16 L)    gate failed              -  D(n) <= 0.05 nats',
    'L = 64; one-sided 95% bounds over 2 runs and 4 documents or spans; every tested length up to the one given passes; '
    '>= none failed, < none passed',
    '2 runs: 5 are needed for a claim (alibi, rope, learned, nope)',
    '4 documents: resampled bounds are too short with fewer than 10 (alibi, rope, learned, nope)',
    'loss 1.500 in run 0, 1.500 in run 1, above the bar of 1.4 (nope)',
  ]


def test_a_line_for_every_account():
  account = accounting.account([12, 6, 2, 2], [3, 3, 2, 2], [8, 4, 2, 2, 0.5, 0.7], [2, 2, 2, 2, 1, 1])
  given = dataclasses.asdict(account) | {'residual': account.residual}
  lines = protocols.accounting([{'asked_encoding': 'alibi', 'length': 6, 'train_length': 4, 'accounting': given}]).splitlines()
  assert lines[1].split() == ['alibi', '6', '2.200', '1.800', '1.720', '-0.080', '+0.000', '-0.080']
  assert 'L = 4' in lines[2]
