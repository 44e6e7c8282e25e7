"""A key planted in the far text and asked for after the span of the same row: is it found, at no further forward?

    text … "The pass key of the box is 83172. …" … text, the span, "The pass key of the box is" 83172

The key stands beyond the training length where there is such text, else anywhere before the span, at depths spread over the rows; so a
crop to the training length cannot know it. Told is -log p of the key, d ln 10 for a guesser of d digits, and the share of rows in which it
has more than half of the probability, where greedy decoding finds it. One draw a row, so it is no grid as the needle probe makes one.
"""

import dataclasses
import math

import numpy as np

from pe_jax.errors import ConfigError
from pe_jax.statistics.proportions import wilson


@dataclasses.dataclass(frozen=True, eq=False)
class Needles:
  """Attributes:
  needle_N: token ids of each row's needle.
  asked_N: ids after the span: the question and the key.
  answer: of those, tokens of the key.
  depth_N: share of the far text that stands before each needle.
  digits: of a key.
  first: tokens at a row's start that stay, its BOS.
  span, train: targets of a span, and the training length.
  """

  needle_N: list
  asked_N: np.ndarray
  answer: int
  depth_N: np.ndarray
  digits: int
  first: int
  span: int
  train: int

  @classmethod
  def of(cls, subject, options, count, span):
    """Those of `count` rows; None where none are asked for."""
    if not options.needle:
      return None
    from pe_jax import probes  # which are made of evaluation's parts
    from pe_jax.probes import haystack

    words = haystack.of_text(subject, probes.Options(style='sentence', digits=options.needle, seed=options.seed))
    rng, name = np.random.default_rng([options.seed, 2]), haystack.NAMES[0]
    value_N = rng.integers(len(words.answers_VS), size=count)
    asked = [[*words.question(name), *words.answers_VS[v].tolist()] for v in value_N]
    depth_N = rng.permutation((np.arange(count) + 0.5) / count)
    needles = [words.needle(name, v) for v in value_N.tolist()]
    fixed = (options.needle, len(words.bos), span, subject.config.train_length)
    return cls(needles, np.asarray(asked, np.int32), words.answers_VS.shape[1], depth_N, *fixed)

  @property
  def tail(self):
    """Positions at a row's end that the question and the key take."""
    return self.asked_N.shape[1]

  def room(self, length):
    """(first position of the far text, how many more there are than a needle takes); refuses a length without enough."""
    end = length - self.train if length > self.train else length - self.tail - self.span
    room = end - self.first - max(map(len, self.needle_N))
    if room < 0:
      raise ConfigError(
        f'needle: its {max(map(len, self.needle_N))} tokens do not fit the {max(end - self.first, 0)} of length {length} that come before '
        f'{"the training length" if length > self.train else "the span"} (leave it out, or ask for other lengths)'
      )
    return self.first, room

  def planted(self, rows, length):
    """The rows with needles, and questions in the `tail` that was left free; the keys are targets too."""
    text, (first, room) = length - self.tail, self.room(length)
    tokens_BT, targets_BT, weight_BT, doc_BT, pos_BT, source_BT = (x.copy() for x in rows.arrays())
    for n, (ids, depth) in enumerate(zip(self.needle_N, self.depth_N)):
      at = first + round(depth * room)
      tokens_BT[n, at : at + len(ids)] = ids
      # The span's last target is the first input of the tail, and the key's last token is asked for alone.
      tokens_BT[n, text:] = [targets_BT[n, text - 1], *self.asked_N[n, :-1]]
      targets_BT[n, text:] = self.asked_N[n]
      source_BT[n, text:] = source_BT[n, 0]
    weight_BT[:, length - self.answer :] = 1.0
    doc_BT[:, text:], pos_BT[:, text:] = 1, np.arange(text, length)
    return dataclasses.replace(
      rows, tokens_BT=tokens_BT, targets_BT=targets_BT, weight_BT=weight_BT, doc_BT=doc_BT, pos_BT=pos_BT, source_BT=source_BT
    )

  def summary(self, nats_N):
    """What became of the keys, of -log p of each."""
    found = int((nats_N < math.log(2)).sum())
    low, high = map(float, wilson(found, len(nats_N)))
    told = {'digits': self.digits, 'texts': len(nats_N), 'nats': float(nats_N.mean()), 'chance': self.digits * math.log(10)}
    return told | {'found': found / len(nats_N), 'found_low': low, 'found_high': high}
