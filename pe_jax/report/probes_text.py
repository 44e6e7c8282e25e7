"""What the probes found, as text: a table for each probe, one line an encoding and length."""

from pe_jax.report import table


def text(rows):
  """All tables, in the order of the rows."""
  return '\n\n'.join(TABLES[name]([r for r in rows if r['probe'] == name]) for name in dict.fromkeys(r['probe'] for r in rows))


def laid(head, body, note):
  """A table whose first two columns name the encoding and the length."""
  return table.aligned([['read as', 'length', *head], *body], left=1) + '\n' + note


def named(row):
  """The first two cells."""
  return [row['asked_encoding'], str(row['length'])]


def signed(x):
  """A number with its sign, '-' where there is none."""
  return '-' if x is None else f'{x:+.2f}'


def needle(rows):
  """Accuracy and margin by depth."""
  depths = [f'{cell["depth"]:g}' for cell in rows[0]['cells']]
  body = []
  for row in rows:
    whole = [row['variant'], f'{row["chance"]:.3f}', f'{row["accuracy"]:.2f}', f'{row["accuracy_low"]:.2f}-{row["accuracy_high"]:.2f}']
    body.append([*named(row), *whole, signed(row['margin']), *(f'{cell["accuracy"]:.2f}' for cell in row['cells'])])
  counts = sorted({row['trials'] for row in rows})
  trials = f'{counts[0]} trials' if len(counts) == 1 else f'{counts[0]} to {counts[-1]} trials'
  note = (
    f'needle: share of trials in which one of {rows[0]["values"]} values is told right, over all depths and at each (0: start); margin in '
    f'nats; {trials} a cell'
  )
  return laid(['variant', 'chance', 'accuracy', '95 in 100', 'margin', *depths], body, note)


def distance(rows):
  """One line a distance."""
  body = []
  for row in rows:
    for found in row['distances']:
      change = f'{found["margin_change_low"]:+.2f} .. {found["margin_change_high"]:+.2f}' if 'margin_change' in found else '-'
      accuracy = f'{found["accuracy_low"]:.2f}-{found["accuracy_high"]:.2f}'
      body.append([*named(row), str(found['distance']), f'{found["accuracy"]:.2f}', accuracy, signed(found['margin']), change])
  first = rows[0]
  note = f'distance: the needle alone moves, {first["trials"]} paired trials; chance {first["chance"]:.3f}; change since the nearest'
  return laid(['distance', 'accuracy', '95 in 100', 'margin', 'change of margin'], body, note)


def repetition(rows):
  """Generated text beside the corpus."""
  body = []
  for row in rows:
    shares = [f'{row[key]:.3f}' for key in ('distinct_1', 'distinct_2', 'distinct_3', 'distinct_4', 'seq_rep_4')]
    drift = f'{row["windows"][-1]["nll"] - row["windows"][0]["nll"]:+.3f}' if len(row['windows']) > 1 else '-'
    body.append([*named(row), row['text'], *shares, f'{row["suffix"]:.1f}', f'{row["loops"]:.2f}', f'{row["nll"]:.3f}', drift])
  first = rows[0]
  note = (
    f'repetition: windows of {first["window"]} new tokens after {first["prompt"]}, {first["texts"]} texts; suffix in tokens; loss in nats '
    'a token under the model; drift is that from the first window to the last'
  )
  return laid(['text', *(f'distinct-{n}' for n in (1, 2, 3, 4)), 'seq-rep-4', 'suffix', 'loops', 'loss', 'drift'], body, note)


def attention(rows):
  """Means over heads, and slopes."""
  body = []
  for row in rows:
    slopes = [head['slope'] for head in row['heads'] if 'slope' in head]
    slope = f'{sum(slopes) / len(slopes):+.2f} ({min(slopes):+.2f} .. {max(slopes):+.2f})' if slopes else '-'
    numbers = [
      f'{row["entropy"]:.2f}',
      f'{row["share"]:.2f}',
      f'{row["effective"]:.1f}',
      *(f'{row[k]:.2f}' for k in ('sink', 'recent', 'beyond')),
    ]
    body.append([*named(row), *numbers, slope])
  first = rows[0]
  note = (
    f'attention of the last {first["queries"]} queries of {first["texts"]} texts, means over {len(first["heads"])} heads; entropy in nats; '
    f'beyond: mass {first["train_length"]} and more back; slope of the entropy against ln n (least and largest head)'
  )
  return laid(['entropy', 'of ln n', 'effective keys', 'first 4', 'last 16', 'beyond', 'slope'], body, note)


def position(rows):
  """R^2 by layer."""
  layers = [row['layer'] for row in rows[0]['layers']]
  body = []
  for row in rows:
    for what in ('position', 'log_position'):
      for where in ('inside', 'beyond', 'extrapolated'):
        if where in row['layers'][0][what]:
          body.append([*named(row), what.replace('_', ' '), where, *(f'{layer[what][where]:.3g}' for layer in row['layers'])])
  note = 'position: R^2 of a linear read-out of each layer (0: what enters the first), fitted and tested on different documents'
  return laid(['of', 'where', *(f'layer {n}' for n in layers)], body, note)


def permutation(rows):
  """The verdict of each."""
  words = {True: 'as predicted', False: 'NOT as predicted', None: 'no prediction'}
  body = [[*named(r), f'{r["change"]:.1e}', f'{r["run_change"]:.1e}', r['predicted'] or '-', words[r['as_predicted']]] for r in rows]
  note = f'permutation: change of the last logits where the tokens before it are put in another order; {rows[0]["layers"]} layers'
  return laid(['change', 'aab - abb', 'predicted', 'verdict'], body, note)


def phases(rows):
  """How many pairs are out of distribution, and what becomes of near tokens."""
  body = []
  for row in rows:
    for group in row['groups']:
      neighbours = [pair['neighbour'] for pair in group['pairs']]
      where = f'layers {spans(group["layers"])}, heads {spans(group["heads"])}'
      outside = f'{group["out_of_distribution"]} of {group["of"]}'
      body.append([*named(row), where, outside, f'x {group["worst_ratio"]:.3g}', f'{min(neighbours):.3g} .. {max(neighbours):.3g}'])
    if not row['groups']:
      body.append([*named(row), 'turns nothing', '-', '-', '-'])
  note = 'phases: rotary pairs that show what training never did, the worst by what factor; neighbour: angle between neighbours, now / then'
  return laid(['of', 'out of distribution', 'worst', 'neighbour'], body, note)


def spans(numbers):
  """'0-3' of a run, '0, 2' otherwise."""
  run = list(range(numbers[0], numbers[-1] + 1)) == list(numbers) and len(numbers) > 2
  return f'{numbers[0]}-{numbers[-1]}' if run else ', '.join(map(str, numbers))


def leak(rows):
  """The verdict of each."""
  body = []
  for row in rows:
    verdict = 'LEAKS' if row['leaks'] else 'BELOW THE FLOOR' if row['below_floor'] else 'none'
    body.append([*named(row), f'{row["worst_difference"]:.1e}', f'{row["weight_ahead"]:.1e}', f'{row["nll"]:.3f}', verdict])
  floor = rows[0]['floor']
  note = 'leak: change of logits before tokens that were replaced, and attention to keys ahead: both must be 0'
  note += f'; no honest loss is below {floor:g}' if floor else ''
  return laid(['worst difference', 'weight ahead', 'loss', 'leak'], body, note)


TABLES = {
  'needle': needle,
  'distance': distance,
  'repetition': repetition,
  'attention': attention,
  'position': position,
  'permutation': permutation,
  'phases': phases,
  'leak': leak,
}
