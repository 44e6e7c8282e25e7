"""Sort: different tokens of an ordered vocabulary in ascending order.

    7 2 31 > 2 7 31 .

`length` different numbers below `symbols`, every order equally likely. Zhou and others, 2023, arXiv:2310.16028 (RASP-L).
"""

import numpy as np

from pe_jax.tasks.base import Task, answered, numbered


def sample(rng, length, symbols):
  """(tokens, answer) of `length` numbers."""
  x = rng.permutation(symbols)[:length]
  return answered([*x, symbols], [*np.sort(x), symbols + 1])


def task(*, symbols=64):
  """`symbols`: numbers there are, and so the longest length."""
  return Task(
    words=(*numbered(symbols), '>', '.'),
    sample=lambda rng, length: sample(rng, length, symbols),
    size=lambda length: 2 * length + 2,
    alphabet=(*range(symbols), symbols + 1),
    longest=symbols,
    stop=symbols + 1,
  )
