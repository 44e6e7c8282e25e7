"""Intervals for shares."""

import math


def wilson(successes, trials, z=1.96):
  """(low, high) of a share: Wilson's score interval, z standard deviations wide to each side. Wilson, 1927."""
  share, spread = successes / trials, z * z / trials
  half = math.sqrt(spread * (share * (1 - share) + spread / 4))
  return max(0.0, (share + spread / 2 - half) / (1 + spread)), min(1.0, (share + spread / 2 + half) / (1 + spread))
