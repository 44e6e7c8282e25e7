"""Row 14: tokens a second of the input pipeline ÷ what training consumes (D=256, 4 layers, 8 rows of 512).

The pipeline reads the default corpus from its files, packs an epoch of it and cuts it into batches, in one thread.
"""

from benchmarks.plan import Contestant, Group, Row, speed_ratio
from benchmarks.train import SMALL


def groups(quick):
  """The same in the quick run."""
  del quick
  contestants = [Contestant('pipeline', 'ours', 'pipeline', {'length': 512, 'rows': 8}), Contestant('training', 'ours', 'train', SMALL)]
  row = Row('14', 'tokens/s of the pipeline ÷ of training', speed_ratio('pipeline', 'training'), 20, 100, at_least=True)
  return [Group('input pipeline', contestants, [row])]
