"""Strings and haystacks: what several tasks draw their prompts from."""

import numpy as np

from pe_jax.tasks.base import Task, answered, choice, letters

DRAWS = ('random', 'distinct', 'constant')


def string(rng, length, symbols, draw):
  """`length` symbols: independent and uniform, all different, or one of them again and again."""
  if draw == 'distinct':
    return rng.permutation(symbols)[:length]
  return np.repeat(rng.integers(symbols), length) if draw == 'constant' else rng.integers(symbols, size=length)


def of_string(name, symbols, draw, answer):
  """The Task whose answer is `answer`, string -> string as long; '.' ends it."""
  choice(name, 'draw', draw, DRAWS)

  def sample(rng, length):
    x = string(rng, length, symbols, draw)
    return answered([*x, symbols], [*answer(x), symbols + 1])

  return Task(
    words=(*letters(symbols), '>', '.'),
    sample=sample,
    size=lambda length: 2 * length + 2,
    alphabet=(*range(symbols), symbols + 1),
    longest=symbols if draw == 'distinct' else None,
    stop=symbols + 1,
  )


def scattered(rng, pieces, length, fillers):
  """Pieces (lists of ids) in their order, filler ids 0 .. fillers-1 before, between and after them: `length` tokens.

  Every way of putting them is equally likely; a piece stays together.
  """
  spare = length - sum(map(len, pieces))
  filler = rng.integers(fillers, size=spare)
  places = np.sort(rng.permutation(spare + len(pieces))[: len(pieces)]) - np.arange(len(pieces))
  text, done = [], 0
  for place, piece in zip(places, pieces):
    text += [*filler[done:place], *piece]
    done = place
  return [*text, *filler[done:]]


def listed(names, prompt, answer, stop, count):
  """The verdict on a list: (whether it is `count` ids of `names` and then `stop`, whether all names in it stand in the prompt)."""
  names, named = set(names), [i for i in answer if i in set(names)]
  well_formed = len(answer) == count + 1 and answer[-1] == stop and len(named) == count
  return well_formed, set(named) <= names & set(prompt)
