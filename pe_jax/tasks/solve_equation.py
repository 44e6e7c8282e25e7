"""Solve equation: the value of the unknown, modulo 5.

    ( x - 2 ) = 1 > 3

An expression with brackets, + and - (expressions.py) in which one digit, each equally likely, is hidden as x; then '=' and its value.
`length` counts all of that. Without products there is exactly one solution. Delétang and others, 2022, arXiv:2207.02098 (deterministic
context-free); like their code it leaves out products.
"""

from pe_jax.tasks.base import Task, answered, at_least, numbered
from pe_jax.tasks.expressions import expression


def words(modulus):
  """Digits, operators, brackets, the unknown, '=', '>'."""
  return (*numbered(modulus), '+', '-', '(', ')', 'x', '=', '>')


def sample(rng, length, modulus):
  """(tokens, answer) of an equation of `length` tokens."""
  text, value = expression(rng, length - 2, modulus, '+-')
  digits = [n for n, w in enumerate(text) if w in words(modulus)[:modulus]]
  place = digits[rng.integers(len(digits))]
  solution, text[place] = int(text[place]), 'x'
  return answered([words(modulus).index(w) for w in (*text, '=', str(value), '>')], [solution])


def task(*, modulus=5):
  """`modulus`: and the number of digits. Chance 1/modulus."""
  at_least('solve_equation', 'modulus', modulus, 2, 'or all values are equal')
  return Task(
    words=words(modulus),
    sample=lambda rng, length: sample(rng, length, modulus),
    size=lambda length: length + 2,
    alphabet=range(modulus),
    shortest=3,
  )
