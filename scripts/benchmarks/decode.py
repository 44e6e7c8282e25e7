"""Row 13: a new token after a prompt ÷ the same from Hugging Face Llama on torch. Same model (D=256, 4 layers, gated MLP), float32.

Only the steps are timed, after the prompt has been read: of ours the compiled loop, of torch a loop over forward with its growing cache,
without the rest of `generate`.
"""

from benchmarks.plan import Contestant, Group, Row, time_ratio
from benchmarks.train import SMALL

MODEL = {name: SMALL[name] for name in ('width', 'layers', 'heads', 'vocabulary')}
GATES = {(512, 1): (0.4, 0.25), (4096, 1): (1.0, 0.3), (4096, 8): (0.25, 0.1)}


def groups(quick):
  """Context x rows; the quick run leaves out the largest and makes fewer tokens."""
  return [group(context, rows, *GATES[context, rows], 16 if quick else 32) for context, rows in GATES if not (quick and rows > 1)]


def group(context, rows, gate, target, new):
  """One context and number of rows."""
  sizes = MODEL | {'context': context, 'new': new, 'rows': rows}
  contestants = [
    Contestant('ours', 'ours', 'decode', sizes | {'form': 'llama'}),
    Contestant('HF Llama', 'torch_peers', 'decode', sizes),
    Contestant('HF Llama as it comes', 'torch_peers', 'decode', sizes, 'as it comes'),
  ]
  what = f'context {context} × {rows}'
  rows = [
    Row('13', f'decoding ÷ HF Llama, {what}', time_ratio('ours', 'HF Llama'), gate, target),
    Row('13', f'the same, torch as it comes, {what}', time_ratio('ours', 'HF Llama as it comes')),
  ]
  return Group(f'decoding, {what}', contestants, rows, turn=0)
