"""What the probes leave to the user."""

import dataclasses

from pe_jax.config import did_you_mean
from pe_jax.errors import ConfigError

VARIANTS = ('single', 'multi_key', 'multi_value', 'prefix_key')
STYLES = ('short', 'sentence')


@dataclasses.dataclass(frozen=True)
class Options:
  """Attributes:
  variants: of the needle; none: all that the words allow.
  style: of needles in text: 'short' (a key, '=', a value) or 'sentence'; both say the value twice.
  digits: of a value in text.
  trials: of a cell of the needle's grid, and of a distance.
  budget: tokens that a needle's grid may cost at one length; above it there are fewer trials.
  distances: of the query from the needle; none: 32, 128, 512, 2048 and L/2, L, 2L, 4L, those that fit.
  segments: the most texts that attention, position, permutation and leak look at.
  queries: the most queries of a text whose attention is looked at.
  prompts: texts that repetition continues.
  window: tokens in which repetition counts, the same at every length; 0: 256, or what the shortest length has.
  floor: nats a token that no honest model can be below, for the leak test; 0: not known.
  seed: of all that is drawn.
  """

  variants: tuple[str, ...] = ()
  style: str = 'short'
  digits: int = 1
  trials: int = 100
  budget: int = 1_000_000
  distances: tuple[int, ...] = ()
  segments: int = 16
  queries: int = 32
  prompts: int = 8
  window: int = 0
  floor: float = 0.0
  seed: int = 0

  @classmethod
  def of(cls, texts):
    """The Options of texts 'name=value'; parts of a tuple are joined by '+'."""
    known, given = {field.name: field.default for field in dataclasses.fields(cls)}, {}
    for text in texts:
      name, _, value = (part.strip() for part in text.partition('='))
      if name not in known:
        raise ConfigError(f"options: '{name}' is unknown{did_you_mean(name, known)} (there are {', '.join(known)})")
      kind = int if name == 'distances' else str if name == 'variants' else type(known[name])
      try:
        parts = [kind(part) for part in value.split('+')]
      except ValueError:
        raise ConfigError(f"options: {name}='{value}' is no {kind.__name__} (for instance trials=50, distances=32+128)") from None
      given[name] = tuple(parts) if isinstance(known[name], tuple) else parts[0]
    return cls(**given)

  def check(self):
    """Refuses what no probe can work with."""
    for name in ('digits', 'trials', 'budget', 'segments', 'queries', 'prompts'):
      if getattr(self, name) < 1:
        raise ConfigError(f'{name}: {getattr(self, name)} must be at least 1')
    for name in ('window', 'floor', 'seed'):
      if not getattr(self, name) >= 0:
        raise ConfigError(f'{name}: {getattr(self, name)} must be at least 0')
    if self.digits > 9:
      raise ConfigError(f'digits: {self.digits} digits are more than a value can have (at most 9)')
    if self.style not in STYLES:
      raise ConfigError(f"style: '{self.style}' is unknown{did_you_mean(self.style, STYLES)} (there are {', '.join(STYLES)})")
    for variant in self.variants:
      if variant not in VARIANTS:
        raise ConfigError(f"variants: '{variant}' is unknown{did_you_mean(variant, VARIANTS)} (there are {', '.join(VARIANTS)})")
    if self.distances and min(self.distances) < 1:
      raise ConfigError(f'distances: {list(self.distances)} must be at least 1')
