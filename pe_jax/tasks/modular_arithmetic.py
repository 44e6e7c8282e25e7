"""Modular arithmetic with brackets: the value of an expression modulo 5.

    ( ( 2 ) * - 3 ) > 4

`length` tokens; expressions.py says how they are drawn. Delétang and others, 2022, arXiv:2207.02098 (deterministic context-free).
"""

from pe_jax.tasks.base import Task, answered, at_least, numbered
from pe_jax.tasks.expressions import expression


def words(modulus):
  """Digits, operators, brackets, '>'."""
  return (*numbered(modulus), '+', '-', '*', '(', ')', '>')


def sample(rng, length, modulus):
  """(tokens, answer) of an expression of `length` tokens."""
  text, value = expression(rng, length, modulus, '+-*')
  return answered([words(modulus).index(w) for w in (*text, '>')], [value])


def task(*, modulus=5):
  """`modulus`: and the number of digits. Chance 1/modulus."""
  at_least('modular_arithmetic', 'modulus', modulus, 2, 'or all values are equal')
  return Task(
    words=words(modulus),
    sample=lambda rng, length: sample(rng, length, modulus),
    size=lambda length: length + 2,
    alphabet=range(modulus),
  )
