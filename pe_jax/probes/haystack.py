"""Haystacks: filler with a needle, which says a key's value, and at the end the question for it; every one of exactly the asked length.

Of a run on text the filler is its own text without any token that holds a digit, and values are digits; keys are said twice, since a small
model that never saw a question copies what followed a key before. Of a run on the tasks `needle` and `niah` all words are the task's, so
that training on the task is training on the probe.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from pe_jax.errors import ConfigError, DataError
from pe_jax.probes import text
from pe_jax.probes.options import VARIANTS
from pe_jax.tasks import niah

KEYS, VALUES = 4, 3  # keys of multi_key and prefix_key, values of multi_value
NAMES = ('box', 'map', 'sun', 'pen', 'log', 'hat', 'cup', 'jar')
CANDIDATES = 10  # of values in text
SAID = {
  'short': ('\n@{name}={value};@{name}={value};\n', '\n@{name}='),
  'sentence': (
    '\nThe pass key of the {name} is {value}. Remember it. {value} is the pass key of the {name}.\n',
    '\nThe pass key of the {name} is ',
  ),
}


@dataclasses.dataclass(frozen=True)
class Words:
  """Attributes:
  filler: (rng, count) -> that many ids without a value among them.
  names: (rng, variant) -> names of keys, the asked one first.
  needle: (name, number of the value) -> ids.
  question: name -> ids, after which the value comes.
  answers_VS: ids of every value, all equally long.
  variants: those there are.
  bos: ids before the text.
  """

  filler: Callable
  names: Callable
  needle: Callable
  question: Callable
  answers_VS: np.ndarray
  variants: tuple[str, ...]
  bos: tuple[int, ...]


def words(subject, options):
  """The Words of a run."""
  return of_task(subject.task) if subject.task else of_text(subject, options)


def refusal(subject):
  """Why a run has no words for needles, '' if it has."""
  if subject.task and subject.task.spec.partition('(')[0] not in ('needle', 'niah'):
    return f'{subject.task.spec} has no words for needles (train on niah, needle or text)'
  return ''


def of_task(task):
  """Those of `needle`, which has no keys, and of `niah`."""
  if task.spec.partition('(')[0] == 'needle':
    first, count = task.alphabet[0], len(task.alphabet)
    ids, ask, names = (lambda name, value: [first + value]), (lambda name: [first + count]), lambda rng, variant: [None]
    fillers, variants = first, ('single',)
  else:
    first, count = niah.VALUE, niah.NAMES
    ids, ask = (lambda name, value: [niah.KEY + name, niah.VALUE + value]), lambda name: [niah.ASK, niah.KEY + name, niah.ASK + 1]
    fillers, variants = niah.FILLERS, ('single', 'multi_key', 'multi_value')

    def names(rng, variant):
      return rng.permutation(niah.NAMES)[: KEYS if variant == 'multi_key' else 1].tolist()

  answers_VS = first + np.arange(count)[:, None]
  return Words(lambda rng, n: rng.integers(fillers, size=n), names, ids, ask, answers_VS, variants, (task.bos,))


def of_text(subject, options):
  """Those of a run on text."""
  tokenizer, (said, asked) = subject.tokenizer, SAID[options.style]
  values = numbers(options)
  ids_N = text.stream(subject)
  kinds = np.unique(ids_N)
  digits = [i for i in kinds.tolist() if any(c.isdigit() for c in tokenizer.decode([i]))]
  ids_N = ids_N[~np.isin(ids_N, digits)]

  def encode(string):
    return tokenizer.encode(string.encode()).tolist()

  def question(name):
    return common([encode(asked.format(name=name) + value) for value in values])

  def filler(rng, count):
    if count > len(ids_N):
      have = f'the text has {len(ids_N)} without digits'
      raise DataError(f'needle: {count} tokens of filler are needed and {have} (give more text, or a shorter length)')
    start = rng.integers(len(ids_N) - count + 1)
    return ids_N[start : start + count]

  def names(rng, variant):
    if variant == 'prefix_key':
      return [NAMES[0] + letter for letter in rng.permutation(list('abcdefgh'))[:KEYS].tolist()]
    return rng.permutation(NAMES)[: KEYS if variant == 'multi_key' else 1].tolist()

  start = len(question(NAMES[0]))
  answers = [encode(asked.format(name=NAMES[0]) + value)[start:] for value in values]
  if len({len(a) for a in answers}) > 1:
    what = f'values of {options.digits} digits'
    raise DataError(f'needle: the tokenizer {tokenizer.name} writes {what} in different numbers of tokens (try digits=1)')
  bos = () if tokenizer.bos is None else (tokenizer.bos,)
  return Words(filler, names, lambda name, v: encode(said.format(name=name, value=values[v])), question, np.asarray(answers), VARIANTS, bos)


def numbers(options):
  """The candidates in text: all digits, or ten numbers of several digits with different first ones."""
  rng = np.random.default_rng([options.seed, options.digits])
  rest = rng.integers(10, size=(CANDIDATES, options.digits - 1))
  return [''.join(map(str, [first, *more])) for first, more in zip(range(CANDIDATES), rest.tolist())]


def common(lists):
  """The longest common beginning."""
  count = next((n for n, ids in enumerate(zip(*lists)) if len(set(ids)) > 1), min(map(len, lists)))
  return lists[0][:count]


@dataclasses.dataclass(frozen=True, eq=False)
class Haystack:
  """One trial without its asked needle: filler and other needles are the same wherever that is put."""

  words: Words
  filler: np.ndarray
  needle: list
  others: list
  question: list
  right_V: np.ndarray
  value: int

  def text(self, depth):
    """(tokens, distance): the prompt with the needle after this share of the filler, and how far its value stands before the query."""
    room = len(self.filler)
    # Where places are equal the asked needle is the outer one: nothing stands before depth 0 and after depth 1.
    placed = [(round(depth * room), 0 if depth < 0.5 else 2, self.needle), *((round(u * room), 1, ids) for u, ids in self.others)]
    pieces, done, end = [*self.words.bos], 0, 0
    for place, order, ids in sorted(placed, key=lambda p: p[:2]):
      pieces += [*self.filler[done:place].tolist(), *ids]
      done, end = place, len(pieces) if order != 1 else end
    pieces += [*self.filler[done:].tolist(), *self.question]
    return pieces, len(pieces) - 1 - (end - len(self.needle) + self.said())

  def said(self):
    """Index in the needle of its value, where it is said last."""
    return last_of(self.needle, self.words.answers_VS[self.value].tolist())


def last_of(ids, part):
  """Index of the last time that `part` stands in `ids`."""
  found = [n for n in range(len(ids) - len(part) + 1) if ids[n : n + len(part)] == part]
  if not found:
    raise DataError('needle: the tokenizer writes the value differently in the needle and after the question (try the other style)')
  return found[-1]


def make(words, variant, length, rng):
  """A Haystack whose prompt has, with all tokens of the value but its last, exactly `length` tokens."""
  names = words.names(rng, variant)
  asked = [names[0]] * VALUES if variant == 'multi_value' else names
  value_K = rng.permutation(len(words.answers_VS))[: len(asked)].tolist()
  needles, question = [words.needle(*pair) for pair in zip(asked, value_K)], words.question(names[0])
  taken = len(words.bos) + sum(map(len, needles)) + len(question) + words.answers_VS.shape[1] - 1
  if taken > length:
    raise ConfigError(f"needle: '{variant}' takes {taken} tokens without any filler and does not fit length {length} (ask for longer ones)")
  places = rng.random(len(needles) - 1).tolist()
  right_V = np.isin(np.arange(len(words.answers_VS)), value_K if variant == 'multi_value' else value_K[:1])
  filler = np.asarray(words.filler(rng, length - taken))
  return Haystack(words, filler, needles[0], list(zip(places, needles[1:])), question, right_V, value_K[0])


def value_nats(words):
  """Entropy of a value."""
  return math.log(len(words.answers_VS))


def fitting(words, variants, length):
  """The variants asked for, refused where they do not fit; if none are asked for those of all that do, `single` at least."""
  for variant in variants:
    if variant not in words.variants:
      raise ConfigError(f"variants: '{variant}' is not among those that this run has words for ({', '.join(words.variants)})")
  for variant in variants or ('single',):
    make(words, variant, length, np.random.default_rng(0))
  return variants or tuple(variant for variant in words.variants if fits(words, variant, length))


def fits(words, variant, length):
  """Whether a variant has room."""
  try:
    make(words, variant, length, np.random.default_rng(0))
  except ConfigError:
    return False
  return True
