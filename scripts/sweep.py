"""Trains and evaluates the runs of a sweep, each in a folder of its own below --workdir.

  python scripts/sweep.py --config=configs/sweeps/laptop.py --workdir=sweeps/laptop --list
  python scripts/sweep.py --config=configs/sweeps/laptop.py --workdir=sweeps/laptop
  python scripts/sweep.py --config=configs/sweeps/extrapolation.py:gpu --workdir=sweeps/x --launcher=slurm --slurm=gpus_per_node=1
  python scripts/sweep.py --config=configs/sweeps/extrapolation.py --workdir=sweeps/x --launcher=print
  python scripts/sweep.py --config=… --workdir=gs://my-bucket/x --launcher=print --wrap='scripts/tpu_vm.sh --name={name} run -- {words}'

pe_jax/sweep/plan.py says how such a config is written, docs/sweeps.md the rest. The same command goes on at any moment: what is done is
left alone, what was begun is resumed, what failed is tried again (but not a loss that was not finite). Launchers: `local`, processes on
this machine; `slurm`, through submitit; `print`, one line a run, for any other. `--dry_run` shows what would be started.

Exit codes: 0 all done, 1 a run failed, 7 runs failed only because their loss was not finite, 2 bad settings, 6 runs were begun with other
settings than the file gives now, 75 stopped by a signal.
"""

import fnmatch

from absl import flags

from pe_jax import cli

CONFIG = flags.DEFINE_string('config', None, 'The sweep: a Python file, with an argument after a colon.')
WORKDIR = flags.DEFINE_string('workdir', None, 'Folder of the sweep.')
LAUNCHER = flags.DEFINE_enum('launcher', 'local', ['local', 'slurm', 'print'], 'What starts the runs.')
LIST = flags.DEFINE_boolean('list', False, 'Show every run with its cost, and start none.')
DRY_RUN = flags.DEFINE_boolean('dry_run', False, 'Show what would be started: commands, or the job script of Slurm.')
PUBLISHED = flags.DEFINE_boolean('published', False, "Show the paper's numbers that the file has beside ours, and start none.")
ONLY = flags.DEFINE_list('only', [], "Runs to take, by name or pattern, as 'alibi-*,rope-s0'; default: all.")
PROCESSES = flags.DEFINE_integer('processes', 0, 'local: at a time; 0: one a GPU, else one a core.', lower_bound=0)
STALL = flags.DEFINE_float('stall_minutes', 30.0, 'Without a sign of progress for so long a run is stopped.', lower_bound=0.0)
GRACE = flags.DEFINE_float('grace_seconds', 60.0, 'That a run has to save when it is stopped.', lower_bound=0.0)
AGAIN = flags.DEFINE_integer('again', 20, 'Times that a run which was stopped by a signal (75) is started again.', lower_bound=0)
SLURM = flags.DEFINE_list('slurm', [], "slurm: parameters of submitit or Slurm, as 'partition=gpu,gpus_per_node=1,timeout_min=600'.")
WRAP = flags.DEFINE_string(
  'wrap', '', 'print: another launcher, with {name} for the name of the run, {command} for all of it as one word, or {words} for its words.'
)
EXTRA = flags.DEFINE_string('extra', '', "print: what every command gets too, as '--coordinator=auto' for several hosts.")
MEASURE = flags.DEFINE_boolean('measure', True, '--list: train some steps of the first run if no run has logged its speed.')


def main():
  """Plans, then lists, prints or runs."""
  cli.required('config', 'configs/sweeps/extrapolation.py')
  folder = cli.required('workdir', 'sweeps/x')

  from pe_jax.errors import ConfigError

  if '://' in folder and (LAUNCHER.value != 'print' or LIST.value or PUBLISHED.value):
    raise ConfigError(f"--workdir: '{folder}' is no folder of this machine (--launcher=print writes commands for runs there)")
  if (WRAP.value or EXTRA.value) and LAUNCHER.value != 'print':
    raise ConfigError('--wrap, --extra: these are for the lines of --launcher=print (eval.py and train.py have their own flags)')

  import jax

  jax.config.update('jax_platforms', 'cpu')  # this process only plans, and must not take hold of what its runs need

  from pe_jax.sweep import commands, local, plan

  commands.check_wrap(EXTRA.value, WRAP.value)
  sweep, seen = plan.Sweep(CONFIG.value, folder), can_be_seen(folder)
  runs = sweep.plan(begun(sweep) if seen else {})
  done = local.done(sweep) if seen else {}
  later = sweep.imagined(done)
  sweep.notes(done)  # a mistake in it is told now, and not after hours
  if seen:
    plan.check_begun(runs.values())
  if unknown := [pattern for pattern in ONLY.value if not fnmatch.filter([*runs, *later], pattern)]:
    raise ConfigError(f"--only: no run is named '{unknown[0]}' (there are {', '.join([*runs, *later][:20])})")
  chosen_runs = [run for name, run in runs.items() if chosen(name)]
  if PUBLISHED.value:
    print(published(sweep, required=True))
  elif LIST.value:
    print(listed(sweep, chosen_runs, [run for name, run in later.items() if chosen(name)]))
  elif LAUNCHER.value == 'print' or (DRY_RUN.value and LAUNCHER.value == 'local'):
    print_commands(chosen_runs, later, seen)
  elif DRY_RUN.value:
    dry_run(sweep, chosen_runs)
  else:
    launch(sweep)


def can_be_seen(folder):
  """Whether this machine sees what runs have left in the sweep's folder; of a bucket that it cannot read it says so."""
  from pe_jax import remote
  from pe_jax.errors import UserError

  remote.check_scheme(folder, '--workdir')
  try:
    remote.check(folder, '--workdir')
  except UserError as error:
    print(f'# {error}; so all runs of the first stage are printed, also finished ones, and none of later stages', flush=True)
    return False
  return True


def begun(sweep):
  """{name: validation loss} of the runs that are trained, of all stages."""
  from pe_jax.sweep import local

  done = {}
  while True:
    sweep.plan(done)
    now = local.done(sweep)
    if now.keys() == done.keys():
      return now
    done = now


def chosen(name):
  """Whether --only takes the run."""
  return not ONLY.value or any(fnmatch.fnmatchcase(name, pattern) for pattern in ONLY.value)


def listed(sweep, runs, later):
  """The table of --list."""
  from pe_jax import progress
  from pe_jax.sweep import cost, listing, slots

  places, where = slots.local(PROCESSES.value), 'as runs of this sweep have logged it'
  speed = cost.logged(runs)
  if speed is None and MEASURE.value and runs:
    progress.say(f'measuring the speed: {cost.STEPS} steps of {runs[0].name}')
    speed, where = cost.measured(runs[0], places[0]), f'measured now, {cost.STEPS} steps of {runs[0].name} in one process'
  where = 'not measured (leave out --nomeasure)' if speed is None else f'{listing.si(speed, "FLOP/s")} a process, {where}'
  return listing.text(sweep, runs, later, speed, where, len(places))


def print_commands(runs, later, seen):
  """A line a run that is not done, or cannot be `seen`; what later ones depend on is said."""
  from pe_jax.sweep import commands, tasks

  place = commands.ANYWHERE if LAUNCHER.value == 'print' else commands.HERE
  for run in runs:
    if not seen or tasks.of(run).next(None):
      print(commands.line(run, place, EXTRA.value, WRAP.value))
  if later:
    named = ', '.join(list(later)[:5]) + (', ...' if len(later) > 5 else '')
    print(f'# {len(later)} runs follow from these: {named}; the same command prints them when these are done')


def dry_run(sweep, runs):
  """Slurm's job script."""
  from pe_jax.sweep import local, slurm

  tasks = [task for task in local.together(sweep, runs) if task.next(None)]
  print(slurm.script(sweep, tasks, slurm.parsed(SLURM.value)) if tasks else '# all runs are done')


def launch(sweep):
  """Runs to the end, prints the table, and raises where a run failed."""
  from pe_jax.errors import UserError
  from pe_jax.sweep import local, pool, slurm, view

  limits = pool.Limits(STALL.value * 60, GRACE.value, AGAIN.value)
  if LAUNCHER.value == 'slurm':
    slurm.run(sweep, chosen, settings=slurm.parsed(SLURM.value), limits=limits)
  else:
    local.run(sweep, chosen, view.View(sweep), PROCESSES.value, limits)
  text, failed, left = view.final(sweep, chosen)
  print(text)
  if said := sweep.notes(local.done(sweep)):
    print('\n'.join(['', *said]))
  if beside := published(sweep):
    print(f'\n{beside}')
  if failed or left:
    raise failure(sweep, failed, left)
  if waiting := [name for name in sweep.imagined(local.done(sweep)) if chosen(name)]:
    named = ', '.join(waiting[:10])
    raise UserError(f'{len(waiting)} runs wait for others, which --only leaves out: {named} (take those too, by name or pattern)')


def published(sweep, required=False):
  """The paper's tables beside ours."""
  from pe_jax.errors import ConfigError
  from pe_jax.sweep import published as tables

  found = sweep.published()
  if required and not found:
    raise ConfigError(f'--published: {CONFIG.value} has no published(config) (pe_jax/sweep/published.py says how they are written)')
  return tables.text(sweep, found)


def failure(sweep, failed, left):
  """The error that a sweep ends with: of the exit code 7 where losses that were not finite are all that went wrong."""
  from pe_jax.errors import NotFinite, UserError
  from pe_jax.sweep import state

  named = [f'{name}: {state.failed(sweep.runs[name].folder)["reason"]}' for name in failed]
  named += [f'{name}: not done' for name in left]
  said = f'{len(failed) + len(left)} of {len(sweep.runs)} runs are not done (the same command tries them again):\n  ' + '\n  '.join(named)
  codes = {state.failed(sweep.runs[name].folder)['code'] for name in failed}
  return (NotFinite if codes == {NotFinite.exit_code} and not left else UserError)(said)


if __name__ == '__main__':
  cli.run(main, __doc__)
