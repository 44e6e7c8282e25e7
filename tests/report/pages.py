"""A page from a folder of runs, as scripts/report.py makes it, in this process; and Chromium, if there is one."""

import os
import shutil

from pe_jax.report import charts, page, ranking, readings, results, results_figures

NAMES = ('chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable', 'chrome')
ABSENT = 'no Chromium here, so the page was not tried in a browser (apt-get install chromium, or CHROMIUM=its path)'


def chromium():
  """The path of a Chromium, or None."""
  return os.environ.get('CHROMIUM') or next(filter(None, map(shutil.which, NAMES)), None)


def make(folder, out, title='a sweep', refresh=0, made=1_800_000_000.0, **how):
  """Writes OUT/index.html and its figures; the path."""
  runs = results.scan(folder)
  lines = readings.of_runs(runs)
  entries = ranking.of_readings(lines, **how)
  drawn = charts.of_readings(lines)
  figures = list(results_figures.draw(drawn, entries, lines, out / 'figures'))
  assert len(figures) == results_figures.count(drawn, entries, lines)
  page.write(out / 'index.html', title, runs, lines, entries, drawn, figures, made, refresh)
  return out / 'index.html'
