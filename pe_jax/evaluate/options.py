"""What the protocols leave to the user."""

import dataclasses

from pe_jax.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Options:
  """Attributes:
  stride: targets that a sliding window goes on by; 0: a quarter of the window.
  span: targets of a span that `context` scores at every length; 0: half of the training length, 64 at most.
  spans: the most spans; 0: as many as the scored tokens allow, between 16 and 256.
  seed: of what is drawn: the order of far text, the text it is replaced by, resamples.
  """

  stride: int = 0
  span: int = 0
  spans: int = 0
  seed: int = 0

  def check(self, lengths, train_length):
    """Refuses what does not fit the lengths."""
    for name in ('stride', 'span', 'spans', 'seed'):
      if getattr(self, name) < 0:
        raise ConfigError(f'{name}: {getattr(self, name)} must be at least 0')
    if self.stride > min(lengths):
      raise ConfigError(f'stride: {self.stride} exceeds the window of {min(lengths)} tokens, so that targets would be left out')
    if self.span > min([*lengths, train_length]):
      raise ConfigError(f'span: {self.span} targets do not fit {min([*lengths, train_length])} tokens (the shortest length)')
