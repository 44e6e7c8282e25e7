"""Rows 6 to 9: attention alone, one row of one document, 4 heads of 64, float32.

The quick run does all at 2048; the gates are for 8192, 16384 and, with gradients, 4096.
"""

from benchmarks.plan import Contestant, Group, Row, megabytes, memory_ratio, time_ratio

BIASES = {  # (gate, target) over no bias
  'rope': (1.2, 1.05),
  'alibi': (1.2, 1.08),
  't5': (1.3, 1.12),
  'kerple': (1.3, 1.12),
  'fire': (None, None),
}


def groups(quick):
  """Forward at two lengths, and forward with backward."""
  if quick:
    return [forward(2048, flex=False), backward(2048)]
  return [forward(8192), plain(16384), backward(4096)]


def ours(name, encoding, length, memory=False, **more):
  """A contestant of ours."""
  return Contestant(name, 'ours', 'attention', {'encoding': encoding, 'length': length} | more, memory=memory)


def torch(name, kind, length, memory=False, settings='same', **more):
  """A contestant of torch's."""
  return Contestant(name, 'torch_peers', 'attention', {'kind': kind, 'length': length} | more, settings, memory=memory)


def forward(length, flex=True):
  """Rows 6, 7 and 8."""
  contestants = [ours('nope', 'nope', length)]
  contestants += [ours(name, name, length, memory=name == 'alibi') for name in BIASES]
  contestants += [ours('8 documents', 'nope', length, documents=8)]
  contestants += [torch('SDPA causal', 'causal', length), torch('SDPA + mask', 'mask', length, memory=True)]
  contestants += [torch('SDPA causal as it comes', 'causal', length, settings='as it comes')]
  contestants += [torch('SDPA + mask as it comes', 'mask', length, settings='as it comes')]
  rows = [Row('6', f'blockwise {n} ÷ blockwise without bias, {length}', time_ratio(n, 'nope'), *limits) for n, limits in BIASES.items()]
  rows += [
    Row('–', f'8 equal documents in the row ÷ one, {length}', time_ratio('8 documents', 'nope'), 0.3),
    Row('7', f'blockwise ALiBi ÷ torch SDPA + mask, {length}', time_ratio('alibi', 'SDPA + mask'), 0.5, 0.3),
    Row('7', f'the same, torch as it comes, {length}', time_ratio('alibi', 'SDPA + mask as it comes')),
    Row('7', f'extra memory, blockwise ALiBi ÷ torch SDPA + mask, {length}', memory_ratio('alibi', 'SDPA + mask'), 0.1, 0.03),
    Row('8', f'blockwise without bias ÷ torch SDPA causal, {length}', time_ratio('nope', 'SDPA causal'), 1.2, 0.8),
    Row('8', f'the same, torch as it comes, {length}', time_ratio('nope', 'SDPA causal as it comes')),
  ]
  if flex:
    contestants.append(torch('FlexAttention', 'flex', length))
    rows.append(Row('–', f'blockwise ALiBi ÷ torch FlexAttention with ALiBi, {length}', time_ratio('alibi', 'FlexAttention')))
  return Group(f'attention forward, {length}', contestants, rows)


def plain(length):
  """Row 8 again."""
  contestants = [
    ours('nope', 'nope', length),
    torch('SDPA causal', 'causal', length),
    Contestant('products', 'ours', 'products', {'length': length}),
  ]
  rows = [
    Row('8', f'blockwise without bias ÷ torch SDPA causal, {length}', time_ratio('nope', 'SDPA causal'), 1.2, 0.8),
    Row('–', f'the two matrix products of each block alone ÷ torch SDPA causal, {length}', time_ratio('products', 'SDPA causal')),
  ]
  return Group(f'attention forward, {length}', contestants, rows)


def backward(length):
  """Row 9."""
  contestants = [
    ours('alibi', 'alibi', length, memory=True, backward=True),
    ours('dense', 'alibi', length, memory=True, backward=True, method='dense'),
    torch('SDPA + mask', 'mask', length, backward=True),
    torch('SDPA + mask as it comes', 'mask', length, backward=True, settings='as it comes'),
  ]
  both = f'forward + backward, {length}'
  rows = [
    Row('9', f'blockwise ALiBi ÷ torch SDPA + mask, {both}', time_ratio('alibi', 'SDPA + mask'), 0.66, 0.4),
    Row('9', f'the same, torch as it comes, {both}', time_ratio('alibi', 'SDPA + mask as it comes')),
    Row('9', f'extra memory, blockwise ALiBi ÷ dense, {both}', memory_ratio('alibi', 'dense'), 0.33, 0.1),
    Row('9', f'extra memory, blockwise ALiBi, {both}', megabytes('alibi'), unit='MB'),
  ]
  return Group(f'attention {both}', contestants, rows)
