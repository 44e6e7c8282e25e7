"""Parity check: is the number of ones even (0) or odd (1)?

    0 1 1 1 1 > 0

`length` uniform bits. Delétang and others, 2022, arXiv:2207.02098 (regular).
"""

from pe_jax.tasks.base import Task, answered


def sample(rng, length):
  """(tokens, answer) of `length` bits."""
  x = rng.integers(2, size=length)
  return answered([*x, 2], [x.sum() % 2])


def task():
  """Chance 1/2."""
  return Task(words=('0', '1', '>'), sample=sample, size=lambda length: length + 2, alphabet=(0, 1))
