"""Bucket sort: symbols of a small ordered alphabet in ascending order, repetitions and all.

    1 0 2 0 4 1 > 0 0 1 1 2 4

`length` uniform symbols, as many in the answer. Delétang and others, 2022, arXiv:2207.02098 (context-sensitive).
"""

import numpy as np

from pe_jax.tasks.base import Task, answered, numbered


def sample(rng, length, symbols):
  """(tokens, answer) of `length` symbols."""
  x = rng.integers(symbols, size=length)
  return answered([*x, symbols], np.sort(x))


def task(*, symbols=5):
  """`symbols`: different ones. Chance of a token 1/symbols."""
  return Task(
    words=(*numbered(symbols), '>'),
    sample=lambda rng, length: sample(rng, length, symbols),
    size=lambda length: 2 * length + 1,
    alphabet=range(symbols),
  )
