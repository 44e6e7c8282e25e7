"""Copy: the string again.

    a c a b > a c a b .

`length` symbols, drawn independently ('random'), all different ('distinct') or all the same ('constant'). '.' is part of the answer: to
know where to stop is part of the task. Kazemnejad and others, 2023, arXiv:2305.19466; Jelassi and others, 2024, arXiv:2402.01032.
"""

from pe_jax.tasks.base import Task, answered, letters
from pe_jax.tasks.draws import check_draw, string


def sample(rng, length, symbols, draw):
  """(tokens, answer) of a string of `length` symbols."""
  x = string(rng, length, symbols, draw)
  return answered([*x, symbols], [*x, symbols + 1])


def task(*, symbols=26, draw='random'):
  """`symbols`: different ones; `draw`: 'random', 'distinct' or 'constant'."""
  check_draw('copy', draw)
  return Task(
    words=(*letters(symbols), '>', '.'),
    sample=lambda rng, length: sample(rng, length, symbols, draw),
    size=lambda length: 2 * length + 2,
    alphabet=(*range(symbols), symbols + 1),
    longest=symbols if draw == 'distinct' else None,
    stop=symbols + 1,
  )
