"""The record of a task, and the few things all of them are made of.

A sample is a prompt of token ids and the answer after it. The loss is taken on the answer alone; a row of a batch is BOS and one sample.
"""

import dataclasses
import string
from collections.abc import Callable, Sequence

import numpy as np

from pe_jax.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Task:
  """What a file of this folder gives.

  Attributes:
    words: what token ids 0, 1, … are called; BOS comes after the last.
    sample: (rng, length) -> (tokens int32, answer bool), equally long. A pure function of the state of `rng`, a numpy Generator.
    size: length -> tokens of the longest sample of that length.
    alphabet: ids that answers consist of, from which a guesser draws: the chance of a token is 1 in their number.
    shortest, longest, step: lengths there are; longest None: no end.
    floor: tokens -> nats of each under the best predictor that does not know how the sample was drawn, where that is known.
    stop: id of the '.' that ends an answer, if one does.
    judge: (prompt, answer) -> (whether the answer keeps the format, whether all it names stands in the prompt), for any generated answer.
    spec: the task as a string.
  """

  words: tuple[str, ...]
  sample: Callable
  size: Callable[[int], int]
  alphabet: Sequence[int]
  shortest: int = 1
  longest: int | None = None
  step: int = 1
  floor: Callable | None = None
  stop: int | None = None
  judge: Callable | None = None
  spec: str = ''

  @property
  def bos(self):
    """The id of BOS."""
    return len(self.words)

  @property
  def vocab_size(self):
    """Words and BOS."""
    return len(self.words) + 1

  def positions(self, length):
    """What a row for any sample of the length needs: BOS and the longest one."""
    return 1 + self.size(length)

  def lengths(self, shortest, longest):
    """The lengths there are from shortest to longest."""
    end = longest if self.longest is None else min(longest, self.longest)
    return range(self.shortest + -(-max(0, shortest - self.shortest) // self.step) * self.step, end + 1, self.step)

  def check_length(self, length, field='lengths'):
    """Refuses a length that the task has no samples of."""
    if length in self.lengths(length, length):
      return
    end = '' if self.longest is None else f' to {self.longest}'
    steps = f' in steps of {self.step}' if self.step > 1 else ''
    raise ConfigError(
      f'{field}: {self.spec} has no samples of length {length} (its lengths are {self.shortest}{end or " and more"}{steps})'
    )

  def chance(self, answers):
    """(share of tokens, share of whole answers) a guesser gets right who knows the alphabet and how many tokens each answer has."""
    right = 1 / len(self.alphabet)
    return right, float(np.mean(right ** np.asarray(answers, np.float64)))


def answered(prompt, answer):
  """(tokens, mask of the answer) of a prompt and what follows it."""
  tokens = np.concatenate([prompt, answer]).astype(np.int32)
  return tokens, np.arange(len(tokens)) >= len(prompt)


def letters(count):
  """a, b … z, a1, b1 …"""
  return tuple(string.ascii_lowercase[i % 26] + (str(i // 26) if i >= 26 else '') for i in range(count))


def numbered(count, prefix=''):
  """0, 1, 2 … after the prefix."""
  return tuple(f'{prefix}{i}' for i in range(count))


def choice(task, field, value, known):
  """Refuses a word that the field does not know."""
  from pe_jax.config import did_you_mean

  if value not in known:
    raise ConfigError(f"data.name: {task}: {field}='{value}' is unknown{did_you_mean(value, known)} (there are {', '.join(known)})")


def at_least(task, field, value, least, reason):
  """Refuses a number that is too small for what the other fields ask."""
  if value < least:
    raise ConfigError(f'data.name: {task}: {field}={value} must be at least {least}, {reason}')
