"""Missing duplicate string: a string of bits stands there twice with one bit left out; which is it?

    0 1 1 0 0 2 1 0 > 1

`length` tokens, two equal halves of uniform bits, one of all of them, uniformly chosen, replaced by the gap 2; at an odd length the token 3
fills up. Delétang and others, 2022, arXiv:2207.02098 (context-sensitive).
"""

from pe_jax.tasks.base import Task, answered

GAP, FILL, ANSWER = 2, 3, 4


def sample(rng, length):
  """(tokens, answer) of `length` tokens."""
  half = rng.integers(2, size=length // 2)
  text, place = [*half, *half], rng.integers(2 * len(half))
  missing, text[place] = text[place], GAP
  return answered([*text, *[FILL] * (length % 2), ANSWER], [missing])


def task():
  """Chance 1/2."""
  return Task(words=('0', '1', '2', '3', '>'), sample=sample, size=lambda length: length + 2, alphabet=(0, 1), shortest=2)
