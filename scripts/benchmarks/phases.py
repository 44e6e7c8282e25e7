"""What exact integer phases cost: a RoPE training step with them ÷ the same step with position x frequency in float32.

Both in one process, since two processes of the same program can differ by more than what is looked for; turns are long for the same reason.
"""

from benchmarks.plan import Contestant, Group, Row, time_ratio
from benchmarks.train import SMALL

QUICKSTART = {'width': 64, 'layers': 2, 'heads': 4, 'vocabulary': 512, 'length': 64, 'rows': 64}


def groups(quick):
  """The size of configs/quickstart.py, and L=512 (the quick run with 2 rows of it)."""
  long = SMALL | {'rows': 2} if quick else SMALL
  sizes = {'quickstart, 64 × 64': QUICKSTART, f'D=256, 4 layers, {long["rows"]} × 512': long}
  return [group(name, args, 0.4 if quick else 2.0) for name, args in sizes.items()]


def group(name, sizes, turn):
  """One size."""
  contestants = [
    Contestant('exact phases', 'ours', 'train', sizes, process='both'),
    Contestant('float32 phases', 'ours', 'train', sizes | {'float_phases': True}, process='both'),
  ]
  row = Row('phases', f'step with exact ÷ float32 phases, {name}', time_ratio('exact phases', 'float32 phases'), 1.02)
  return Group(f'phases, {name}', contestants, [row], turn)
