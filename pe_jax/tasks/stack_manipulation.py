"""Stack manipulation: what a stack holds after some actions, from its top down.

    0 1 1 0 push1 pop pop > 1 1 0 .

A stack of uniform bits, bottom first, and then actions, uniform over pop, push0 and push1; a pop of an empty stack does nothing. `length`
counts both; the stack's height is uniform over 1 .. length - 1. '.' ends the answer, where the paper pads it to a fixed size and does not
count the padding. Delétang and others, 2022, arXiv:2207.02098 (deterministic context-free).
"""

from pe_jax.tasks.base import Task, answered

POP, PUSH, ANSWER, STOP = 2, 3, 5, 6


def sample(rng, length):
  """(tokens, answer) of `length` bits and actions; PUSH + b pushes b."""
  height = rng.integers(1, length) if length > 1 else 1
  stack, actions = rng.integers(2, size=height), rng.integers(POP, PUSH + 2, size=length - height)
  held = [*stack]
  for action in actions:
    if action >= PUSH:
      held.append(action - PUSH)
    elif held:
      held.pop()
  return answered([*stack, *actions, ANSWER], [*held[::-1], STOP])


def task():
  """Chance of a token 1/3."""
  return Task(
    words=('0', '1', 'pop', 'push0', 'push1', '>', '.'),
    sample=sample,
    size=lambda length: 2 * length + 2,
    alphabet=(0, 1, STOP),
    stop=STOP,
  )
