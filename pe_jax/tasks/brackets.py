"""Nested brackets: close what is open.

    ( [ ] [ ( > ) ] ) .

`length` brackets of `kinds` kinds. Each is an opening one of a uniform kind if nothing is open, else with probability 1/2; otherwise it
closes what was opened last. The answer closes all that is open, innermost first. A generated answer keeps the format if prompt and answer
together are balanced and '.' ends it; it is unsupported if it closes a kind of which none is open in the prompt.
"""

from pe_jax.tasks.base import Task, answered

NAMES = ('()', '[]', '{}')


def sample(rng, length, kinds):
  """(tokens, answer) of `length` brackets; kind k opens with 2k and closes with 2k + 1."""
  text, still = [], []
  for coin, kind in zip(rng.integers(2, size=length), rng.integers(kinds, size=length)):
    if coin or not still:
      still.append(int(kind))
      text.append(2 * int(kind))
    else:
      text.append(2 * still.pop() + 1)
  return answered([*text, 2 * kinds], [*(2 * kind + 1 for kind in still[::-1]), 2 * kinds + 1])


def unclosed(text):
  """Kinds that are open after a text of brackets, outermost first; None if something is closed that is not open."""
  still = []
  for bracket in text:
    if bracket % 2 == 0:
      still.append(bracket // 2)
    elif not still or still.pop() != bracket // 2:
      return None
  return still


def judge(prompt, answer, kinds):
  """(balanced and ended by '.', all it closes is of a kind that is open in the prompt)"""
  brackets = [i for i in answer if i < 2 * kinds]
  prompt = [i for i in prompt if i < 2 * kinds]
  ended = len(brackets) == len(answer) - 1 and answer[-1] == 2 * kinds + 1
  closed = {i // 2 for i in brackets if i % 2}
  return ended and unclosed([*prompt, *brackets]) == [], closed <= set(unclosed(prompt))


def task(*, kinds=3):
  """`kinds`: of brackets."""
  names = [*NAMES, *((f'({k}', f'){k}') for k in range(len(NAMES), kinds))][:kinds]
  return Task(
    words=(*(word for pair in names for word in pair), '>', '.'),
    sample=lambda rng, length: sample(rng, length, kinds),
    size=lambda length: 2 * length + 2,
    alphabet=(*range(1, 2 * kinds, 2), 2 * kinds + 1),
    stop=2 * kinds + 1,
    judge=lambda prompt, answer: judge(prompt, answer, kinds),
  )
