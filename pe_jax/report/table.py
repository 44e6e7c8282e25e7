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
  first = rows[0]
  note = (
    f'nats a target at each length; trained at {first["train_length"]}; {first["targets"]} targets of {first["documents"]} documents; '
    f'{first["device_count"]} x {first["device_kind"]}'
  )
  return aligned([head, *body], left=3) + '\n' + note


def aligned(table, left=1):
  """Rows of cells in columns; the first `left` columns flush left, numbers flush right."""
  widths = [max(len(row[k]) for row in table) for k in range(len(table[0]))]
  return '\n'.join(
    '  '.join(cell.ljust(w) if k < left else cell.rjust(w) for k, (cell, w) in enumerate(zip(row, widths, strict=True))).rstrip()
    for row in table
  )
