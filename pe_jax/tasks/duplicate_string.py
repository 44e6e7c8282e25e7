"""Duplicate string: the bits twice.

    1 0 1 > 1 0 1 1 0 1

`length` uniform bits, twice as many in the answer. Delétang and others, 2022, arXiv:2207.02098 (context-sensitive).
"""

from pe_jax.tasks.base import Task, answered


def sample(rng, length):
  """(tokens, answer) of `length` bits."""
  x = rng.integers(2, size=length)
  return answered([*x, 2], [*x, *x])


def task():
  """Chance of a token 1/2."""
  return Task(words=('0', '1', '>'), sample=sample, size=lambda length: 3 * length + 1, alphabet=(0, 1))
