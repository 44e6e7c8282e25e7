"""What the protocols of one evaluation found, as text: losses, growing context, positions, accounting, the three lengths."""

from pe_jax.report import lengths_table, table


def text(rows, lengths=()):
  """All tables that the rows allow, one after the other; `lengths` as from `evaluate.lengths.of_rows`."""
  if rows[0]['protocol'] == 'task':
    return '\n\n'.join([table.tasks(rows), *([lengths_table.lengths(lengths)] if lengths else [])])
  parts = [table.losses(rows), *table.units(rows), *table.contexts(rows)]
  for protocol, of in (('context', context), ('buckets', buckets)):
    mine = [r for r in rows if r['protocol'] == protocol]
    parts += [of(mine)] if mine else []
  accounts = [r for r in rows if r.get('accounting')]
  parts += [accounting(accounts)] if accounts else []
  parts += unaccounted(rows)
  parts += [lengths_table.lengths(lengths)] if lengths else []
  parts += comparable(rows)
  return '\n\n'.join(parts)


def context(rows):
  """D(n) and the difference to the crop with their 95 % intervals, the differences of both arms, what became of a planted key."""
  first = rows[0]
  arms = {'far shuffled': 'shuffled_far', 'far replaced': 'replaced_far'} if any('shuffled_far' in r for r in rows) else {}
  head = ['read as', 'length', 'nats', 'D(n)', '95 % interval', 'against crop', '95 % interval', *arms]
  head += ['key', 'found'] if 'needle' in first else []
  body = []
  for row in sorted(rows, key=lambda r: (r['asked_encoding'], r['length'])):
    reference = row['length'] == row['reference_length']
    crop = row['asked_encoding'] == row['trained_encoding'] and row['length'] <= row['train_length']
    cells = [
      row['asked_encoding'],
      str(row['length']),
      f'{row["nll"]:.3f}',
      *(['-', '-'] if reference else _difference(row.get('difference'))),
    ]
    cells += ['crop', '-'] if crop else _difference(row.get('against_crop'))
    cells += [f'{row[name]["mean"]:+.3f}' if name in row else '-' for name in arms.values()]
    cells += [f'{row["needle"]["nats"]:.2f}', f'{row["needle"]["found"]:.2f}'] if 'needle' in row else []
    body.append(cells)
  note = (
    f'same targets: {first["windows"]} spans of {first["span"]} tokens, each with the tokens before it up to the length; D(n) = loss less '
    f'that at {first["reference_length"]} under the same reading; against crop: loss less that of the trained encoding on the last '
    f'{first["train_length"]} tokens, or on as many as there are: up to there the cost of a reading, beyond it of use where below 0'
  )
  if not any('against_crop' in row for row in rows):
    note += f' (not measured: {first["trained_encoding"]} is not among the encodings)'
  if 'needle' in first:
    n = first['needle']
    note += (
      f'\nkey: -log p of {n["digits"]} digits said in the far text of each span, {n["chance"]:.2f} for a guesser; found: share above 1/2'
    )
  return table.aligned([head, *body]) + '\n' + note


def _difference(d):
  """A mean and its interval as cells."""
  if d is None:
    return ['-', '-']
  return [f'{d["mean"]:+.3f}', f'{d["low"]:+.3f} .. {d["high"]:+.3f}' if 'low' in d else '-']


def buckets(rows):
  """Loss by position in one long segment and its difference to the last in-range bucket."""
  spans = [(b['start'], b['end']) for b in rows[0]['buckets']]
  body = []
  for row in rows:
    cells = [f'{b["nll"]:.3f}' + (f' ({b["difference"]:+.3f})' if 'difference' in b else '') for b in row['buckets']]
    body.append([row['asked_encoding'], *cells])
  first = rows[0]
  note = (
    f'nats by position in {first["windows"]} windows of {first["length"]}; in brackets the difference to the last bucket below '
    f'{first["train_length"]}'
  )
  return table.aligned([['read as', *(f'{a}-{b - 1}' for a, b in spans)], *body]) + '\n' + note


def accounting(rows):
  """How much of what longer windows gain is bookkeeping."""
  head = ['read as', 'length', 'loss at L', 'predicted', 'actual', 'residual', 'inside L', 'beyond L']
  body = []
  for row in sorted(rows, key=lambda r: (r['asked_encoding'], r['length'])):
    a = row['accounting']
    losses, signed = (a['in_range'], a['predicted'], a['actual']), (a['residual'], a['inside'], a['beyond'])
    body.append([row['asked_encoding'], str(row['length']), *(f'{x:.3f}' for x in losses), *(f'{x:+.3f}' for x in signed)])
  note = (
    f'accounting, non-overlapping windows, L = {rows[0]["train_length"]}: predicted without use of text beyond L; residual < 0 benefit, '
    '> 0 harm'
  )
  return table.aligned([head, *body]) + '\n' + note


def unaccounted(rows):
  """Why nothing says how much of what longer windows gain is bookkeeping, and what to ask for."""
  mine, train = [r for r in rows if r['protocol'] == 'nonoverlapping'], rows[0]['train_length']
  if not any(r['length'] > train for r in mine) or any(r.get('accounting') for r in mine):
    return []
  if any(r['length'] == train for r in mine):
    return [f'nonoverlapping: no accounting, since no document is long enough to say what {3 * train // 4} tokens of context are worth']
  return [f'nonoverlapping: what longer windows gain by themselves is told where the training length, {train}, is among the lengths']


def comparable(rows):
  """A warning for each protocol and length whose rows scored different targets."""
  seen = {}
  for row in rows:
    seen.setdefault((row['protocol'], row['length']), {}).setdefault(row['targets_sha256'], row['asked_encoding'])
  return [
    f'not comparable: {protocol} at {length} scored different targets ({", ".join(names.values())})'
    for (protocol, length), names in seen.items()
    if len(names) > 1
  ]
