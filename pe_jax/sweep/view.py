"""A sweep while it runs: a table that renews itself on a terminal, a line for every change elsewhere; and the table at its end."""

import sys
import time

from pe_jax import progress, workdir
from pe_jax.report import table
from pe_jax.sweep import local, tasks

EVERY = 1.0  # seconds between renewals of the table
SIGN = 60.0  # seconds between lines where nothing changes
SHOWN = 12  # waiting runs in the table


class View:
  """Shows a pool of RunTasks on stderr. Use it as a context."""

  def __init__(self, sweep):
    self._sweep, self._live, self._next, self._sign = sweep, None, 0.0, time.monotonic()
    self._known, self._start = {}, time.monotonic()

  def __enter__(self):
    if sys.stderr.isatty():
      from rich.console import Console
      from rich.live import Live

      self._live = Live(console=Console(stderr=True), auto_refresh=False)
      self._live.start()
    return self

  def __exit__(self, *error):
    if self._live:
      self._live.stop()

  def update(self, pool):
    """Shows what has changed."""
    if time.monotonic() < self._next:
      return
    self._next = time.monotonic() + EVERY
    if self._live:
      self._live.update(self._table(pool), refresh=True)
    else:
      self._lines(pool)

  def _table(self, pool):
    from rich.markup import escape
    from rich.table import Table

    title = escape(f'{self._sweep.folder}: {counts(pool)}, {_minutes(time.monotonic() - self._start)}')
    shown = Table(title=title, title_justify='left', box=None)
    for name in ('run', 'state', 'step', 'loss', 'tokens/s', ''):
      shown.add_column(name, justify='right' if name in ('step', 'loss', 'tokens/s') else 'left', no_wrap=name != '')
    for work in pool.running.values():
      for part in work.task.parts:
        shown.add_row(*self._running(part, work))
    for name, failure in pool.failed.items():
      shown.add_row(name, '[red]failed', '', '', '', escape(failure.reason), style='')
    for name in [*pool.held, *pool.left]:
      shown.add_row(name, 'elsewhere', '', '', '', 'another process works on it')
    for name in [*pool.waiting][:SHOWN]:
      shown.add_row(name, '[dim]waiting')
    if len(pool.waiting) > SHOWN:
      shown.add_row(f'[dim]and {len(pool.waiting) - SHOWN} more')
    return shown

  def _running(self, part, work):
    found, total = part.state(), self._sweep.runs[part.name].resolved.num_train_steps
    phase = 'evaluating' if workdir.finished(part.folder) else 'training'
    note = work.reason or _minutes(time.time() - work.child.started)
    return part.name, phase, f'{found.step}/{total}', _number(found.loss, '.3f'), _number(found.speed, '.0f'), note

  def _lines(self, pool):
    now = {name: 'running' for name in pool.running} | {name: 'elsewhere: another process works on it' for name in [*pool.held, *pool.left]}
    now |= {name: f'FAILED: {failure.reason}' for name, failure in pool.failed.items()} | {name: 'done' for name in pool.finished}
    for name, said in now.items():
      if self._known.get(name) != said:
        progress.say(f'{name}: {said} ({counts(pool)})')
        self._sign = time.monotonic()
    self._known = now
    if time.monotonic() - self._sign > SIGN:
      self._sign = time.monotonic()
      parts = [self._running(part, work) for work in pool.running.values() for part in work.task.parts]
      progress.say('; '.join(f'{name} {phase} {steps}' for name, phase, steps, *_ in parts) + f' ({counts(pool)})')


def counts(pool):
  """'3 done, 2 running, …' without what there is none of."""
  elsewhere = pool.held | pool.left
  named = {'done': pool.finished, 'running': pool.running, 'waiting': pool.waiting, 'held elsewhere': elsewhere, 'failed': pool.failed}
  return ', '.join(f'{len(group)} {name}' for name, group in named.items() if group) or 'nothing to do'


def final(sweep, chosen):
  """(text of the table of all runs, names of those that failed, names of those that are not done), from their folders."""
  rows, failed, open_ = [['run', 'state', 'steps', 'loss', 'reason']], [], []
  for name, run in sweep.plan(local.done(sweep)).items():
    found = tasks.of(run).state()
    if chosen(name):
      failed += [name] if found.kind == 'failed' else []
      open_ += [name] if found.kind not in ('failed', 'done') else []
    rows.append([name, found.kind, str(found.step), _number(found.loss, '.4f'), found.reason])
  reasons = [row.pop() for row in rows]
  lines = table.aligned(rows, left=2).splitlines()
  width = max(map(len, lines))
  return '\n'.join(f'{line.ljust(width)}  {reason}'.rstrip() for line, reason in zip(lines, reasons, strict=True)), failed, open_


def _number(value, form):
  return '' if value is None else format(value, form)


def _minutes(seconds):
  return f'{seconds:.0f} s' if seconds < 120 else f'{seconds / 60:.0f} min' if seconds < 7200 else f'{seconds / 3600:.1f} h'
