"""Copy: the string again.

    a c a b > a c a b .

`length` symbols, drawn independently ('random'), all different ('distinct') or all the same ('constant'). '.' is part of the answer: to
know where to stop is part of the task. Kazemnejad and others, 2023, arXiv:2305.19466; Jelassi and others, 2024, arXiv:2402.01032.
"""

from pe_jax.tasks import draws


def task(*, symbols=26, draw='random'):
  """`symbols`: different ones; `draw`: 'random', 'distinct' or 'constant'."""
  return draws.of_string('copy', symbols, draw, lambda x: x)
