"""The table of the self-check, in Markdown, to be pasted into an issue as it is."""

WORDS = {True: 'holds', False: '**DOES NOT HOLD**', None: 'not tried'}


def text(machine, rows, seconds):
  """Machine, verdict and a line for each check."""
  wrong, tried = sum(row.holds is False for row in rows), sum(row.holds is not None for row in rows)
  verdict = f'{tried} checks hold' if not wrong else f'{wrong} of {tried} checks DO NOT HOLD'
  verdict += f', {len(rows) - tried} not tried' if tried < len(rows) else ''
  lines = [f'### pe_jax selfcheck: {verdict} ({seconds:.0f} s)', '', *known(machine), '']
  lines += ['| check | result | worst | allowed | note | s |', '|---|---|---|---|---|--:|']
  for row in rows:
    cells = (row.check, WORDS[row.holds], row.worst, row.allowed, row.note, f'{row.seconds:.0f}')
    lines.append(f'| {" | ".join(str(cell).replace("|", "/") for cell in cells)} |')
  return '\n'.join(lines)


def known(machine):
  """What results depend on, in lines."""
  if not machine:
    return ['The machine could not be asked.']
  packages = ', '.join(f'{name} {version}' for name, version in machine['packages'].items())
  devices = f'{machine["device_count"]} x {machine["device_kind"]} ({machine["backend"]}), {machine["cores"]} cores, {machine["machine"]}'
  return [f'- {devices}', f'- python {machine["python"]}, {packages}', f'- XLA_FLAGS={machine["xla_flags"]!r}']
