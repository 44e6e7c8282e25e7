"""A sweep's runs with what they cost, before any is started."""

from pe_jax.report import table
from pe_jax.sweep import cost, tasks

PREFIX = ((1e18, 'E'), (1e15, 'P'), (1e12, 'T'), (1e9, 'G'), (1e6, 'M'), (1e3, 'k'))


def text(sweep, runs, later, speed, where, processes):
  """The table and its last lines.

  Args:
    sweep: a plan.Sweep.
    runs: those that are known, plan.Runs; later: those that follow from others, with what they would be.
    speed: FLOP/s of a process, None: not known.
    where: how that is known.
    processes: how many at a time.
  """
  rows, costs, left = [['run', 'state', 'settings', 'tokens', 'read', 'FLOP', 'hours']], {}, []
  for run in [*runs, *later]:
    costs[run.name] = cost.of(run)
    kind = 'later' if run in later else tasks.of(run).state().kind
    left += [] if kind == 'done' else [run.name]
    rows.append([run.name, kind, settings(run.changes), *_cells(costs[run.name], speed)])
  total = sum(costs.values(), cost.Cost(0, 0, 0.0))
  said = [table.aligned(rows, left=3), '', f'{len(rows) - 1} runs: {_sentence(total, speed, processes)}']
  if 0 < len(left) < len(costs):
    rest = sum((costs[name] for name in left), cost.Cost(0, 0, 0.0))
    said.append(f'{len(left)} of them are not done: {_sentence(rest, speed, processes)}')
  said.append(f'speed: {where}')
  if later:
    said.append('later: settings follow from runs before them, and are shown as if all of those ended with the same loss')
  if sweep.vmap_seeds:
    said.append('vmap_seeds: runs that differ in their seed alone are trained in one process')
  return '\n'.join(said)


def settings(changes):
  """'encoding=alibi seed=0'"""
  return ' '.join(f'{field}={value}' for field, value in changes.items())


def _cells(one, speed):
  hours = f'{one.flops / speed / 3600:.2f}' if speed else '-'
  return [si(one.tokens), si(one.read), si(one.flops), hours]


def _sentence(total, speed, processes):
  said = f'{si(total.tokens)} tokens trained, about {si(total.read)} read in evaluation, {si(total.flops, "FLOP")}'
  if not speed:
    return said
  hours = total.flops / speed / 3600
  return f'{said}; {hours:.2f} hours of one process, {hours / processes:.2f} with {processes} at a time'


def si(value, unit=''):
  """'4.1 M', '4.1 TFLOP'"""
  for size, prefix in PREFIX:
    if value >= size:
      return f'{value / size:.3g} {prefix}{unit}'
  return f'{value:.3g} {unit}'.strip()
