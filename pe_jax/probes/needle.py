"""Needle on a grid of depth and length: is a value said somewhere in the text known at its end, and is it told from others?

For each length and depth 0, 0.1 … 1 (share of the filler before the needle) the same trials, in which the needle alone moves. Judged
without decoding, among V values that are all as likely beforehand:

    accuracy = share of trials in which a right value has the largest log p, with Wilson's interval; chance is 1/V
    margin   = log p(right) - max log p(wrong), in nats: how surely, also where the accuracy is 0 or 1

single: one key. multi_key: three other keys with values of their own. prefix_key: three others that differ in the last letter. multi_value:
the key has three values, each of them right (chance 3/V). Both arms of every comparison ask with identical tokens.

A small model that never met the question may answer by chance at every length; the probe can be trained in by `data.source=task`,
`data.name=niah` (its words are then the task's) or by text with needles in it (scripts/mix_needles.py).
"""

import numpy as np

from pe_jax.probes import forward, haystack
from pe_jax.statistics.proportions import wilson

DEPTHS = tuple(n / 10 for n in range(11))
FEWEST = 10  # trials

refusal = haystack.refusal


def check(subject, lengths, options):
  """Refuses a length that is too short, or too long for the text."""
  for length in (lengths[0], lengths[-1]):
    haystack.fitting(haystack.words(subject, options), options.variants, length)


def measure(subject, spec, lengths, options):
  """Yields one dict for each length and variant, whose `cells` are the depths."""
  words = haystack.words(subject, options)
  for length in lengths:
    enc, name = forward.at(subject, spec, length)
    likelihood = likelihoods(subject, enc, words)
    for variant in haystack.fitting(words, options.variants, length):
      trials = affordable(length * len(DEPTHS), options)
      stacks = [haystack.make(words, variant, length, np.random.default_rng([options.seed, n])) for n in range(trials)]
      texts, distances = zip(*[stack.text(depth) for depth in DEPTHS for stack in stacks])
      right_BV = np.stack([stack.right_V for stack in stacks] * len(DEPTHS))
      found = judged(likelihood(np.asarray(texts)), right_BV)
      distance_B = np.asarray(distances)
      cell_B, trial_B = np.repeat(np.arange(len(DEPTHS)), trials), np.tile(np.arange(trials), len(DEPTHS))
      cells = [
        {'depth': depth, 'distance': float(distance_B[cell_B == n].mean())} | summary(found, trial_B, cell_B == n)
        for n, depth in enumerate(DEPTHS)
      ]
      yield {
        'length': length,
        'encoding': name,
        'variant': variant,
        'chance': float(right_BV[0].mean()),
        'values': len(words.answers_VS),
        'value_tokens': words.answers_VS.shape[1],
        'value_nats': haystack.value_nats(words),
        'style': 'task' if subject.task else options.style,
        'trials_asked': options.trials,
        **summary(found, trial_B, np.ones(len(trial_B), bool)),
        'cells': cells,
        'by_distance': by_distance(found, trial_B, distance_B),
      }


def affordable(tokens, options):
  """Trials that the budget allows, FEWEST at least. `tokens` is what the texts of one cost, which are read once whatever the values are."""
  return min(options.trials, max(FEWEST, options.budget // tokens))


def likelihoods(subject, enc, words):
  """(prompt_BT) -> log p of every value after every prompt, float64 (B, V): the sum over the value's tokens, each after those before it."""
  if words.answers_VS.shape[1] > 1:
    several = forward.continuations(subject, enc, words.answers_VS)
    return lambda prompt_BT: several(prompt_BT).sum(2, dtype=np.float64)
  ids, index_V = np.unique(words.answers_VS, return_inverse=True)
  one = forward.log_p(subject, enc, ids)
  return lambda prompt_BT: one(prompt_BT)[:, 0, index_V.reshape(-1)].astype(np.float64)


def judged(log_p_BV, right_BV):
  """(whether a right value is the likeliest, log p of the likeliest right less that of the likeliest wrong one, log p of any right one)."""
  right_B, wrong_B = (np.where(mask, log_p_BV, -np.inf).max(1) for mask in (right_BV, ~right_BV))
  return right_B > wrong_B, right_B - wrong_B, np.logaddexp.reduce(np.where(right_BV, log_p_BV, -np.inf), axis=1)


def summary(found, trial_B, chosen_B):
  """Accuracy with its 95 % interval, mean margin with its standard error, mean log p of a right value.

  `found` is what `judged` gives. A trial's texts differ in the needle's place alone and are no independent trials, so that intervals count
  a trial once however many of its texts are chosen.
  """
  right_B, margin_B, log_p_B = (x[chosen_B] for x in found)
  trial_B = np.unique(trial_B[chosen_B], return_inverse=True)[1]
  texts_U = np.bincount(trial_B)
  low, high = map(float, wilson(right_B.mean() * len(texts_U), len(texts_U)))
  margin_U = np.bincount(trial_B, margin_B) / texts_U
  error = float(margin_U.std(ddof=1) / len(margin_U) ** 0.5) if len(margin_U) > 1 else None
  row = {'accuracy': float(right_B.mean()), 'accuracy_low': low, 'accuracy_high': high, 'margin': float(margin_B.mean())}
  return row | {'margin_error': error, 'log_p': float(log_p_B.mean()), 'texts': len(right_B), 'trials': len(texts_U)}


def by_distance(found, trial_B, distance_B):
  """The same by distance of the value from the query, in ranges that double."""
  octave_B = np.floor(np.log2(distance_B)).astype(int)
  return [{'start': 2**n, 'end': 2 ** (n + 1)} | summary(found, trial_B, octave_B == n) for n in np.unique(octave_B).tolist()]
