"""One self-contained HTML page of a sweep: ranking, curves, pictures, tables, and a card for every run.

It opens from disk and loads nothing: scripts, styles, numbers and pictures are in it, and its Content-Security-Policy forbids everything
else, scripts by the hash of their text. Whatever came from a run is escaped. Without JavaScript it is the same tables and pictures; with
it tables sort and filter and the curves are drawn by uPlot (MIT licence), taken from an installed package that carries its release.
"""

import base64
import collections
import hashlib
import importlib.metadata
import io
import json
import pathlib
import string

from pe_jax import workdir
from pe_jax.errors import ConfigError
from pe_jax.report import commands, page_tables, results_figures, six_lengths
from pe_jax.report.markup import attribute, esc, folded, pre
from pe_jax.statistics.lengths import MARGIN

HERE = pathlib.Path(__file__).parent
PACKAGE = 'youplot'
# Of uPlot 1.6.31 as its author released it; a package that brings another file under these names is refused.
UPLOT = {
  'uplot.iife.min.js': '2d27e8ad3d228164525ce213f9dc716f39b4e3aee0cc773fb3491c96cf4921a2',
  'uplot.min.css': 'df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04',
}
WAY_OUT = '(the page draws with it: pip install -c constraints.txt -e .)'
PALETTE = 128  # colours of a picture in the page
DIGITS = 5  # of the numbers behind the curves


def write(path, title, runs, readings, entries, charts, figures, made, refresh=0, margin=MARGIN):
  """Writes the page; its size in bytes.

  Args:
    path: the .html.
    title: of the page.
    runs: as from `results.scan`.
    readings: as from `readings.of_runs`.
    entries: as from `ranking.of_readings`.
    charts: as from `charts.of_readings`.
    figures: as from `results_figures.draw`.
    made: the time in seconds since 1970.
    refresh: seconds after which the page loads itself again; 0: never.
    margin: nats within which two losses are called equal.
  """
  colour, place = results_figures.colours(readings), results_figures.places(entries, readings)
  cards = {run.name: f'run-{n}' for n, run in enumerate(runs)}
  script, style = library()
  own = (HERE / 'page.js').read_text(encoding='utf-8')
  counts = collections.Counter(run.state for run in runs)
  warnings = page_tables.warnings(entries, runs)
  parts = {
    'title': esc(title),
    'policy': esc(policy([script, own])),
    'refresh': f'<noscript><meta http-equiv="refresh" content="{refresh}"></noscript>' if refresh else '',
    'library_style': style,
    'style': (HERE / 'page.css').read_text(encoding='utf-8'),
    'states': ''.join(f'<span class="state {state}">{count} {state}</span> ' for state, count in sorted(counts.items())),
    'summary': esc(f'{len(runs)} runs in {len(readings)} lines (a configuration over its seeds, read under one encoding)'),
    'made': esc(_time(made)),
    'warnings': warnings or '<p>None.</p>',
    'lengths_filter': _options({str(reading.train_length): None for reading in readings}),
    'protocols_filter': _options({entry.protocol: None for entry in entries}),
    'ranking': page_tables.ranking(entries, colour, cards),
    'across_seeds': page_tables.across_seeds(entries, margin),
    'charts': _options({chart.name: chart.title for chart in charts}),
    'figures': ''.join(_picture(f) for f in figures) or '<p>Nothing was measured yet.</p>',
    'tables': page_tables.by_length(charts, colour, place) or '<p>Nothing was measured yet.</p>',
    'three_lengths': page_tables.three_lengths(entries),
    'probes': page_tables.probes(runs) or '<p>None was made.</p>',
    'runs': page_tables.runs_table(runs, cards),
    'cards': _cards(runs, entries, cards),
    'data': _json(numbers(charts, readings, colour, place) | {'made': made, 'refresh': refresh}),
    'library': script,
    'script': own,
  }
  text = string.Template((HERE / 'page.html').read_text(encoding='utf-8')).substitute(parts)
  workdir.write(path, text)
  return len(text.encode())


def library():
  """(script, style sheet) of uPlot, from the package that brings it. Nothing of that package is run.

  Errors: ConfigError where it is not installed, or its files are not the ones that uPlot's author released.
  """
  try:
    files = {file.name: file.locate() for file in importlib.metadata.files(PACKAGE) or []}
  except importlib.metadata.PackageNotFoundError:
    files = {}
  out = []
  for name, sha256 in UPLOT.items():
    data = pathlib.Path(files[name]).read_bytes() if name in files else b''
    if hashlib.sha256(data).hexdigest() != sha256:
      raise ConfigError(f'{PACKAGE}: {"not installed" if not data else f"its {name} is not that of uPlot 1.6.31"} {WAY_OUT}')
    out.append(data.decode())
  return out


def policy(scripts):
  """The Content-Security-Policy: these scripts by their hashes, styles, pictures that are in the page, and nothing else."""
  hashes = ' '.join(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts)
  return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def numbers(charts, readings, colour, place):
  """What the curves are drawn from, as JSON can hold it; lines in the order in which they are shown."""
  lines = sorted(readings, key=lambda r: place[r.label])
  index = {reading.label: n for n, reading in enumerate(lines)}
  return {
    'lines': [{'label': r.label, 'colour': colour[r.label], 'train': r.train_length} for r in lines],
    'charts': [
      {
        'name': chart.name,
        'title': chart.title,
        'x': chart.x,
        'y': chart.y,
        'band': chart.band,
        'log': chart.log_x,
        'marks': chart.marks,
        'curves': [
          {'line': index[c.reading.label], 'x': _rounded(c.x), 'y': _rounded(c.y), 'low': _rounded(c.low), 'high': _rounded(c.high)}
          for c in chart.curves
        ],
      }
      for chart in charts
    ],
  }


def _rounded(values):
  """To DIGITS significant digits: the tables have the rest."""
  return None if values is None else [float(f'{x:.{DIGITS}g}') if isinstance(x, float) else x for x in values]


def _json(tree):
  """JSON that cannot end the element it stands in, whatever the names in it."""
  text = json.dumps(tree, allow_nan=False, separators=(',', ':'))
  return text.replace('<', '\\u003c').replace('>', '\\u003e').replace('&', '\\u0026')


def _options(named):
  """<option>s of {value: shown text, or None for the value itself}."""
  return ''.join(f'<option{attribute("value", value)}>{esc(shown or value)}</option>' for value, shown in named.items())


def _time(seconds):
  import datetime

  return datetime.datetime.fromtimestamp(seconds).astimezone().strftime('%Y-%m-%d %H:%M:%S %Z')


def _picture(figure):
  """A figure with its picture in it."""
  from PIL import Image

  # Lines and flat areas: a palette keeps them and takes half of the bytes.
  packed = io.BytesIO()
  with Image.open(figure.path) as image:
    image.convert('RGB').quantize(PALETTE).save(packed, 'PNG', optimize=True)
  data = base64.b64encode(packed.getvalue()).decode()
  image = f'<img loading="lazy" src="data:image/png;base64,{data}"{attribute("alt", f"{figure.title}; {figure.caption}")}>'
  return f'<figure>{image}<figcaption><b>{esc(figure.title)}</b> {esc(figure.caption)}</figcaption></figure>'


def _cards(runs, entries, cards):
  """What all runs share, the environments, and a card for every run."""
  fields = [run.flat for run in runs if run.config]
  shared = {name: value for name, value in (fields[0] if fields else {}).items() if all(_same(of.get(name, _same), value) for of in fields)}
  environments = list(dict.fromkeys(_text(run.env) for run in runs if run.env))
  out = [folded(f'configuration that all runs share: {len(shared)} fields', page_tables.fields(shared))] if len(fields) > 1 else []
  out += [folded(f'environment {n + 1}', pre(text), name=f'environment-{n + 1}') for n, text in enumerate(environments)]
  lengths = collections.defaultdict(list)
  for entry in entries:
    for run in entry.reading.runs if entry.lengths else ():
      lengths[run.name].append((entry.reading.own, entry.lengths))
  for run in runs:
    own = {name: value for name, value in run.flat.items() if len(fields) < 2 or name not in shared}
    config = run.config.get('encoding', 'no configuration')
    parts = [f'<p class="badge">{esc(run.error)}</p>' if run.error else '']
    parts += ['<ul>' + ''.join(f'<li>{esc(w)}</li>' for w in run.warnings) + '</ul>'] if run.warnings else []
    if run.config:
      parts += ['<h4>Again</h4>', pre('\n'.join([commands.train(run), *commands.evaluate(run)]))]
      parts += ['<h4>Six lengths</h4>', pre('\n'.join(six_lengths.lines(run, lengths[run.name])))]
      title = 'Fields of its own' if len(fields) > 1 else 'Configuration'
      parts += [f'<h4>{title}</h4>', page_tables.fields(own)]
    if run.env:
      n = environments.index(_text(run.env)) + 1
      parts.append(f'<p>Ran in <a href="#environment-{n}">environment {n}</a>.</p>')
    summary = f'{run.name}: {config}, {run.state} at step {run.step}'
    out.append(folded(summary, ''.join(parts), name=cards[run.name], kind='card'))
  return '\n'.join(out)


def _same(a, b):
  return type(a) is type(b) and a == b


def _text(tree):
  return json.dumps(tree, indent=2, sort_keys=True, ensure_ascii=False)
