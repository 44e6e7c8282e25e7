"""The leak probe on every encoding, and through it the weights that the probe of attention reads."""

import jax
import pytest
import tiny

from pe_jax import encodings
from pe_jax.probes import Options, leak
from pe_jax.selfcheck.properties import SPECS


@pytest.mark.parametrize('spec', [pytest.param(s, marks=pytest.mark.xdist_group(s)) for s in SPECS])
def test_no_encoding_leaks_and_no_query_gives_away_more_than_it_has(spec, monkeypatch):
  """To the last bit, at a length beyond training."""
  one = jax.devices()[:1]
  monkeypatch.setattr(jax, 'devices', lambda *_: one)  # compiles faster
  layers = 2 if spec.startswith('layers') else 1
  (row,) = leak.measure(tiny.subject(spec, num_layers=layers), encodings.parse(spec), [24], Options())
  assert (row['worst_difference'], row['weight_ahead'], row['leaks']) == (0, 0, False)
  assert 0 < row['weight_total'] <= 1 + 1e-5
  assert row['below_floor'] is None
