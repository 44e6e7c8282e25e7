"""Indirect indexing: the symbol so many places before or after a named one.

    c a d b > d -1 a

`length` symbols; the source occurs once among them, at a uniform place, and the others are uniform over the rest. The shift is uniform over
-reach .. reach without 0, as far as it stays inside. Gopalakrishnan and others, 2025, arXiv:2509.10534 (PoPE): what and where apart.
"""

from pe_jax.tasks.base import Task, answered, at_least, letters


def sample(rng, length, symbols, reach):
  """(tokens, answer) of a string of `length` symbols."""
  source, place = rng.integers(symbols), rng.integers(length)
  x = rng.integers(symbols - 1, size=length)
  x += x >= source
  x[place] = source
  shifts = [s for s in range(max(-reach, -place), min(reach, length - 1 - place) + 1) if s]
  shift = shifts[rng.integers(len(shifts))]
  return answered([*x, symbols, source, symbols + 1 + _rank(shift, reach)], [x[place + shift]])


def _rank(shift, reach):
  """0 .. 2 reach - 1 for -reach .. -1, 1 .. reach."""
  return shift + reach - (shift > 0)


def task(*, symbols=26, reach=10):
  """`symbols`: different ones; `reach`: the largest shift."""
  at_least('indirect', 'symbols', symbols, 2, 'the source and what is not')
  shifts = tuple(f'{s:+d}' for s in range(-reach, reach + 1) if s)
  return Task(
    words=(*letters(symbols), '>', *shifts),
    sample=lambda rng, length: sample(rng, length, symbols, reach),
    size=lambda length: length + 4,
    alphabet=range(symbols),
    shortest=2,
  )
