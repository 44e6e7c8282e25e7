"""Multi-query associative recall: pairs of a key and a value, then keys whose values are wanted.

    k3 v1 k0 v7 k5 v1 > k0 v7 k3 v1            pairs=3, queries=2

`length` is the number of pairs; their keys are different, their values uniform. After each pair come `gap` fillers. The queries are
different keys of the context in any order, each followed by its value, which is a target. With `episodes` the whole is repeated with new
pairs, as in a talk of several turns, and the latest value of a key is the one that holds. Arora and others, 2023, arXiv:2312.04927.
"""

import numpy as np

from pe_jax.tasks.base import Task, at_least, numbered


def sample(rng, length, keys, values, gap, queries, episodes):
  """(tokens, answer) with `length` pairs an episode."""
  tokens, answer = [], []
  for _ in range(episodes):
    key, value = rng.permutation(keys)[:length], keys + rng.integers(values, size=length)
    filler = keys + values + 1 + rng.integers(FILLERS, size=(length, gap))
    pairs = np.concatenate([key[:, None], value[:, None], filler], axis=1).ravel()
    asked = rng.permutation(length)[:queries]
    told = np.stack([key[asked], value[asked]], axis=1).ravel()
    tokens += [*pairs, keys + values, *told]
    answer += [*[False] * (len(pairs) + 1), *[False, True] * queries]
  return np.asarray(tokens, np.int32), np.asarray(answer)


FILLERS = 16


def task(*, keys=64, values=64, gap=0, queries=1, episodes=1):
  """`keys`, `values`: different ones; `gap`: fillers after a pair; `queries`: keys asked for in each of `episodes`."""
  at_least('recall', 'keys', keys, queries, f'as many as queries={queries}')
  return Task(
    words=(*numbered(keys, 'k'), *numbered(values, 'v'), '>', *numbered(FILLERS if gap else 0, 'f')),
    sample=lambda rng, length: sample(rng, length, keys, values, gap, queries, episodes),
    size=lambda length: episodes * (length * (2 + gap) + 1 + 2 * queries),
    alphabet=range(keys, keys + values),
    shortest=queries,
    longest=keys,
  )
