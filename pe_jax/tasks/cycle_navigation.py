"""Cycle navigation: where on a circle of five places does a walk end that begins at 0?

    + - 0 - - > 3

`length` steps, uniform: forward (+), back (-) or none (the word 0, which is also a place). Delétang and others, 2022, arXiv:2207.02098
(regular).
"""

from pe_jax.tasks.base import Task, answered

PLACES = 5


def sample(rng, length):
  """(tokens, answer) of `length` steps: token 0 stays, PLACES goes forward, PLACES + 1 back."""
  step = rng.integers(-1, 2, size=length)
  tokens = [{0: 0, 1: PLACES, -1: PLACES + 1}[int(s)] for s in step]
  return answered([*tokens, PLACES + 2], [step.sum() % PLACES])


def task():
  """Chance 1/5."""
  words = ('0', '1', '2', '3', '4', '+', '-', '>')
  return Task(words=words, sample=sample, size=lambda length: length + 2, alphabet=range(PLACES))
