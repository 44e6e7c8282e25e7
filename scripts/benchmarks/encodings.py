"""Row 5: a training step with an encoding ÷ the same step without any (NoPE), L=512.

All of a group in one process, since two processes of the same program can differ by more than what is looked for.

What is added to embeddings or turns queries and keys may cost 8 %, a bias on scores 15 %, what replaces scores or looks at content 2 times.
"""

from benchmarks.plan import Contestant, Group, Row, time_ratio
from benchmarks.train import SMALL

KINDS = {  # (gate, target, encodings)
  'embed or rotate': (1.08, 1.03, ['sinusoidal', 'learned', 'rope', 'yarn(factor=4)', 'xpos', 'pope']),
  'bias': (1.15, 1.05, ['alibi', 't5', 'kerple', 'sandwich', 'fire']),
  'content': (2, 1.5, ['fox', 'cope', 'stick_breaking', 'rerope', 'transformer_xl', 'dape(kerple)']),
}
QUICK = ['rope', 'alibi', 't5', 'cope']


def groups(quick):
  """A group a kind, so that few processes stand by; in the quick run one group of the most used ones on 2 rows of 512."""
  sizes = SMALL | {'rows': 2} if quick else SMALL
  if quick:
    chosen = [(name, *kind[:2]) for kind in KINDS.values() for name in kind[2] if name in QUICK]
    return [group('encodings, 2 rows', sizes, chosen)]
  return [group(f'encodings: {name}', sizes, [(e, gate, target) for e in names]) for name, (gate, target, names) in KINDS.items()]


def group(title, sizes, chosen):
  """NoPE and some encodings."""
  names = ['nope', *(name for name, _, _ in chosen)]
  contestants = [Contestant(e, 'ours', 'train', sizes | {'encoding': e}, process='encodings') for e in names]
  rows = [Row('5', f'step with {e} ÷ NoPE, {sizes["rows"]} × 512', time_ratio(e, 'nope'), gate, target) for e, gate, target in chosen]
  return Group(title, contestants, rows)
