"""Content needle: one value among fillers, and the question what it was.

    f f V f f ? V

`length` tokens, fillers uniform from F, with one value (uniform from V, at a uniform place) instead of a filler; then '?', and the value.
One layer suffices, so the task shows dilution of attention and penalties on distance by themselves. Chance: 1/V.
"""

from pe_jax.tasks.base import Task, answered, letters, numbered


def sample(rng, length, fillers, values):
  """(tokens, answer) of a context of `length` tokens."""
  context = rng.integers(fillers, size=length)
  value = fillers + rng.integers(values)
  context[rng.integers(length)] = value
  return answered([*context, fillers + values], [value])


def task(*, fillers=38, values=26):
  """`fillers` and `values`: how many different ones there are."""
  return Task(
    words=(*numbered(fillers), *letters(values), '?'),
    sample=lambda rng, length: sample(rng, length, fillers, values),
    size=lambda length: length + 2,
    alphabet=range(fillers, fillers + values),
  )
