"""Selective copy: the symbols of a string without its blanks.

    _ a _ _ c a _ > a c a .

`length` tokens, round(blanks x length) of them blank and at least one not; the blanks' places are uniform. Trained at one share of blanks,
a model can be tested sparser or denser. Gu, Dao, 2023, arXiv:2312.00752; Golovneva and others, 2024, arXiv:2405.18719 (CoPE).
"""

import numpy as np

from pe_jax.tasks.base import Task, answered, letters


def kept(length, blanks):
  """How many of `length` tokens are not blank."""
  return max(1, length - round(blanks * length))


def sample(rng, length, symbols, blanks):
  """(tokens, answer) of a string of `length` tokens."""
  x, text = rng.integers(symbols, size=kept(length, blanks)), np.full(length, symbols)
  text[np.sort(rng.permutation(length)[: len(x)])] = x
  return answered([*text, symbols + 1], [*x, symbols + 2])


def task(*, symbols=16, blanks=0.5):
  """`symbols`: different ones; `blanks`: the share of blanks."""
  return Task(
    words=(*letters(symbols), '_', '>', '.'),
    sample=lambda rng, length: sample(rng, length, symbols, blanks),
    size=lambda length: length + kept(length, blanks) + 2,
    alphabet=(*range(symbols), symbols + 2),
    stop=symbols + 2,
  )
