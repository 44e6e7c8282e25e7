"""Needles in training text, so that a small base model meets the probe's question before it is asked.

A document is taken whole, or, with a chance of `share`, becomes pieces that each hold one needle at a uniform place and end with the
question and its value, in the words of haystack.py. What a model then does within the length of the pieces was trained; beyond it, not.
"""

from pe_jax.errors import ConfigError
from pe_jax.probes import haystack

END = {'short': ';\n', 'sentence': '.\n'}


def mix(document, rng, share, length, style='short', digits=1):
  """The document, bytes of UTF-8, with needles with a chance of `share`; a piece has `length` characters."""
  if rng.random() >= share:
    return document
  (said, asked), whole, pieces = haystack.SAID[style], document.decode(), []
  takes = len(said.format(name='box', value='7' * digits)) + len(asked.format(name='box')) + digits + 2
  room = length - takes
  if room < 1:
    raise ConfigError(f'length: {length} characters have no room for text beside the needle and its question, which take {takes}')
  for start in range(0, len(whole), room):
    text = whole[start : start + room]
    name, value, place = rng.choice(haystack.NAMES), str(rng.integers(10**digits)).zfill(digits), rng.integers(len(text) + 1)
    pieces += [text[:place], said.format(name=name, value=value), text[place:], asked.format(name=name), value, END[style]]
  return ''.join(pieces).encode()
