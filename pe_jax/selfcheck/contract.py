"""Encodings through those properties of the contract that depend on the backend, at its tolerances, until the time is up.

All of them first through what one program each can show (together.py), then one of each mechanism through decoding with a cache,
attention in chunks and blocks, gradients, and bfloat16.

Matrix products are made in full float32 ('highest'): what a GPU or TPU rounds off by default would hide a fault of 1e-3. What that is
here is measured beside it (`default_precision`). What another shape may add up in another order, an accelerator is allowed ten times as
much of; what must be equal to the last bit must be so everywhere.
"""

import functools
import time

import jax
import numpy as np

from pe_jax.selfcheck import Row, properties, tiny, together

MORE = ('decoded', 'chunked', 'blocks', 'gradient', 'bfloat16')
FIRST = ('rope', 'alibi', 't5', 'learned', 'yarn', 'fire', 'cope', 'fox', 'dynamic_ntk(factor=2)', 'sinusoidal', 'xpos', 'log_n')


def specs():
  """All encodings of the contract, one of each mechanism first."""
  return mechanisms() + [spec for spec in properties.SPECS if spec not in mechanisms()]


def mechanisms():
  """One encoding of each."""
  return [properties.SETTINGS.get(name, name) for name in FIRST]


def names(quick):
  """What `rows` will call the rows that it yields, if there is time for all."""
  return [*specs(), *(() if quick else map(further, mechanisms()))]


def further(spec):
  """The name of an encoding's second row."""
  return f'{spec}, further'


def allowed(tolerance):
  """That of this backend."""
  return tolerance if not tolerance or jax.default_backend() == 'cpu' else 10 * tolerance


def rows(quick, end):
  """Yields a Row for each of `names`, as many as there is time for until `end` of time.monotonic()."""
  for spec in specs():
    if time.monotonic() > end:
      return
    yield _row(spec, functools.partial(together.tried, spec))
  for spec in () if quick else mechanisms():
    if time.monotonic() > end:
      return
    functions = {name: functools.partial(properties.PROPERTIES[name][0], spec) for name in MORE}
    yield _row(further(spec), functools.partial(dict, functions))


def _row(check, make):
  """`make` gives {property's name: what measures it}."""
  start, wrong, worst = time.monotonic(), [], (0.0, '', '')
  functions, said = _measured(make)
  wrong += [said] if said else []
  for name, function in (functions or {}).items():
    tolerance = allowed(properties.PROPERTIES[name][1])
    value, said = _measured(function)
    if not said and not properties.holds(value, tolerance):
      said = f'{value:.1e} where {tolerance:.0e} is allowed'
    wrong += [f'{name}: {said}'] if said else []
    if isinstance(value, float) and tolerance:
      worst = max(worst, (value / tolerance, f'{value:.0e} ({name})', f'{tolerance:.0e}'))
  tiny.forward.cache_clear()
  jax.clear_caches()
  note = '; '.join(wrong) if wrong else f'{len(functions)} properties'
  return Row(check, not wrong, worst[1], worst[2], note, time.monotonic() - start)


def _measured(function):
  """(what the function gave, '' or why it gave nothing)."""
  try:
    with jax.default_matmul_precision('highest'):
      return function(), ''
  except Exception as error:  # one encoding's fault is one line of the table
    return None, f'{type(error).__name__}: {" ".join(str(error).split())[:200]}'


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
