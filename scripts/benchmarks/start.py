"""Row 15: seconds from starting train.py (configs/quickstart.py, rope) to the numbers of its first step, with a warm compile cache.

The cache is a new one, filled by a first start that does not count.
"""

from benchmarks.plan import Contestant, Group, Row, seconds


def groups(quick):
  """A few starts; they take longer than any turn."""
  contestant = Contestant('train.py', 'ours', 'start')
  row = Row('15', 'second start to first step', seconds('train.py'), 6, 3, unit='s')
  return [Group('second start', [contestant], [row], 0, 2 if quick else 5)]
