"""Reverse: the string from its end.

    a c a b > b a c a .

`length` symbols, drawn as in copy.py. Kazemnejad and others, 2023, arXiv:2305.19466.
"""

from pe_jax.tasks.base import Task, answered, letters
from pe_jax.tasks.draws import check_draw, string


def sample(rng, length, symbols, draw):
  """(tokens, answer) of a string of `length` symbols."""
  x = string(rng, length, symbols, draw)
  return answered([*x, symbols], [*x[::-1], symbols + 1])


def task(*, symbols=26, draw='random'):
  """`symbols`: different ones; `draw`: 'random', 'distinct' or 'constant'."""
  check_draw('reverse', draw)
  return Task(
    words=(*letters(symbols), '>', '.'),
    sample=lambda rng, length: sample(rng, length, symbols, draw),
    size=lambda length: 2 * length + 2,
    alphabet=(*range(symbols), symbols + 1),
    longest=symbols if draw == 'distinct' else None,
    stop=symbols + 1,
  )
