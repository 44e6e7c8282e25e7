"""Needles in a haystack: keys with values among fillers, and the question for some of them.

    f f k2 v9 f f f k7 v4 f ? k7 > v4 .        needles=2

`length` tokens of fillers and needles; a needle is a key and a value. `needles` different keys have `values` values each, all different.
After '?' come `queries` of the keys, after '>' their values: those of the first key in the order of the haystack, then those of the next.
Single: niah(). Multi-key: niah(needles=4). Multi-value: niah(values=4). Multi-query: niah(needles=4, queries=4). Hsieh and others, 2024,
arXiv:2404.06654 (RULER), on token ids.
"""

from pe_jax.tasks.base import Task, answered, at_least, numbered
from pe_jax.tasks.draws import listed, scattered

FILLERS, NAMES = 32, 64
KEY, VALUE, ASK = FILLERS, FILLERS + NAMES, FILLERS + 2 * NAMES
STOP = ASK + 2


def sample(rng, length, needles, values, queries):
  """(tokens, answer) of a haystack of `length` tokens."""
  key = [KEY + int(k) for k in rng.permutation(NAMES)[:needles]]
  value = VALUE + rng.permutation(NAMES)[: needles * values]
  pairs = [(key[n % needles], int(v)) for n, v in enumerate(value)]
  pairs = [pairs[n] for n in rng.permutation(len(pairs))]
  asked = [key[n] for n in rng.permutation(needles)[:queries]]
  found = [v for k in asked for name, v in pairs if name == k]
  return answered([*scattered(rng, pairs, length, FILLERS), ASK, *asked, ASK + 1], [*found, STOP])


def task(*, needles=1, values=1, queries=1):
  """`needles`: keys in the haystack; `values`: of each; `queries`: keys that are asked for."""
  at_least('niah', 'needles', needles, queries, f'as many as queries={queries}')
  at_least('niah', f'needles={needles}, values={values}: names left', NAMES - needles * values, 0, f'since there are {NAMES}')
  names = range(VALUE, ASK)
  return Task(
    words=(*numbered(FILLERS, 'f'), *numbered(NAMES, 'k'), *numbered(NAMES, 'v'), '?', '>', '.'),
    sample=lambda rng, length: sample(rng, length, needles, values, queries),
    size=lambda length: length + queries + 2 + queries * values + 1,
    alphabet=(*names, STOP),
    shortest=2 * needles * values,
    stop=STOP,
    judge=lambda prompt, answer: listed(names, prompt, answer, STOP, queries * values),
  )
