"""Mode: the most frequent symbol.

    a b b c b a > b

`length` uniform symbols; strings in which several symbols are the most frequent are drawn again. Zhou and others, 2023, arXiv:2310.16028
(RASP-L).
"""

import numpy as np

from pe_jax.tasks.base import Task, answered, letters


def sample(rng, length, symbols):
  """(tokens, answer) of `length` symbols."""
  while True:
    x = rng.integers(symbols, size=length)
    counts = np.bincount(x, minlength=symbols)
    if np.sum(counts == counts.max()) == 1:
      return answered([*x, symbols], [np.argmax(counts)])


def task(*, symbols=16):
  """`symbols`: different ones."""
  return Task(
    words=(*letters(symbols), '>'),
    sample=lambda rng, length: sample(rng, length, symbols),
    size=lambda length: length + 2,
    alphabet=range(symbols),
  )
