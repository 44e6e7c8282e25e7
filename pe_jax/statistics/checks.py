"""What every function here asks of its arguments, refused in one sentence."""

import numpy as np

from pe_jax.errors import ConfigError, DataError, NotFinite


def numbers(name, values, ndim):
  """`values` as float64 with `ndim` axes, none of them empty, every value finite."""
  x = np.asarray(values, np.float64)
  if x.ndim != ndim:
    raise ConfigError(f'{name}: {ndim} axes are needed and shape {x.shape} has {x.ndim}')
  if not x.size:
    raise DataError(f'{name}: shape {x.shape} holds no values (measure at least one)')
  wrong = np.argwhere(~np.isfinite(x))
  if len(wrong):
    at = tuple(wrong[0].tolist())
    raise NotFinite(f'{name}: {len(wrong)} of {x.size} values are not finite, the first at {at} (leave this length or run out and say so)')
  return x


def same_shape(name, x, other_name, other):
  """Refuses two arrays that do not belong together."""
  if x.shape != other.shape:
    raise ConfigError(f'{name} has shape {x.shape} and {other_name} {other.shape}: they must be the same')


def counts(name, values, ndim):
  """Counts of targets: finite and above zero, since a resample of empty documents would have no mean."""
  x = numbers(name, values, ndim)
  if x.min() <= 0:
    at = tuple(np.argwhere(x <= 0)[0].tolist())
    raise DataError(f'{name}: the count at {at} is {x[at]:g} (leave out documents without targets)')
  return x


def paired_runs(name, values):
  """One value a run, from two runs or more."""
  x = numbers(name, values, 1)
  if len(x) < 2:
    raise DataError(f'{name}: one run has no spread between runs; 2 are needed, and 5 for a claim')
  return x


def fraction(name, value):
  """A probability strictly between 0 and 1."""
  if not 0 < value < 1:
    raise ConfigError(f'{name}: {value} must lie between 0 and 1')
  return float(value)


def positive(name, value):
  """A finite number above zero."""
  if not (np.isfinite(value) and value > 0):
    raise ConfigError(f'{name}: {value} must be a number above 0')
  return float(value)
