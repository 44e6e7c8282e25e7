"""Rows 10 and 11: evaluation of a small model (D=128, 2 layers) far beyond the training length.

Row 11: `prefix` at six lengths ÷ at the longest alone, where one pass gives all of them; the clock includes tracing and loading what is
compiled. Beside it in the full run, without a gate, six lengths of `nonoverlapping`, which needs a pass each. Row 10: one document scored
in one pass, extra memory for every encoding with a bias.
"""

from benchmarks.plan import Contestant, Group, Row, megabytes, time_ratio

SIZES = {'width': 128, 'layers': 2, 'heads': 4, 'vocabulary': 512}
BIASES = ['alibi', 't5', 'kerple', 'sandwich', 'fire', 'fox']


def groups(quick):
  """Lengths up to 4096 in the quick run, where row 10 has one encoding at 8192 and no gate."""
  longest = 4096 if quick else 16_384
  return [many(longest, quick), one(8192, ['alibi'], None, None) if quick else one(32_768, BIASES, 800, 300)]


def many(longest, quick):
  """Row 11."""
  lengths = [longest >> n for n in range(5, -1, -1)]

  def case(name, wanted, protocol):
    args = {'lengths': wanted, 'encoding': 'alibi', 'protocol': protocol, 'windows': 2, 'longest': longest}
    return Contestant(name, 'ours', 'lengths', args | SIZES)

  contestants = [case('six', lengths, 'prefix'), case('longest', [longest], 'prefix')]
  text = f'{lengths[0]} … {longest}'
  rows = [Row('11', f'six lengths {text} ÷ the longest alone, prefix, ALiBi', time_ratio('six', 'longest'), 1.3, 1.05)]
  if not quick:
    contestants.append(case('six passes', lengths, 'nonoverlapping'))
    rows.append(Row('–', f'six lengths {text}, nonoverlapping ÷ prefix', time_ratio('six passes', 'six')))
  return Group(f'lengths up to {longest}', contestants, rows, turn=0)


def one(length, encodings, gate, target):
  """Row 10. A single round: time is not what it is about."""
  contestants = [Contestant(e, 'ours', 'evaluate_one', SIZES | {'encoding': e, 'length': length}, memory=True) for e in encodings]
  rows = [Row('10', f'extra memory, one document of {length}, {e}', megabytes(e), gate, target, unit='MB') for e in encodings]
  return Group(f'one document of {length}', contestants, rows, turn=0, rounds=1)
