"""Reverse string: bits from the end.

    0 1 1 1 > 1 1 1 0

`length` uniform bits, as many in the answer. Delétang and others, 2022, arXiv:2207.02098 (deterministic context-free).
"""

from pe_jax.tasks.base import Task, answered


def sample(rng, length):
  """(tokens, answer) of `length` bits."""
  x = rng.integers(2, size=length)
  return answered([*x, 2], x[::-1])


def task():
  """Chance of a token 1/2."""
  return Task(words=('0', '1', '>'), sample=sample, size=lambda length: 2 * length + 1, alphabet=(0, 1))
