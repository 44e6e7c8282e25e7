"""Counting since an event: how often was the variable assigned after the last `pass`?

    a _ a pass _ a b a > a 2 .

`length` instructions: `pass` with probability `passes`, else one of the variables or the idle `_`, all equally likely. After '>' comes the
variable that is asked for; the answer is the number of its assignments since the last `pass` (or the beginning), in decimal. After the
counting task of Golovneva and others, 2024, arXiv:2405.18719 (CoPE), with `pass` as the event that starts the count again.
"""

import numpy as np

from pe_jax.tasks.base import Task, answered, letters, numbered

ASK, STOP = 10, 11  # digits 0 .. 9 come first


def sample(rng, length, variables, passes):
  """(tokens, answer) of `length` instructions."""
  text = rng.integers(variables + 1, size=length)  # `variables` is the idle one
  text[rng.random(length) < passes] = variables + 1
  asked = rng.integers(variables)
  events = np.flatnonzero(text == variables + 1)
  count = np.sum(text[events[-1] if len(events) else 0 :] == asked)
  return answered([*(text + STOP + 1), ASK, asked + STOP + 1], [*map(int, str(count)), STOP])


def task(*, variables=1, passes=0.1):
  """`variables`: how many there are; `passes`: the share of `pass`."""
  return Task(
    words=(*numbered(10), '>', '.', *letters(variables), '_', 'pass'),
    sample=lambda rng, length: sample(rng, length, variables, passes),
    size=lambda length: length + 3 + len(str(length)),
    alphabet=(*range(10), STOP),
    stop=STOP,
  )
