"""Square root of a binary number, rounded down, the bit of greatest weight first.

    1 0 0 1 0 1 > 1 1 0                           37, 6

`length` bits of a uniform number from 1 on; the answer has ceil(length / 2) bits. Delétang and others, 2022, arXiv:2207.02098
(context-sensitive).
"""

import math

from pe_jax.tasks.base import Task, answered
from pe_jax.tasks.bits import bits, positive


def sample(rng, length):
  """(tokens, answer) of `length` bits."""
  number = positive(rng, length)
  return answered([*bits(number, length)[::-1], 2], bits(math.isqrt(number), -(-length // 2))[::-1])


def task():
  """Chance of a token 1/2."""
  return Task(words=('0', '1', '>'), sample=sample, size=lambda length: length + 1 + -(-length // 2), alphabet=(0, 1))
