"""The lengths of encodings as text."""

from pe_jax.report.table import aligned


def lengths(rows):
  """One line an encoding and protocol: acceptable, computable, reliable, useful; what was assumed and what to doubt below.

  Args:
    rows: `statistics.lengths.Lengths`.
  """
  head = ['encoding', 'protocol', 'acceptable', 'computable', 'reliable', 'useful', 'must pass']
  body, notes = [], {}
  for row in rows:
    r = row.reliable
    reach = ['gate failed', '-'] if r.reach is None else [r.reach.text(r.reference), r.useful.text(r.reference) if r.useful else '-']
    body.append([row.encoding, r.protocol, row.acceptable.text(r.reference), row.computable.text(r.reference), *reach, r.rule()])
    for note in ([r.gate.why] if r.reach is None else []) + list(r.warnings):
      notes.setdefault(note, []).append(row.encoding)
  said = [f'{note} ({", ".join(unique(names))})' for note, names in notes.items()]
  return '\n'.join([aligned([head, *body], left=2), *unique(sure(row.reliable) for row in rows), *said])


def sure(r):
  """The sentence on what a Reliable rests on."""
  units = 'groups of samples' if r.metric == 'accuracy' else 'documents or spans'
  bound = (
    'point estimates'
    if r.alpha is None
    else f'one-sided {1 - r.alpha:.0%} bounds over {r.runs} run{"s" * (r.runs > 1)} and {r.documents} {units}'
  )
  return f'L = {r.reference}; {bound}; every tested length up to the one given passes; >= none failed, < none passed'


def unique(lines):
  """Without repetitions, in order."""
  return list(dict.fromkeys(lines))
