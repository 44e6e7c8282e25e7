"""The stored values are what the peers compute today, wherever there is a Python with the `parity` extra."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import ours
import pytest

SCRIPT = pathlib.Path(__file__).with_name('peers.py')
NEEDED = ('torch', 'transformers', 'x_transformers')


@pytest.fixture
def python():
  """PARITY_PYTHON, or this interpreter if the peers are installed here."""
  named = os.environ.get('PARITY_PYTHON')
  if not named and not all(map(importlib.util.find_spec, NEEDED)):
    pytest.skip('no torch, transformers and x-transformers here: name a Python that has the parity extra in PARITY_PYTHON')
  return named or sys.executable


def test_the_peers_still_compute_the_stored_values(python, tmp_path):
  out = tmp_path / 'peers.json'
  done = subprocess.run([python, str(SCRIPT), '--out', str(out)], capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  fresh, stored = json.loads(out.read_text(encoding='utf-8')), dict(ours.PEERS)
  versions = f'stored with {stored.pop("versions")}, computed with {fresh.pop("versions")}'
  moved = list(differences(stored, fresh, ''))
  assert not moved, f'{len(moved)} values moved ({versions}), the first: {"; ".join(moved[:5])}'


def differences(stored, fresh, path):
  """Where two nests of values differ: numbers by more than a millionth, of the number or of 1 (float32 sums have no fixed order)."""
  if isinstance(stored, dict) and isinstance(fresh, dict) and stored.keys() == fresh.keys():
    for key in stored:
      yield from differences(stored[key], fresh[key], f'{path}/{key}')
  elif isinstance(stored, list) and isinstance(fresh, list) and len(stored) == len(fresh):
    for n, (a, b) in enumerate(zip(stored, fresh)):
      yield from differences(a, b, f'{path}/{n}')
  elif isinstance(stored, float) and isinstance(fresh, float):
    if stored != pytest.approx(fresh, rel=1e-6, abs=1e-6 if '/witnesses' in path else 0):
      yield f'{path} {stored} -> {fresh}'
  elif stored != fresh:
    yield f'{path} {str(stored)[:60]} -> {str(fresh)[:60]}'
