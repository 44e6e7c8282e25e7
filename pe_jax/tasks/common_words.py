"""Common words: those that a list has several times as often as any other.

    d a c a b a c c a c > a c .                 common=2, ratio=4

`length` words in a random order. With `symbols` words, u = max(1, length // (symbols - common + ratio common)): each of the common ones
stands ratio x u times in the list, and the others share what is left of it as evenly as can be, in fewer copies each than a common one has.
The answer names the common words in the order in which they first appear. After the common words extraction of Hsieh and others, 2024,
arXiv:2404.06654 (RULER), where the vocabulary grows with the length and the order is free.
"""

import numpy as np

from pe_jax.tasks.base import Task, answered, at_least, letters
from pe_jax.tasks.draws import listed


def sample(rng, length, symbols, common, ratio):
  """(tokens, answer) of a list of `length` words."""
  words, others = rng.permutation(symbols), symbols - common
  times = ratio * max(1, length // (others + ratio * common))
  rest = np.resize(words[common:], length - common * times)  # round and round
  text = rng.permutation(np.concatenate([np.repeat(words[:common], times), rest]))
  named = sorted(words[:common], key=lambda word: np.argmax(text == word))
  return answered([*text, symbols], [*named, symbols + 1])


def task(*, symbols=64, common=2, ratio=4):
  """`symbols`: words there are; `common`: those to be named; `ratio`: how many times as often they stand there."""
  at_least('common_words', 'ratio', ratio, 4, 'or others could be as common')
  at_least('common_words', 'symbols', symbols, common * (1 + ratio), f'with common={common} and ratio={ratio}')
  return Task(
    words=(*letters(symbols), '>', '.'),
    sample=lambda rng, length: sample(rng, length, symbols, common, ratio),
    size=lambda length: length + common + 2,
    alphabet=(*range(symbols), symbols + 1),
    shortest=common * ratio,
    stop=symbols + 1,
    judge=lambda prompt, answer: listed(range(symbols), prompt, answer, symbols + 1, common),
  )
