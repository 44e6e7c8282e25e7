"""What was measured as data, and data as a page."""

import json
import pathlib
import re

import numpy as np

from benchmarks import verdict

METHOD = """\
Speed and memory as ratios: `make bench` (`make bench ARGS=--quick` takes under five minutes, `ARGS=--only=attention,loss` a part).

- **Turns.** Every program is a process of its own (in the sections encodings, phases and growth what differs in the encoding, the phases or
  the length alone shares one), and only one computes at a time. In each round each has one turn, every second round in the opposite order,
  with a float32 1024³ matmul of jax among them (the probe). A ratio is taken inside each round; the table shows the median of these ratios,
  their quartiles, and the least and the most. Nothing is dropped: everybody has compiled and run before.
- **Verdicts.** PASS: both quartiles within the gate. FAIL: both outside. INCONCLUSIVE: between, or other processes took more than 0.3 of a
  core meanwhile. A row without a gate only reports. "Reached" by a target: both quartiles are there. Gates are for the sizes of the full
  run; the quick run says at which sizes it ran instead.
- **Settings.** "Same settings" gives every process what `make` and the scripts set for malloc (GLIBC_TUNABLES, as each section says), and
  jax programs also the compiler options of `pe_jax/process.py`; "as it comes" sets nothing. Ours always has them. All on the CPU.
- **Memory.** "Extra memory" is the peak resident size during one call less the size before it, in a process that has run the call before
  and whose malloc has been told to keep nothing; measured after the times. What is there already (parameters, inputs) does not count, what
  is made for the call does, such as the mask of biases that torch is given.
- Times in one table were measured together. Of different tables only the ratios compare.
"""
HEAD = '| # | measure | median | quartiles | least – most | gate | target | verdict | medians of the parts |'


def evaluated(row, measured):
  """A row of the JSON: numbers, verdict, and what is missing."""
  line = {'number': row.number, 'measure': row.measure, 'unit': row.unit, 'at_least': row.at_least}
  line |= {'gate': row.gate, 'target': row.target}
  missing = [measured.missing[name] for name in row.value.needs if name in measured.missing]
  if missing:
    return line | {'verdict': missing[0].partition(':')[0], 'why': missing[0]}
  values = row.value.of(measured)
  others = measured.others if row.value.kind == 'time' else None
  reached = row.target is not None and verdict.judge(values, row.target, row.at_least, others) == 'PASS'
  judged = {'verdict': verdict.judge(values, row.gate, row.at_least, others), 'reached': reached}
  return line | verdict.summary(values) | judged | {'values': values, 'parts': parts(row, measured)}


def parts(row, measured):
  """{contestant: its median in words}."""
  if row.value.kind == 'memory':
    return {name: f'{np.median(measured.memory[name]) / 1e6:.3g} MB' for name in row.value.needs}
  return {name: in_words(np.median(measured.seconds[name])) for name in row.value.needs}


def in_words(seconds):
  """'455 ms'."""
  for unit, factor in (('s', 1), ('ms', 1e3), ('µs', 1e6)):
    if seconds * factor >= 1 or unit == 'µs':
      return f'{number(seconds * factor)} {unit}'


def number(value):
  """Three digits."""
  return f'{value:.0f}' if abs(value) >= 100 else f'{value:.3g}'


def group_data(group, measured):
  """The JSON of a group: everything that was measured."""
  contestants = []
  for c in group.contestants:
    args = {name: value for name, value in c.args.items() if name != 'path'}
    contestants.append({'name': c.name, 'module': c.module, 'case': c.case, 'settings': c.settings, 'args': args})
  data = {'name': group.name, 'rows': [evaluated(row, measured) for row in group.rows], 'contestants': contestants}
  names = ('seconds', 'memory', 'facts', 'missing', 'others')
  return data | {name: getattr(measured, name) for name in names} | {'probe_gflops': probe_speed(measured)}


def probe_speed(measured):
  """GFLOP/s of the probe in every round."""
  return [measured.facts['probe']['flops'] / s / 1e9 for s in measured.seconds['probe']]


def line(row):
  """A line of the Markdown table."""
  if 'median' not in row:
    limits = f'{limit(row, "gate")} | {limit(row, "target")}'
    return f'| {row["number"]} | {row["measure"]} | – | – | – | {limits} | {row["verdict"]} | {why(row)} |'
  unit = f' {row["unit"]}' if row['unit'] else ''
  spread = f'{number(row["first"])} – {number(row["third"])}', f'{number(row["least"])} – {number(row["most"])}'
  target = limit(row, 'target') + (' reached' if row['reached'] else '')
  shown = ', '.join(f'{name} {value}' for name, value in row['parts'].items())
  return (
    f'| {row["number"]} | {row["measure"]} | **{number(row["median"])}**{unit} | {spread[0]} | {spread[1]} '
    f'| {limit(row, "gate")} | {target} | {row["verdict"]} | {shown} |'
  )


def why(row):
  """What follows the first word."""
  return row['why'].partition(':')[2].strip().replace('|', '/')


def limit(row, name):
  """'≤ 1.1', '–'."""
  if row[name] is None:
    return '–'
  return f'{"≥" if row["at_least"] else "≤"} {row[name]:g}{" " + row["unit"] if row["unit"] else ""}'


def section(name, data):
  """The Markdown of one benchmark."""
  machine, versions = data['machine'], data['versions']
  where = f'{machine["processor"]}; {machine["cores"]} cores, {machine["memory_gb"]} GB, {machine["system"]}'
  used = ', '.join(f'{k} {v}' for k, v in versions.items() if k != 'compiler options')
  mode = f'{data["mode"]} run, {data["rounds"]} rounds, {data["seconds"]:.0f} s'
  text = [f'## {name}', '', data['about'], '', f'{data["date"]}, {mode}. {where}. {used}. {data["settings"]}.', '']
  for group in data['groups']:
    others = 'unknown' if group['others'] is None else f'{group["others"]:.2f} cores'
    least, most = min(group['probe_gflops']), max(group['probe_gflops'])
    text += [f'**{group["name"]}** (probe {least:.0f} – {most:.0f} GFLOP/s, other processes {others})', '']
    text += [HEAD, '|---|---|--:|--:|--:|--:|--:|---|---|', *map(line, group['rows']), '']
  if 'figure' in data:
    text += [f'![Time and extra memory against length]({data["figure"]})', '']
  return '\n'.join(text)


def page(sections):
  """The whole Markdown page."""
  parts = [section(name, data) for name, data in sections.items()]
  return '\n'.join(['# Performance', '', METHOD, count(sections), '', *parts]).rstrip() + '\n'


def count(sections):
  """How many rows came out how."""
  verdicts = [row['verdict'] for data in sections.values() for group in data['groups'] for row in group['rows']]
  known = ['PASS', 'FAIL', 'INCONCLUSIVE', 'report']
  order = [v for v in known if v in verdicts] + sorted(set(verdicts) - set(known))
  return 'Rows: ' + ', '.join(f'{verdicts.count(v)} {v}' for v in order) + '.'


def write(path, sections):
  """The page, and the data beside it."""
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  text = json.dumps(sections, indent=1, ensure_ascii=False)
  text = re.sub(r'\[[-+\d.eNa,\s]+\]', lambda numbers: ' '.join(numbers[0].split()), text)  # a list of numbers on a line
  path.with_suffix('.json').write_text(text + '\n')
  path.write_text(page(sections))


def read(path):
  """The sections of an earlier run; {} where there are none."""
  path = pathlib.Path(path).with_suffix('.json')
  return json.loads(path.read_text()) if path.exists() else {}
