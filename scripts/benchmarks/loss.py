"""Row 12: value and gradients of the loss of a large vocabulary, D=512, in pieces ÷ with all logits at once.

The gate is for 8192 tokens and V=32768. The quick run has 4096 tokens and V=16384, where a piece is a quarter of all logits: its memory is
only reported.
"""

from benchmarks.plan import Contestant, Group, Row, memory_ratio, time_ratio


def groups(quick):
  """One size, and V=50k in the full run."""
  return [group(4096, 16_384, None, None)] if quick else [group(8192, 32_768, 0.2, 0.07), group(8192, 50_304, None, None, rounds=5)]


def group(tokens, vocabulary, memory_gate, memory_target, rounds=0):
  """One vocabulary."""
  sizes = {'tokens': tokens, 'width': 512, 'vocabulary': vocabulary}
  contestants = [
    Contestant('pieces', 'ours', 'loss', sizes, memory=True),
    Contestant('full logits', 'ours', 'loss', sizes | {'pieces': False}, memory=True),
    Contestant('torch', 'torch_peers', 'loss', sizes),
  ]
  what = f'{tokens} tokens, V={vocabulary}'
  rows = [
    Row('12', f'loss and gradients in pieces ÷ full logits, {what}', time_ratio('pieces', 'full logits'), 1.1, 0.9),
    Row('12', f'extra memory, pieces ÷ full logits, {what}', memory_ratio('pieces', 'full logits'), memory_gate, memory_target),
    Row('–', f'loss and gradients in pieces ÷ torch, {what}', time_ratio('pieces', 'torch')),
  ]
  return Group(f'loss, {what}', contestants, rows, rounds=rounds)
