"""Relative distance with everything else fixed: the same length, the same tokens, and the needle alone changes its place.

    f f f N f f f f f P ?      distance to the value N: 7
    f f f P f f f f f N ?      distance 1; the tokens P that stood there are where the needle was

The needle trades places with as many tokens of filler, so that no other token moves and every text is the same multiset. Trials are paired
over distances: the difference to the nearest one has an interval over them. The distance is that from the query to the value's first token
where it is said last. Needles and words as in needle.py, variant `single`.
"""

import numpy as np

from pe_jax.errors import ConfigError
from pe_jax.probes import forward, haystack
from pe_jax.probes.needle import affordable, judged, likelihoods, summary
from pe_jax.statistics import paired

USUAL = (32, 128, 512, 2048)

refusal = haystack.refusal


def check(subject, lengths, options):
  """Refuses distances that no length has."""
  words = haystack.words(subject, options)
  chosen(words, lengths[-1], subject.config.train_length, options)


def chosen(words, length, train, options):
  """Distances that fit the length, nearest first. One whose needle would overlap that of the farthest is left out."""
  stack = haystack.make(words, 'single', length, np.random.default_rng(0))
  size, said = len(stack.needle), stack.said()
  nearest, farthest = len(stack.question) + size - 1 - said, len(stack.question) + len(stack.filler) + size - 1 - said
  wanted = options.distances or (train // 2, train, 2 * train, 4 * train, *USUAL)
  kept = [distance for distance in sorted({*wanted}) if nearest <= distance <= farthest]
  # The farthest is where all others trade from.
  apart = [d for d in kept[:-1] if kept[-1] - d >= size] + kept[-1:]
  if not apart:
    reach = f'{nearest} to {farthest} tokens before the query'
    raise ConfigError(f'distances: none of {sorted({*wanted})} fits length {length}, where the value can stand {reach}')
  return apart


def measure(subject, spec, lengths, options):
  """Yields one dict for each length that has distances; `distances` holds what was found at each."""
  words, train = haystack.words(subject, options), subject.config.train_length
  for length in lengths:
    try:
      distances = chosen(words, length, train, options)
    except ConfigError:
      if length == lengths[-1]:
        raise
      continue
    enc, name = forward.at(subject, spec, length)
    trials = affordable(length * len(distances), options)
    stacks = [haystack.make(words, 'single', length, np.random.default_rng([options.seed, n])) for n in range(trials)]
    text_BT = np.asarray([moved(stack, d, distances[-1]) for d in distances for stack in stacks])
    right_BV = np.stack([stack.right_V for stack in stacks] * len(distances))
    judgement = judged(likelihoods(subject, enc, words)(text_BT), right_BV)
    at_B, trial_B, found = np.repeat(np.arange(len(distances)), trials), np.tile(np.arange(trials), len(distances)), []
    margin_B = judgement[1]
    for n, distance in enumerate(distances):
      row = {'distance': distance} | summary(judgement, trial_B, at_B == n)
      change = margin_B[at_B == n] - margin_B[at_B == 0]
      if n and trials > 1:
        low, high = paired.bounds(change, 0.025)
        row |= {'margin_change': float(change.mean()), 'margin_change_low': low, 'margin_change_high': high}
      found.append(row)
    yield {
      'length': length,
      'encoding': name,
      'chance': float(right_BV[0].mean()),
      'value_nats': haystack.value_nats(words),
      'style': 'task' if subject.task else options.style,
      'trials': trials,
      'distances': found,
    }


def moved(stack, distance, farthest):
  """The prompt with the value at this distance: the needle of the farthest place and the tokens that stand here have traded places."""
  size, bos, question = len(stack.needle), list(stack.words.bos), stack.question

  def start(distance):
    return len(bos) + len(stack.filler) + size + len(question) - 1 - distance - stack.said()

  place = start(farthest) - len(bos)
  tokens = np.asarray([*bos, *stack.filler[:place], *stack.needle, *stack.filler[place:], *question])
  a, b = (slice(start(d), start(d) + size) for d in (farthest, distance))
  if a != b:
    tokens[a], tokens[b] = tokens[b].copy(), tokens[a].copy()
  return tokens
