"""Count: from one number to another.

    4 7 > 4 5 6 7 .

`length` numbers are counted, the first uniform. Zhou and others, 2023, arXiv:2310.16028 (RASP-L): one of the easy ones.
"""

from pe_jax.tasks.base import Task, answered, numbered


def sample(rng, length, numbers):
  """(tokens, answer) of `length` numbers."""
  first = rng.integers(numbers - length + 1)
  return answered([first, first + length - 1, numbers], [*range(first, first + length), numbers + 1])


def task(*, numbers=128):
  """`numbers`: how many there are, and so the longest length."""
  return Task(
    words=(*numbered(numbers), '>', '.'),
    sample=lambda rng, length: sample(rng, length, numbers),
    size=lambda length: length + 4,
    alphabet=(*range(numbers), numbers + 1),
    longest=numbers,
    stop=numbers + 1,
  )
