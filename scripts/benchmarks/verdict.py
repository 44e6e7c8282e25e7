"""Paired ratios and what they say of a gate."""

import numpy as np

DISTURBED = 0.3  # cores taken by other processes, beyond which a time says nothing


def paired(over, under):
  """Round by round, so that a slow minute of the machine hits both sides of a ratio."""
  return [a / b if b else float('nan') for a, b in zip(over, under, strict=True)]


def summary(values):
  """Median, quartiles and extremes; nothing is left out."""
  first, median, third = np.percentile(values, [25, 50, 75])
  return {'median': float(median), 'first': float(first), 'third': float(third), 'least': min(values), 'most': max(values)}


def judge(values, gate, at_least=False, others=None):
  """'PASS' if the quartiles lie within the gate, 'FAIL' if both are outside, else 'INCONCLUSIVE'; 'report' where there is no gate."""
  if gate is None:
    return 'report'
  if (others or 0) > DISTURBED or not np.all(np.isfinite(values)):
    return 'INCONCLUSIVE'
  near, far = np.percentile(values, [75, 25] if not at_least else [25, 75])
  inside = (near >= gate, far >= gate) if at_least else (near <= gate, far <= gate)
  return 'PASS' if all(inside) else 'FAIL' if not any(inside) else 'INCONCLUSIVE'


def exponent(lengths, values):
  """b of values ∝ lengths^b, by least squares of the logarithms."""
  if min(values) <= 0:
    return float('nan')
  return float(np.polyfit(np.log(lengths), np.log(values), 1)[0])
