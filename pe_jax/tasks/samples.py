"""Samples that training may see and samples that it may not, test sets of one length, and rows of samples.

A sample belongs to train, validation or test by a hash of its tokens, three in four to train and one in eight to each of the others, and
every role draws again until it has one of its own. So no test sample of a length that training reaches can have been trained on. Longer
ones cannot have been anyway, and are taken as they come. Where a length has only a handful of samples (two strings of one bit), all roles
share them, since training on half of them would be another task; the test set says so.
"""

import dataclasses
import hashlib

import numpy as np

from pe_jax.data.documents import ROLES
from pe_jax.data.packing import Rows

TEST_SEED = 0  # test sets are those of the task, the same for all runs: seeds of training compare on one set
PROBE, DIFFERENT, OFTEN = 200, 32, 4  # a length is divided if 200 draws show 32 different samples, and each role 4 times


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


def role_of(tokens):
  """'train', 'validation' or 'test'."""
  return ('test', 'validation', *['train'] * 6)[hashlib.sha256(tokens.tobytes()).digest()[0] % 8]


def divided(task, length):
  """Whether the samples of a length are divided among the roles."""
  rng, seen, often = np.random.default_rng((TEST_SEED, length)), set(), dict.fromkeys(ROLES, 0)
  for _ in range(PROBE):
    tokens, _ = task.sample(rng, length)
    seen.add(tokens.tobytes())
    often[role_of(tokens)] += 1
    if len(seen) >= DIFFERENT and min(often.values()) >= OFTEN:
      return True
  return False


def draw(task, role, key, length):
  """(tokens, answer) of a role, None for any: the sample of a key, which is the numbers that its generator is made from."""
  rng = np.random.default_rng(key)
  while True:
    sample = task.sample(rng, length)
    if role is None or role_of(sample[0]) == role:
      return sample


def test_set(task, role, length, count, trained_to):
  """The TestSet of a role; `trained_to` is the longest length that training makes."""
  task.check_length(length)
  reached, apart = length <= trained_to, divided(task, length)
  own = role if reached and apart else None
  samples = [draw(task, own, (TEST_SEED, ROLES.index(role), length, index), length) for index in range(count)]
  contents = [tokens.tobytes() for tokens, _ in samples]
  digest = hashlib.sha256(b''.join(len(c).to_bytes(8, 'little') + c for c in contents))
  return TestSet(samples, apart or not reached, len(set(contents)), digest.hexdigest())


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
