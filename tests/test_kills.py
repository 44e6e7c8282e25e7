"""Ten real processes killed at random: parameters, logs, batches, evaluation rows and all that the last checkpoint holds come out the same.

`make soak` kills two hundred, over twenty kinds of run.
"""

import os
import random

import pytest
from studies.killing import Cell, Trial, write_corpus

SEED = int(os.environ.get('PE_JAX_TEST_SEED', '0'))


CELLS = [
  (Cell('learned', 'concat', 4, steps=120), 5),
  (Cell('rope', 'pad', 1, steps=120), 5),
]


@pytest.mark.parametrize(('cell', 'kills'), CELLS, ids=[str(cell) for cell, _ in CELLS])
def test_a_run_that_is_killed_at_random_ends_with_the_bits_of_one_that_is_not(tmp_path, monkeypatch, cell, kills):
  monkeypatch.setenv('XLA_FLAGS', '')  # one device
  write_corpus(tmp_path / 'corpus')
  outcome = Trial(tmp_path / 'runs', tmp_path, cell, random.Random(f'{SEED} {cell}')).run(kills)
  assert not outcome.wrong, (SEED, outcome)
  assert sum(outcome.kills.values()) == kills
  assert outcome.ended >= 1
