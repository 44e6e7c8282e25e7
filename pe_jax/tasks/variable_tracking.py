"""Variable tracking: which variables have the value, through assignments of one variable to the next?

    f x3 = v5 f f x1 = x3 f x8 = x1 f ? v5 > x3 x1 x8 .        hops=2

`length` tokens of fillers and statements of three tokens. Each of `chains` begins with a variable that gets a value and goes on with `hops`
assignments; statements of one chain stand in order, those of different chains in any. After '?' comes the value of one chain, after '>' its
variables in order. Hsieh and others, 2024, arXiv:2404.06654 (RULER), on token ids.
"""

import numpy as np

from pe_jax.tasks.base import Task, answered, at_least, numbered
from pe_jax.tasks.draws import listed, scattered

FILLERS, NAMES = 32, 64
NAME, VALUE, EQUALS = FILLERS, FILLERS + NAMES, FILLERS + 2 * NAMES
ASK, ANSWER, STOP = EQUALS + 1, EQUALS + 2, EQUALS + 3


def sample(rng, length, chains, hops):
  """(tokens, answer) of a text of `length` tokens."""
  names = (NAME + rng.permutation(NAMES)[: chains * (hops + 1)]).reshape(chains, hops + 1)
  value = VALUE + rng.permutation(NAMES)[:chains]
  source = np.concatenate([value[:, None], names[:, :-1]], axis=1)
  turns = rng.permutation(np.repeat(np.arange(chains), hops + 1))
  place = [np.sum(turns[:n] == chain) for n, chain in enumerate(turns)]
  statements = [[names[c, n], EQUALS, source[c, n]] for c, n in zip(turns, place)]
  asked = rng.integers(chains)
  return answered([*scattered(rng, statements, length, FILLERS), ASK, value[asked], ANSWER], [*names[asked], STOP])


def task(*, chains=1, hops=4):
  """`chains`: of assignments, one of which is asked for; `hops`: from variable to variable in each."""
  statements, names = chains * (hops + 1), range(NAME, VALUE)
  at_least('variable_tracking', f'chains={chains}, hops={hops}: names left', NAMES - statements, 0, f'since there are {NAMES}')
  return Task(
    words=(*numbered(FILLERS, 'f'), *numbered(NAMES, 'x'), *numbered(NAMES, 'v'), '=', '?', '>', '.'),
    sample=lambda rng, length: sample(rng, length, chains, hops),
    size=lambda length: length + 3 + hops + 2,
    alphabet=(*names, STOP),
    shortest=3 * statements,
    stop=STOP,
    judge=lambda prompt, answer: listed(names, prompt, answer, STOP, hops + 1),
  )
