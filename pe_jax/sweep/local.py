"""A sweep on this machine, to its end: what is done is left alone, what was begun goes on, and later stages follow as they become known."""

import time

from pe_jax.sweep import pool, seeds, slots, state, tasks

LOOK = 0.2  # seconds between looks at the processes


def run(sweep, chosen, view, processes=0, limits=None):
  """Runs what is chosen.

  Args:
    sweep: a plan.Sweep.
    chosen: name -> whether to run it.
    view: a view.View.
    processes: how many at a time; 0: as many as make sense on this machine.
    limits: a pool.Limits.
  """
  with pool.Pool(slots.local(processes), limits) as running, view:
    added = set()
    _add(sweep, chosen, running, added)
    while running.busy:
      if running.step():
        _add(sweep, chosen, running, added)
      view.update(running)
      time.sleep(LOOK)


def _add(sweep, chosen, running, added):
  """Queues the runs that have become known."""
  new = [run for name, run in sweep.plan(done(sweep)).items() if name not in added and chosen(name)]
  added.update(run.name for run in new)
  for task in together(sweep, new):
    running.add(task)


def together(sweep, runs):
  """The tasks of some runs of the sweep."""
  return seeds.grouped(runs) if sweep.vmap_seeds else [tasks.of(run) for run in runs]


def done(sweep):
  """{name: validation loss} of the sweep's runs that are trained; inf where it was not finite."""
  losses = {name: state.loss(run.folder) for name, run in sweep.runs.items()}
  return {name: loss for name, loss in losses.items() if loss is not None}
