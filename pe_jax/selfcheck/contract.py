"""Encodings through those properties of the contract that depend on the backend, at its tolerances, until the time is up.

Matrix products are made in full float32 ('highest'): what a GPU or TPU rounds off by default would hide a fault of 1e-3. What that is
here is measured beside it (`default_precision`). What another shape may add up in another order, an accelerator is allowed ten times as
much of; what must be equal to the last bit must be so everywhere.
"""

import time

import jax
import numpy as np

from pe_jax.selfcheck import Row, properties, tiny

WANTED = ('decoded', 'packed', 'exact', 'causal', 'left pad', 'batch', 'shift', 'chunked', 'blocks', 'prefix', 'gradient', 'bfloat16')
FIRST = ('rope', 'alibi', 't5', 'learned', 'yarn', 'fire', 'cope', 'fox', 'dynamic_ntk(factor=2)', 'sinusoidal', 'xpos', 'log_n')


def specs():
  """All encodings of the contract, one of each mechanism first."""
  first = [properties.SETTINGS.get(name, name) for name in FIRST]
  return first + [spec for spec in properties.SPECS if spec not in first]


def allowed(tolerance):
  """That of this backend."""
  return tolerance if not tolerance or jax.default_backend() == 'cpu' else 10 * tolerance


def rows(end):
  """Yields a Row for each encoding, and one for those that the time, which ends at `end` of time.monotonic(), was not enough for."""
  todo = specs()
  while todo and time.monotonic() < end:
    yield _row(todo.pop(0), end)
  if todo:
    said = f'{len(todo)} more: the time was up (make contract, from the sources, takes them all)'
    yield Row('encodings', None, note=said)


def _row(spec, end):
  start, tried, wrong, worst = time.monotonic(), 0, [], (0.0, '', '')
  for name in WANTED:
    if tried and time.monotonic() > end:
      break
    function, tolerance = properties.PROPERTIES[name]
    tolerance, tried = allowed(tolerance), tried + 1
    value, said = _measured(function, spec, tolerance)
    wrong += [f'{name}: {said}'] if said else []
    if isinstance(value, float) and tolerance:
      worst = max(worst, (value / tolerance, f'{value:.0e} ({name})', f'{tolerance:.0e}'))
  tiny.forward.cache_clear()
  jax.clear_caches()
  note = '; '.join(wrong) if wrong else f'{tried} properties' + ('' if tried == len(WANTED) else ', then the time was up')
  return Row(spec, not wrong, worst[1], worst[2], note, time.monotonic() - start)


def _measured(function, spec, tolerance):
  """(what the property gave, '' if that is right or else a sentence)."""
  try:
    with jax.default_matmul_precision('highest'):
      value = function(spec)
  except Exception as error:  # one encoding's fault is one line of the table
    return None, f'{type(error).__name__}: {" ".join(str(error).split())[:200]}'
  return value, '' if properties.holds(value, tolerance) else f'{value:.1e} where {tolerance:.0e} is allowed'


def default_precision():
  """How far logits are off with products of float32 as the backend makes them by default; no more than in a bfloat16 model."""
  pos, doc = tiny.row(properties.LENGTH, total=properties.LENGTH)
  errors = []
  for seed in range(5):
    tokens = tiny.tokens(1, properties.LENGTH, seed)
    default = properties.run('rope', tokens, pos, doc)
    with jax.default_matmul_precision('highest'):
      full = properties.run('rope', tokens, pos, doc)
    errors.append(float(np.sqrt(np.mean((default - full) ** 2) / np.mean(full**2))))
  most, error = properties.PROPERTIES['bfloat16'][1], float(np.median(errors))
  return {'holds': error <= most, 'worst': f'{error:.0e}', 'allowed': f'{most:.0e}', 'note': 'against full float32'}
