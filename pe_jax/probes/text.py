"""Texts of several lengths that end with the same tokens, so that what stands near their ends is the same at every length."""

import numpy as np

from pe_jax.errors import DataError
from pe_jax.evaluate import context

TRIES = 10_000


def ends(subject, lengths, most, seed=0):
  """({length: tokens_BT}, number of each row's document): rows of exactly that many tokens, BOS first if the run has one.

  Of text they lie within a document; of a task each is the end of a sample (a whole one where the longest length is one that the task has).
  """
  longest = max(lengths)
  if subject.task:
    texts = samples(subject, longest, most, seed)
    bos = np.full((most, 1), subject.task.bos, np.int32)
    return {n: np.concatenate([bos, texts[:, longest - n :]], axis=1) for n in lengths}, np.arange(most)
  spans = context.choose(subject, longest, max(1, longest // 2), most)
  return {n: spans.rows(subject, n).tokens_BT for n in lengths}, np.unique(spans.source_N, return_inverse=True)[1]


def samples(subject, length, count, seed):
  """The last length - 1 tokens of samples of the shortest length that has so many, int32 (count, length - 1)."""
  task = subject.task
  end = next((n for n in task.lengths(1, 2 * length + task.shortest) if task.positions(n) >= length), None)
  rng, texts = np.random.default_rng([seed, length]), []
  for _ in range(TRIES if end else 0):
    tokens, _ = task.sample(rng, end)
    if len(tokens) >= length - 1:
      texts.append(tokens[len(tokens) - (length - 1) :])
    if len(texts) == count:
      return np.stack(texts).astype(np.int32)
  raise DataError(f'lengths: {task.spec} has no samples of {length} tokens (ask for shorter lengths)')


def stream(subject):
  """All documents one after the other, int32."""
  return np.concatenate([np.zeros(0, np.int32), *subject.documents]).astype(np.int32)
