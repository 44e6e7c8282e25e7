"""What the protocols leave to the user."""

import dataclasses

from pe_jax.errors import ConfigError

MOST_DIGITS = 9


@dataclasses.dataclass(frozen=True)
class Options:
  """Attributes:
  stride: targets that a sliding window goes on by; 0: a quarter of the window.
  span: targets of a span that `context` scores at every length; 0: half of the training length, 64 at most.
  spans: the most spans; 0: as many as the scored tokens allow, between 16 and 256.
  seed: of what is drawn: the order of far text, the text it is replaced by, resamples, places and values of needles.
  arms: whether `context` also scores the spans with their far text shuffled, and replaced.
  needle: digits of a key that `context` plants in the far text and asks for at the end of the same rows; 0: none.
  """

  stride: int = 0
  span: int = 0
  spans: int = 0
  seed: int = 0
  arms: bool = True
  needle: int = 0

  def check(self, lengths, train_length):
    """Refuses what does not fit the lengths."""
    for name in ('stride', 'span', 'spans', 'seed', 'needle'):
      if getattr(self, name) < 0:
        raise ConfigError(f'{name}: {getattr(self, name)} must be at least 0')
    if self.needle > MOST_DIGITS:
      raise ConfigError(f'needle: {self.needle} digits are more than a key can have (at most {MOST_DIGITS})')
    if self.stride > min(lengths):
      raise ConfigError(f'stride: {self.stride} exceeds the window of {min(lengths)} tokens, so that targets would be left out')
    if self.span > min([*lengths, train_length]):
      raise ConfigError(f'span: {self.span} targets do not fit {min([*lengths, train_length])} tokens (the shortest length)')
