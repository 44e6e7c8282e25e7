"""Reverse: the string from its end.

    a c a b > b a c a .

`length` symbols, drawn as in copy.py. Kazemnejad and others, 2023, arXiv:2305.19466.
"""

from pe_jax.tasks import draws


def task(*, symbols=26, draw='random'):
  """`symbols`: different ones; `draw`: 'random', 'distinct' or 'constant'."""
  return draws.of_string('reverse', symbols, draw, lambda x: x[::-1])
