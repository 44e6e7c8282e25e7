"""Frequent words: the most frequent of a text whose words follow a power law, the most frequent first.

    c a c b c a > c a b .                        top=3

`length` words, the r-th likeliest with probability proportional to r^-exponent; which word that is is drawn for each sample. Texts in which
the `top` most frequent words are not all of different frequency, or not more frequent than the next, are drawn again. After the frequent
words extraction of Hsieh and others, 2024, arXiv:2404.06654 (RULER).
"""

import numpy as np

from pe_jax.errors import ConfigError
from pe_jax.tasks.base import Task, answered, at_least, letters
from pe_jax.tasks.draws import listed

TRIES = 20_000  # in which something that happens once in a thousand times is sure to happen


def sample(rng, length, symbols, top, exponent):
  """(tokens, answer) of a text of `length` words."""
  cumulative = np.cumsum(np.arange(1, symbols + 1) ** -exponent)
  for _ in range(TRIES):
    words = rng.permutation(symbols)
    text = words[np.searchsorted(cumulative / cumulative[-1], rng.random(length), side='right')]
    counts = np.bincount(text, minlength=symbols)
    order = np.argsort(-counts, kind='stable')
    if np.all(np.diff(counts[order[: top + 1]]) < 0):
      return answered([*text, symbols], [*order[:top], symbols + 1])
  raise ConfigError(
    f'frequent_words: in none of {TRIES} texts of {length} words had the {top} most frequent different frequencies (take longer texts, '
    'or a smaller top)'
  )


def task(*, symbols=64, top=3, exponent=2.0):
  """`symbols`: words there are; `top`: those to be named; `exponent`: of the power law."""
  at_least('frequent_words', 'symbols', symbols, top + 1, f'more than top={top}')
  return Task(
    words=(*letters(symbols), '>', '.'),
    sample=lambda rng, length: sample(rng, length, symbols, top, exponent),
    size=lambda length: length + top + 2,
    alphabet=(*range(symbols), symbols + 1),
    shortest=top * (top + 1) // 2,
    stop=symbols + 1,
    judge=lambda prompt, answer: listed(range(symbols), prompt, answer, symbols + 1, top),
  )
