"""Samples that training may see and samples that it may not, test sets of one length, and rows of samples.

A sample belongs to train, validation or test by a hash of its tokens, as a text document does; training draws again until it has one of its
own. So no test sample of a length that training reaches can have been trained on, however few samples of that length there are. Longer ones
cannot have been anyway, and are taken as they come. Where a length has too few samples to be divided (two strings of one bit), training and
test share it, and the test set says so.
"""

import dataclasses
import hashlib

import numpy as np

from pe_jax.data.documents import ROLES, role_of
from pe_jax.data.packing import Rows

TRIES = 200  # for one sample of a role: of 1 in 20, which validation and test are, all fail once in 30 000 samples
TEST_SEED = 0  # test sets are those of the task, the same for all runs: seeds of training compare on one set


@dataclasses.dataclass(frozen=True, eq=False)
class TestSet:
  """Samples of one length.

  Attributes:
    samples: list of (tokens, answer).
    disjoint: whether training cannot have seen any of them.
    distinct: how many different ones there are.
    sha256: of all their tokens.
  """

  samples: list
  disjoint: bool
  distinct: int
  sha256: str


def draw(task, role, key, length):
  """((tokens, answer), whether it is of the role): the sample of a key, the numbers that its generator is made from."""
  rng = np.random.default_rng(key)
  for _ in range(TRIES):
    sample = task.sample(rng, length)
    if role is None or role_of(sample[0].tobytes()) == role:
      return sample, True
  return sample, False


def test_set(task, role, length, count, trained_to):
  """The TestSet of a role; `trained_to` is the longest length that training makes."""
  task.check_length(length)
  number, ban, samples = ROLES.index(role), length <= trained_to, []
  # Where training itself finds none of its own it takes what comes.
  disjoint = not ban or draw(task, 'train', (TEST_SEED, number, length, count), length)[1]
  for index in range(count):
    sample, found = draw(task, role if ban and disjoint else None, (TEST_SEED, number, length, index), length)
    disjoint &= found
    samples.append(sample)
  if not disjoint:  # what was found before is drawn as the rest is
    samples = [draw(task, None, (TEST_SEED, number, length, index), length)[0] for index in range(count)]
  contents = [tokens.tobytes() for tokens, _ in samples]
  digest = hashlib.sha256(b''.join(len(c).to_bytes(8, 'little') + c for c in contents))
  return TestSet(samples, disjoint, len(set(contents)), digest.hexdigest())


def rows(samples, width, bos):
  """Rows of `width` positions: BOS and one sample in each, then padding. The weight is 1 where the next token is of the answer.

  The last token is an input too, so that a row is as long as the text that decoding makes of it.
  """
  tokens_BT, targets_BT, doc_BT = (np.zeros((len(samples), width), np.int32) for _ in range(3))
  weight_BT = np.zeros((len(samples), width), np.float32)
  for row, (tokens, answer) in enumerate(samples):
    n = len(tokens)
    tokens_BT[row, 0], tokens_BT[row, 1 : n + 1] = bos, tokens
    targets_BT[row, :n], weight_BT[row, :n] = tokens, answer
    doc_BT[row, : n + 1] = 1
  pos_BT = np.arange(width, dtype=np.int32) * doc_BT
  return Rows(tokens_BT, targets_BT, weight_BT, doc_BT, pos_BT, np.where(doc_BT > 0, np.arange(len(samples), dtype=np.int32)[:, None], -1))
