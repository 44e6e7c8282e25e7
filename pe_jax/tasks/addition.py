"""Decimal addition, in the formats that decide whether it generalises.

    2 4 + 9 1 = 1 6 0 .                        42 + 19 = 061: reversed, padded
    a 2 b 4 + a 9 b 1 = a 1 b 6 c 0 .          with index hints

Reversed: the digit of least weight first. Padded: both numbers have `length` digits, any of them 0, and the sum has length + 1. Not padded:
one number has `length` digits, the other 1 to `length`, and none has a needless leading zero. Index hints: before each digit a letter that
says its weight, the same in both numbers and in the sum; the letters are consecutive ones of `hints`, from a place drawn for each sample,
so that all letters are trained on short sums. Zhou and others, 2024, arXiv:2402.09371; Lee and others, 2023, arXiv:2307.03381.
"""

import numpy as np

from pe_jax.tasks.base import Task, answered, at_least, letters, numbered

PLUS, EQUALS, STOP = 10, 11, 12  # digits 0 .. 9 come first


def sample(rng, length, reversed, hints, padded):
  """(tokens, answer) of a sum of numbers of `length` digits."""
  a, b = _number(rng, length, padded), _number(rng, length if padded else 1 + rng.integers(length), padded)
  a, b = (a, b) if rng.integers(2) else (b, a)
  first = STOP + 1 + rng.integers(hints - length) if hints else None

  def written(digits):
    marked = [(first + weight, digit) if hints else (digit,) for weight, digit in enumerate(digits)]
    return [token for one in (marked if reversed else marked[::-1]) for token in one]

  return answered([*written(a), PLUS, *written(b), EQUALS], [*written(added(a, b, padded)), STOP])


def _number(rng, length, padded):
  """Digits from the least weight on."""
  digits = rng.integers(10, size=length)
  if not padded and length > 1:
    digits[-1] = 1 + rng.integers(9)
  return digits


def added(a, b, padded):
  """The digits of a + b from the least weight on, one more than the longer of them has where `padded`, else as many as needed."""
  size = max(len(a), len(b))
  column = np.pad(a, (0, size - len(a))) + np.pad(b, (0, size - len(b)))
  digits, carry = [], 0
  for total in column:
    digits.append(int(total + carry) % 10)
    carry = int(total + carry) // 10
  return [*digits, carry] if padded or carry else digits


def task(*, reversed=True, hints=0, padded=True):
  """`reversed`, `padded`: see above; `hints`: letters there are for weights, one more than the longest length; 0: no hints."""
  if hints:
    at_least('addition', 'hints', hints, 2, 'one for each digit of the sum')
  return Task(
    words=(*numbered(10), '+', '=', '.', *letters(hints)),
    sample=lambda rng, length: sample(rng, length, reversed, hints, padded),
    size=lambda length: (3 * length + 1) * (2 if hints else 1) + 3,
    alphabet=(*range(10), *range(STOP, STOP + 1 + hints)),
    longest=hints - 1 if hints else None,
    stop=STOP,
  )
