"""The tables of the page of results, as HTML."""

import json

from pe_jax.report import across_seeds as across
from pe_jax.report import lengths_table, probes_text
from pe_jax.report.markup import attribute, cell, esc, folded, number, pre, quantity, raw, table
from pe_jax.report.rows import number as finite

LONGEST = 1e12  # sorts behind every length
SHOWN = 60  # rows of a probe's text

RANKING = (
  ('encoding', 'as trained, or the encoding under which the trained parameters are read'),
  ('rank', 'among the same training length, protocol, text and task; without a rank what cannot be put in order'),
  ('L', 'training length, tokens'),
  ('protocol', 'how it was evaluated'),
  ('seeds', 'runs that differ in the seed alone'),
  ('in distribution', 'loss at the training length (nats a target), or exact match'),
  ('at n', 'loss, or exact match, at the longest length n'),
  ('change', 'D(n) of context: loss at n less loss at the training length on the same targets; what the rank goes by'),
  ('n', 'the longest length that was measured'),
  ('acceptable', 'lengths that raise no error'),
  ('computable', 'longest that was computed'),
  ('reliable', 'longest length up to which D(n) surely stays within the margin'),
  ('useful', 'longest length up to which more context surely lowers the loss'),
  ('warnings', ''),
)


def ranking(entries, colour, cards):
  """One line an entry.

  Args:
    entries: as from `ranking.of_readings`.
    colour: {label: '#rrggbb'}.
    cards: {run name: id of its card}.
  """
  rows = []
  for entry in entries:
    reading = entry.reading
    swatch = f'<i class="swatch" style="background:{colour[reading.label]}"></i>'
    link = f'<a href="#{cards[reading.runs[0].name]}">{esc(reading.label)}</a>'
    form = '+.3f' if entry.protocol != 'task' else '.3f'
    bounds = f'{number(entry.low, form)} .. {number(entry.high, form)}' if entry.interval else ''
    interval = f'<span{attribute("title", entry.interval)}>{esc(bounds)}</span>' if bounds else ''
    seeds = attribute('title', 'seeds ' + ', '.join(map(str, reading.seeds)))
    rows.append(
      (
        f'data-l="{reading.train_length}"{attribute("data-p", entry.protocol)}{attribute("data-f", reading.label.lower())}',
        [
          raw(swatch + link, reading.label, 'name'),
          quantity(entry.rank, 'd'),
          quantity(reading.train_length, 'd'),
          cell(entry.protocol),
          raw(f'<span{seeds}>{len(reading.runs)}</span>', len(reading.runs), 'n'),
          quantity(entry.inside, '.3f', esc(entry.inside_of)),
          quantity(entry.value),
          quantity(entry.change, form, interval),
          quantity(entry.length, 'd'),
          *_reaches(entry),
          raw(' '.join(_badge(text) for text in entry.faults) + _notes(entry.notes), len(entry.faults) + len(entry.notes) / 100),
        ],
      )
    )
  return table('ranking', RANKING, rows)


def across_seeds(entries, margin):
  """Intervals and tests over seeds, folded away; '' where nothing has two."""
  said = across.text(across.of_entries(entries, margin), margin)
  return folded('Across seeds: intervals, flatness, differences to the first', pre(said)) if said else ''


def _reaches(entry):
  """Cells of the three lengths and the useful one."""
  if not entry.lengths:
    return [raw('–', '', 'n')] * 4
  three, r = entry.lengths, entry.lengths.reliable
  if r.reach is None:
    return [_reach(three.acceptable, r), _reach(three.computable, r), raw('gate failed', 0, 'n'), raw('–', '', 'n')]
  return [_reach(x, r) if x else raw('–', '', 'n') for x in (three.acceptable, three.computable, r.reach, r.useful)]


def _reach(reach, r):
  last = LONGEST if reach.passed is None and reach.failed is None else reach.passed or r.reference / 2
  return raw(esc(reach.text(r.reference)), last, 'n')


def _badge(text):
  return f'<span class="badge">{esc(text)}</span>'


def _notes(notes):
  return ''.join(f'<small class="note">{esc(note)}</small>' for note in notes)


def warnings(entries, runs):
  """Everything that a reader must know before believing a number, most serious first; '' where there is nothing."""
  serious = [f'{e.reading.label} ({e.protocol}, L={e.reading.train_length}): {fault}' for e in entries for fault in e.faults]
  lesser = [f'{e.reading.label} ({e.protocol}, L={e.reading.train_length}): {note}' for e in entries for note in e.notes]
  of_runs = [f'{run.name}: {run.state}{f", {run.error}" if run.error else ""}' for run in runs if run.state != 'finished']
  of_runs += [f'{run.name}: {text}' for run in runs for text in run.warnings]
  doubts = {}
  for entry in entries:
    for text in entry.lengths.reliable.warnings if entry.lengths else ():
      doubts.setdefault(text, []).append(entry.reading.label)
  parts = [
    ('without a rank', serious, len(serious) <= 6),
    ('not complete', lesser, False),
    ('runs', of_runs, len(of_runs) <= 6),
    ('three lengths', [f'{text} ({_some(names)})' for text, names in doubts.items()], False),
  ]
  return ''.join(
    folded(f'{title}: {len(said)}', '<ul>' + ''.join(f'<li>{esc(text)}</li>' for text in said) + '</ul>', unfolded)
    for title, said, unfolded in parts
    if said
  )


def _some(names, most=6):
  return ', '.join(names[:most]) + (f' and {len(names) - most} more' if len(names) > most else '')


def by_length(charts, colour, place):
  """A table for each chart over lengths: readings down, lengths across."""
  out = []
  for chart in charts:
    if chart.name.startswith(('position_', 'training_')):
      continue
    lengths = sorted({x for curve in chart.curves for x in curve.x})
    form = '+.3f' if chart.name.startswith('context_') else '.3f'
    rows = []
    for curve in sorted(chart.curves, key=lambda c: place[c.reading.label]):
      label, at = curve.reading.label, {x: n for n, x in enumerate(curve.x)}
      swatch = f'<i class="swatch" style="background:{colour[label]}"></i>'
      cells = [raw(swatch + esc(label), label, 'name'), quantity(curve.reading.train_length, 'd')]
      for length in lengths:
        n = at.get(length)
        bounds = f'{curve.low[n]:{form}} .. {curve.high[n]:{form}}' if n is not None and curve.low else ''
        cells.append(quantity(None if n is None else curve.y[n], form, esc(bounds)))
      rows.append(cells)
    head = [('encoding', ''), ('L', 'training length'), *((f'{n:g}', chart.x) for n in lengths)]
    made = table(f'table_{chart.name}', head, rows, f'{chart.y}; {chart.x} across; {chart.band.replace("bands", "small")}')
    out.append(folded(chart.title, made, unfolded=not out))
  return ''.join(out)


def three_lengths(entries):
  """The table of lengths with its notes, as eval.py prints it."""
  rows = [e.lengths for e in entries if e.lengths]
  return pre(lengths_table.lengths(rows)) if rows else '<p>No run was evaluated under <code>context</code> beyond its training length.</p>'


def probes(runs):
  """What the probes found, as eval.py prints it."""
  out = []
  for probe, text in probes_text.TABLES.items():
    rows = [row | {'asked_encoding': f'{run.name}: {row["asked_encoding"]}'} for run in runs for row in run.rows if row['measure'] == probe]
    if not rows:
      continue
    try:
      said = text(rows[:SHOWN])
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
      said = f'rows of another form than this version writes: {type(error).__name__}: {error}'
    more = f'\nthe first {SHOWN} of {len(rows)} rows' if len(rows) > SHOWN else ''
    out.append(folded(f'{probe} ({len(rows)} rows)', pre(said + more)))
  return ''.join(out)


RUNS = (
  ('run', ''), ('state', ''), ('encoding', ''), ('L', 'training length'), ('seed', ''), ('step', ''), ('of', 'steps asked for'),
  ('validation loss', 'at the end, nats a target'), ('rows', 'evaluation rows'), ('device', ''), ('warnings', ''),
)  # fmt: skip


def runs_table(runs, cards):
  """One line a run, whatever became of it."""
  rows = []
  for run in runs:
    config, env = run.config, run.env
    said = _notes([run.error] if run.error else []) + _notes(run.warnings)
    rows.append(
      (
        attribute('data-f', f'{run.name} {run.state} {config.get("encoding", "")}'.lower()),
        [
          raw(f'<a href="#{cards[run.name]}">{esc(run.name)}</a>', run.name, 'name'),
          raw(f'<span class="state {run.state}">{run.state}</span>'),
          cell(config.get('encoding', '–')),
          cell(config.get('train_length', '–'), config.get('train_length', ''), 'n'),
          cell(config.get('seed', '–'), config.get('seed', ''), 'n'),
          quantity(run.step, 'd'),
          cell(config.get('num_train_steps', '–'), config.get('num_train_steps', ''), 'n'),
          quantity(finite(run.done.get('validation_loss'))),
          quantity(len(run.rows), 'd'),
          cell(f'{env.get("device_count", "")} x {env.get("device_kind", "")}' if env else '–'),
          raw(said, len(run.warnings) + bool(run.error)),
        ],
      )
    )
  return table('runs', RUNS, rows)


def fields(tree):
  """Fields and values, a line each."""
  return pre('\n'.join(f'{name} = {json.dumps(value, ensure_ascii=False)}' for name, value in tree.items()) or 'none')
