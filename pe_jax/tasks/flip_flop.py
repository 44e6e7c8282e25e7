"""Flip-flop language: a memory of one bit that is written, read, and must not be disturbed by what is to be ignored.

    w 1 i 0 i 1 w 0 i 1 r 0

`length` instructions, each followed by a bit. The first is w, the last r; the others are i with probability `ignore`, and w and r share
the rest equally. The bit after w or i is uniform, the bit after r is the one written last: those bits are the targets, so an exact match is
a sequence without a glitch. Trained at ignore=.8, tested sparse (.98) and dense (.1). Liu and others, 2023, arXiv:2306.00946.
"""

import numpy as np

from pe_jax.tasks.base import Task

WRITE, IGNORE, READ, ZERO = range(4)


def sample(rng, length, ignore):
  """(tokens, answer) of `length` instructions."""
  u = rng.random(length)
  instruction = np.where(u < ignore, IGNORE, np.where(u < (1 + ignore) / 2, WRITE, READ))
  instruction[0], instruction[-1] = WRITE, READ
  bit = rng.integers(2, size=length)
  written = np.maximum.accumulate(np.where(instruction == WRITE, np.arange(length), 0))
  bit = np.where(instruction == READ, bit[written], bit)
  answer = np.stack([np.zeros(length, bool), instruction == READ], axis=1).ravel()
  return np.stack([instruction, ZERO + bit], axis=1).astype(np.int32).ravel(), answer


def task(*, ignore=0.8):
  """`ignore`: the share of instructions to be ignored."""
  return Task(
    words=('w', 'i', 'r', '0', '1'),
    sample=lambda rng, length: sample(rng, length, ignore),
    size=lambda length: 2 * length,
    alphabet=(ZERO, ZERO + 1),
    shortest=2,
  )
