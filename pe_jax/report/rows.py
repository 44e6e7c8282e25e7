"""Rows of evaluations and logs as other programs left them: read, checked, the newest of each kept.

Of rows with the same protocol or probe, encoding, length and variant the last in the file counts, and how many it replaced is told. A line
that is no row, or whose values are not of the kinds that `evaluate` and `probes` write, is left out and counted: what comes after this
relies on them.
"""

import json
import math

from pe_jax import windows

KEYS = ('asked_encoding', 'length', 'split', 'variant', 'text', 'task')  # beside the measure: rows that agree in them measured the same
LISTS = {
  'position_buckets': ('start', 'end', 'nll', 'targets'),
  'buckets': ('start', 'end', 'nll'),
  'cells': ('depth', 'accuracy'),
  'heads': ('layer', 'head', 'entropy'),
}
SCALARS = (*KEYS, 'encoding', 'label', 'step', 'targets_sha256', 'documents_sha256', 'span')
DIFFERENCES = ('difference', 'shuffled_far', 'replaced_far')
BOUNDS = ('mean', 'low', 'high')


def lines(path):
  """(objects of a .jsonl file, number of lines that are none); a torn last line, which a writer is at or left, is no fault."""
  try:
    text = path.read_text(encoding='utf-8', errors='replace') if path.is_file() else ''
  except OSError:
    return [], 0
  found, bad = [], 0
  for line in text.split('\n')[:-1]:
    try:
      row = json.loads(line, parse_constant=lambda _: None) if line.strip() else None
    except (ValueError, RecursionError):
      row = False
    if isinstance(row, dict):
      found.append(row)
    elif row is not None:
      bad += 1
  return found, bad


def evaluated(path):
  """(newest rows, how many they replaced, warnings) of a run's eval/*.jsonl."""
  newest, replaced, warnings = {}, 0, []
  for file in sorted((path / 'eval').glob('*.jsonl')):
    rows, bad = lines(file)
    for row in rows:
      if not sound(row):
        bad += 1
        continue
      measure = row.get('protocol') or row['probe']
      key = (measure, *(row.get(name) for name in KEYS))
      replaced += key in newest
      newest[key] = row | {'measure': measure}
    warnings += left_out(f'eval/{file.name}', bad)
  warnings += strides(newest.values())
  if replaced:
    warnings.append(f'{replaced} row{"s" * (replaced > 1)} measured again: the newest of the same key counts')
  return tuple(newest.values()), replaced, warnings


def strides(rows):
  """A warning where sliding windows of one encoding went on by a quarter at some lengths and by something else at others."""
  curves = {}
  for row in rows:
    if row['measure'] == 'sliding' and whole(row.get('stride')):
      curves.setdefault((row['asked_encoding'], row.get('split')), {})[row['length']] = row['stride']
  mixed = [of for of in curves.values() if len({*of.values()}) > 1 and any(s != windows.stride(n) for n, s in of.items())]
  said = (', '.join(f'{s} at {n}' for n, s in sorted(of.items())) for of in mixed)
  return [f'sliding: strides {these}, which are not to be put on one curve' for these in dict.fromkeys(said)]


def left_out(file, bad):
  """A warning on lines that were no rows, if there were any."""
  return [f'{file}: {bad} line{"s" * (bad > 1)} could not be read as a row and {"were" if bad > 1 else "was"} left out'] if bad else []


def sound(row):
  """Whether a row has what everything after this relies on, with values of the kinds that `evaluate` and `probes` write."""
  measure = row.get('protocol') or row.get('probe')
  if not all(isinstance(text, str) for text in (measure, row.get('asked_encoding'), row.get('trained_encoding'))):
    return False
  if not (whole(row.get('length')) and whole(row.get('train_length')) and row['length'] > 0 and row['train_length'] > 0):
    return False
  if row.get('protocol') and number(row.get('nll')) is None:
    return False
  if not all(row.get(name) is None or isinstance(row[name], (str, int, float)) for name in SCALARS):
    return False
  try:
    for name, keys in LISTS.items():
      for item in row.get(name) or ():
        if any(number(item[key]) is None for key in keys) or ('targets' in keys and item['targets'] <= 0):
          return False
    if not all(map(whole, row.get('not_finite') or ())):
      return False
    for name in DIFFERENCES:
      if name in row and any(number(row[name][key]) is None for key in BOUNDS if key == 'mean' or key in row[name]):
        return False
    if 'by_unit' in row:
      sums, counts = (row['by_unit'][name] for name in (('right', 'trials') if measure == 'task' else ('nll', 'targets')))
      return len(sums) == len(counts) and all(number(x) is not None for x in [*sums, *counts]) and min(counts) > 0
  except (AttributeError, KeyError, TypeError, ValueError):
    return False
  return True


def number(x):
  """x as a finite float, None where it is none."""
  try:
    return float(x) if isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x) else None
  except OverflowError:  # a whole number of hundreds of digits
    return None


def whole(x):
  """Whether x is a whole number from 0 on that a table can hold."""
  return isinstance(x, int) and not isinstance(x, bool) and 0 <= x < 2**53
