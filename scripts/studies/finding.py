"""A claim with its threshold, and what each seed says of it."""

import dataclasses
import operator

# Of runs that are measured afterwards: nothing on the way but the log. No parameter depends on it.
QUIET = {'eval_every_steps': 0, 'log_every_steps': 50, 'tensorboard': False}


@dataclasses.dataclass(frozen=True)
class Finding:
  """Attributes:
  name: F1 to F9 and F-leak are studies of their own; others are entries of docs/claims.md.
  claim: what should be seen, in words.
  unit: of the values.
  values: one a seed, in the order of the seeds; or one of all seeds together, where the claim says so.
  threshold: of the pilot or the plan, never of these seeds; None: reported without a verdict.
  at_least: whether values should reach the threshold, or stay at or below it.
  """

  name: str
  claim: str
  unit: str
  values: tuple
  threshold: float | None = None
  at_least: bool = True

  @property
  def verdict(self):
    """'robust': every seed keeps the threshold. 'direction only': none does not even have the sign. Else 'not seen'."""
    if self.threshold is None:
      return 'report only'
    keeps = operator.ge if self.at_least else operator.le
    if all(keeps(v, self.threshold) for v in self.values):
      return 'robust'
    right = [v > 0 if self.at_least else v < 0 for v in self.values]
    return 'direction only' if all(right) else 'not seen'

  def cells(self):
    """A line of the page's table."""
    sign = '≥' if self.at_least else '≤'
    wanted = '' if self.threshold is None else f'{sign} {self.threshold:g} {self.unit}'.strip()
    return [self.name, self.claim, ' '.join(f'{v:.3f}' for v in self.values), wanted, self.verdict]
