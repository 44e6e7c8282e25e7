"""What makes runs under two encodings a pair: at one seed they start from the same weights and read the same rows."""

import jax
import numpy as np
import pytest
import tiny_runs as runs

from pe_jax import data, encodings, fingerprint, model, optim, resolve, step
from pe_jax.selfcheck.properties import SETTINGS

EVERY = [SETTINGS.get(name, name) for name in encodings.names()]


@pytest.fixture(autouse=True, scope='module')
def quick():
  with runs.quick_compiles():
    yield


def resolved(spec, seed=3):
  return resolve.resolve(runs.config(encoding=spec, seed=seed, model__num_layers=2, model__embed_dim=32, model__num_heads=4))


def started(spec, seed=3):
  """(digest of the decoder's weights and of what dropout and positions are drawn from; the encoding's parameters)"""
  config = resolved(spec, seed)
  state = step.init(config, encodings.make(config.encoding, model.dims(config)), optim.make(config))
  return fingerprint.digest((state.params['decoder'], state.key)), state.params['encoding']


def test_at_one_seed_every_encoding_starts_from_the_same_weights():
  wanted, _ = started('nope')
  assert {spec for spec in EVERY if started(spec)[0] != wanted} == set()
  assert started('nope', seed=4)[0] != wanted


def test_encodings_that_share_parameters_start_from_the_same():
  table = started('learned(max_length=64)')[1]
  assert np.abs(table['table']).max() > 0
  for spec in ("learned(max_length=64, overflow='interpolate')", 'randomized(learned(max_length=64), range=64)'):
    jax.tree.map(np.testing.assert_array_equal, started(spec)[1], table)


def test_at_one_seed_every_encoding_reads_the_same_rows():
  def read(spec, seed=3):
    batches, rows, record = data.streams(resolved(spec, seed))
    return fingerprint.digest([next(batches) for _ in range(3)]), fingerprint.digest(rows.as_dict()), record

  wanted = read('nope')
  assert {spec for spec in EVERY if read(spec) != wanted} == set()
  other = read('nope', seed=4)
  assert other[0] != wanted[0]
  assert other[1:] == wanted[1:]  # validation is the same for every seed
