"""Result rows as text."""


def losses(rows):
  """Nats a target, one line an encoding and protocol, one column a length; the trained encoding where it differs."""
  lengths = sorted({r['length'] for r in rows})
  lines, cells = {}, {}
  for row in rows:
    key = (row['protocol'], row['trained_encoding'], row['asked_encoding'])
    lines[key] = None
    cells[key, row['length']] = f'{row["nll"]:.3f}'
  head = ['protocol', 'trained with', 'read as', *(str(n) for n in lengths)]
  body = [[*key, *(cells.get((key, n), '') for n in lengths)] for key in lines]
  first, targets = rows[0], {}
  for row in rows:
    counts = targets.setdefault(row['protocol'], [])
    counts += [] if row['targets'] in counts else [row['targets']]
  scored = ', '.join(f'{name} {" or ".join(map(str, sorted(counts)))}' for name, counts in targets.items())
  note = (
    f'nats a target at each length; trained at {first["train_length"]}; targets of {first["documents"]} documents: {scored}; '
    f'{first["device_count"]} x {first["device_kind"]}'
  )
  return aligned([head, *body], left=3) + '\n' + note


def units(rows):
  """[bits a byte / perplexity in the same lines and columns]; none where no bytes were scored."""
  lengths, cells = sorted({r['length'] for r in rows}), {}
  for row in rows:
    if row['bits_per_byte'] is not None:
      cells.setdefault((row['protocol'], row['asked_encoding']), {})[row['length']] = f'{row["bits_per_byte"]:.3f} / {row["ppl"]:.4g}'
  if not cells:
    return []
  body = [[*key, *(of.get(n, '') for n in lengths)] for key, of in cells.items()]
  head = ['protocol', 'read as', *(str(n) for n in lengths)]
  return [aligned([head, *body], left=2) + '\nthe same in bits a byte of the scored targets / perplexity a target']


def contexts(rows):
  """[how much text stands before a target on average, and the strides of sliding windows]."""
  said = {}
  for row in rows:
    if row['protocol'] in ('nonoverlapping', 'sliding') and 'context_mean' in row:
      stride = f' (stride {row["stride"]})' if row['protocol'] == 'sliding' else ''
      said.setdefault(row['protocol'], {})[f'{row["context_mean"]:.4g} at {row["length"]}{stride}'] = None
  return ['tokens before a target, the mean: ' + '; '.join(f'{name} {", ".join(of)}' for name, of in said.items())] if said else []


TASK_COLUMNS = {
  'loss': 'nll',
  'above optimum': 'nll_above_optimum',
  'per token': 'token_accuracy',
  'chance': 'chance_token_accuracy',
  'exact': 'exact_match',
  'exact by chance': 'chance_exact_match',
  'format': 'format_compliance',
  'unsupported': 'unsupported_answers',
}


def tasks(rows):
  """Results on a task, one line an encoding and length; columns that no row has are left out."""
  columns = {head: key for head, key in TASK_COLUMNS.items() if key in rows[0]}
  table = [['trained with', 'read as', 'length', *columns, '95 in 100']]
  for row in sorted(rows, key=lambda r: (r['asked_encoding'], r['length'])):
    cells = [f'{row[key]:.3f}' if row[key] == 0 or row[key] >= 0.0005 else f'{row[key]:.0e}' for key in columns.values()]
    interval = f'{row["exact_match_low"]:.3f}-{row["exact_match_high"]:.3f}'
    table.append([row['trained_encoding'], row['asked_encoding'], str(row['length']), *cells, interval])
  first, shared = rows[0], sorted({r['length'] for r in rows if not r['disjoint']})
  note = f'{first["task"]}: {first["samples"]} samples a length; loss in nats a token of the answer; the interval is of exact matches'
  few = {r['length']: r['distinct_samples'] for r in rows if r['distinct_samples'] < r['samples']}
  if few:
    note += f'\nof them different, for which the interval is: {", ".join(f"{count} at {n}" for n, count in sorted(few.items()))}'
  if shared:
    note += f'\nlengths with too few samples to keep some from training: {", ".join(map(str, shared))}'
  return aligned(table, left=2) + '\n' + note


def aligned(table, left=1):
  """Rows of cells in columns; the first `left` columns flush left, numbers flush right."""
  widths = [max(len(row[k]) for row in table) for k in range(len(table[0]))]
  return '\n'.join(
    '  '.join(cell.ljust(w) if k < left else cell.rjust(w) for k, (cell, w) in enumerate(zip(row, widths, strict=True))).rstrip()
    for row in table
  )


def by_position(rows, in_distribution):
  """Mean loss in ranges of positions of one long window, one line a reading of the parameters.

  Args:
    rows: result rows of the longest length.
    in_distribution: {trained encoding: loss in non-overlapping windows of the training length}.
  """
  train, longest = rows[0]['train_length'], rows[0]['length']
  edges = [(3 * train // 4, train)]
  while edges[-1][1] < longest:
    edges.append((edges[-1][1], min(2 * edges[-1][1], longest)))
  head = ['trained with', 'read as', 'in-distribution', *(f'{a}-{b - 1}' for a, b in edges)]
  body = []
  for row in rows:
    trained = row['trained_encoding']
    body.append([trained, row['encoding'], f'{in_distribution[trained]:.3f}', *(f'{mean(row, a, b):.3f}' for a, b in edges)])
  return aligned([head, *body], left=2)


def mean(row, start, end):
  """Mean loss over the buckets within positions [start, end)."""
  inside = [b for b in row['position_buckets'] if start <= b['start'] and b['end'] <= end]
  return sum(b['nll'] * b['targets'] for b in inside) / sum(b['targets'] for b in inside)
