"""Modular arithmetic without brackets: the value of an expression modulo 5, products before sums.

    1 + 2 * 3 > 2

`length` tokens, digits and operators by turns, so that lengths are odd; both are uniform. Delétang and others, 2022, arXiv:2207.02098
(regular).
"""

import numpy as np

from pe_jax.tasks.base import Task, answered, at_least, numbered


def sample(rng, length, modulus):
  """(tokens, answer) of an expression of `length` tokens."""
  digits, operators = rng.integers(modulus, size=length // 2 + 1), rng.integers(3, size=length // 2)
  tokens = np.empty(length, np.int32)
  tokens[::2], tokens[1::2] = digits, modulus + operators
  return answered([*tokens, modulus + 3], [value(digits, operators, modulus)])


def value(digits, operators, modulus):
  """The value; operators 0, 1, 2 are +, -, *."""
  total, product = 0, int(digits[0])  # `product` is the term that may yet be multiplied
  for digit, operator in zip(digits[1:], operators):
    if operator == 2:
      product = product * int(digit) % modulus
    else:
      total, product = total + product, int(digit) if operator == 0 else -int(digit)
  return (total + product) % modulus


def task(*, modulus=5):
  """`modulus`: and the number of digits. Chance 1/modulus."""
  at_least('modular_arithmetic_simple', 'modulus', modulus, 2, 'or all values are equal')
  return Task(
    words=(*numbered(modulus), '+', '-', '*', '>'),
    sample=lambda rng, length: sample(rng, length, modulus),
    size=lambda length: length + 2,
    alphabet=range(modulus),
    step=2,
  )
