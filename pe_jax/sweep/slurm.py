"""A sweep on a Slurm cluster, through submitit: an array of jobs, one for each run, and later stages as arrays of their own.

On its node a job works on its run as `local` would, in a pool of one slot: training, then evaluations, each a process. When Slurm gives
notice (before the time limit, or a preemption) the run saves, and submitit queues the job again. What a job found stands in the run's
folder, so this process may end at any time: the jobs go on, and the same command looks at them again. A run that is still queued then is
queued twice; whichever job comes second finds the run done or in use, and ends.
"""

import contextlib
import dataclasses
import io
import pathlib
import shlex
import signal
import sys
import time

from pe_jax import progress
from pe_jax.errors import ConfigError, Preempted
from pe_jax.sweep import local, pool, slots

LOOK = 1.0  # seconds between looks at the jobs
MINUTES = 24 * 60  # time limit of a job where --slurm names none; a job that runs into it saves and comes again
INSTALL = "pip install submitit, or pip install -e '.[slurm]'"


@dataclasses.dataclass
class Work:
  """What a job does: a task, to its end."""

  task: object
  limits: pool.Limits

  def __call__(self):
    """(how it ended, reason): 'done', 'failed', or 'elsewhere' where another process works on the run."""
    name = self.task.name
    self.pool = pool.Pool([slots.Slot()], self.limits)  # not as a context: signals are submitit's matter
    self.pool.add(self.task)
    try:
      while self.pool.waiting or self.pool.running:
        self.pool.step()
        time.sleep(local.LOOK)
    finally:
      self.pool.stop()
    if name in self.pool.failed:
      return 'failed', self.pool.failed[name].reason
    return ('done', '') if name in self.pool.finished else ('elsewhere', 'another process works on it')

  def checkpoint(self):
    """Called by submitit when Slurm gives notice: saves, and comes again."""
    import submitit

    if hasattr(self, 'pool'):
      self.pool.stop()
    return submitit.helpers.DelayedSubmission(Work(self.task, self.limits))


def run(sweep, chosen, say=progress.say, cluster='slurm', settings=None, limits=None):
  """Submits what is chosen and waits for it, stage after stage.

  Args:
    sweep: a plan.Sweep.
    chosen: name -> whether to run it.
    say: gets a line for every job that is submitted or ends.
    cluster: of submitit: 'slurm', or 'local' for a try on this machine.
    settings: {parameter of submitit: value}.
    limits: a pool.Limits.
  """
  limits = limits or pool.Limits()
  executor = executor_of(sweep, cluster, settings or {}, limits.again)
  added, jobs = set(), {}
  with _stoppable():
    while True:
      new = [run for name, run in sweep.plan(local.done(sweep)).items() if name not in added and chosen(name)]
      added.update(run.name for run in new)
      tasks = [task for task in local.together(sweep, new) if task.next(None) and not task.held() and not task.verdict(time.time())]
      if tasks:
        submitted = _submitted(executor, [Work(task, limits) for task in tasks])
        jobs |= {task.name: (task, job) for task, job in zip(tasks, submitted, strict=True)}
        say(f'{len(tasks)} jobs submitted: {submitted[0].job_id} to {submitted[-1].job_id} (logs in {executor.folder})')
      if not jobs:
        return
      _wait(jobs, say)


def _wait(jobs, say):
  """Until a job has ended; takes it out of `jobs`."""
  while not any(job.done() for _, job in jobs.values()):
    time.sleep(LOOK)
  for name in [name for name, (_, job) in jobs.items() if job.done()]:
    task, job = jobs.pop(name)
    try:
      kind, reason = job.result()  # its state says FINISHED of a job that failed
    except Exception as error:  # submitit raises what the job raised, and its own where Slurm ended it
      kind, reason = 'failed', _last_line(error)
      task.failed(1, f'job {job.job_id}: {reason}')
    say(f'{name}: {kind}{": " + reason if reason else ""} (job {job.job_id}, {len(jobs)} left)')


def _last_line(error):
  lines = [line.strip(' -') for line in str(error).splitlines() if line.strip(' -') and "'job.stderr" not in line and 'paths' not in line]
  return lines[-1] if lines else type(error).__name__


def _submitted(executor, works):
  """The jobs of an array; what Slurm refuses is one sentence."""
  try:
    with contextlib.redirect_stderr(io.StringIO()):  # submitit prints what it raises
      return executor.submit_array(works)
  except (OSError, RuntimeError) as error:  # of submitit: the submission has failed, or its answer is none
    said = ' '.join(str(error).split()) or type(error).__name__
    raise ConfigError(f'--slurm: {len(works)} jobs could not be submitted: {said} (--dry_run shows the job script)') from error


def executor_of(sweep, cluster, settings, again=pool.Limits.again):
  """submitit's executor. `again`: how often a job that ran into its time limit comes again."""
  submitit = _import()
  try:
    folder = pathlib.Path(sweep.folder) / '.slurm' / '%j'
    executor = submitit.AutoExecutor(folder, cluster=cluster, **{f'{cluster}_max_num_timeout': again})
    executor.update_parameters(**{'name': pathlib.Path(sweep.folder).name, 'timeout_min': MINUTES, **_parameters(settings)})
  except (AssertionError, NameError, RuntimeError, ValueError) as error:
    raise ConfigError(f'--slurm: {" ".join(str(error).split())}') from error
  return executor


def _import():
  try:
    import submitit
  except ImportError:
    raise ConfigError(f'--launcher=slurm: submitit is not installed ({INSTALL})') from None
  return submitit


def _parameters(settings):
  """submitit's own names stand as they are; others are Slurm's."""
  shared = {'name', 'timeout_min', 'mem_gb', 'nodes', 'cpus_per_task', 'gpus_per_node', 'tasks_per_node', 'stderr_to_stdout'}
  return {name if name in shared else f'slurm_{name}': value for name, value in settings.items()}


def parsed(texts):
  """{parameter: value} of texts 'partition=gpu', 'timeout_min=600'; whole numbers are numbers."""
  found = {}
  for text in texts:
    name, equals, value = (part.strip() for part in text.partition('='))
    if not equals or not name or not value:
      raise ConfigError(f"--slurm: '{text}' is not name=value (for instance --slurm=partition=gpu,gpus_per_node=1,timeout_min=600)")
    found[name] = int(value) if value.lstrip('-').isdigit() else value
  return found


def script(sweep, tasks, settings):
  """The text of the array's job script, as submitit would hand it to sbatch, and what each of its jobs runs."""
  _import()
  from submitit.slurm import slurm

  names = slurm.SlurmExecutor._equivalence_dict()
  parameters = {names.get(name, name): value for name, value in {'timeout_min': MINUTES, **settings}.items()}
  if 'mem' in parameters:
    parameters['mem'] = f'{parameters["mem"]}GB'
  folder = pathlib.Path(sweep.folder) / '.slurm' / '%j'
  command = shlex.join([sys.executable, '-u', '-m', 'submitit.core._submit', str(folder)])
  try:
    text = slurm._make_sbatch_string(
      command, folder, **{'job_name': pathlib.Path(sweep.folder).name, **parameters}, map_count=len(tasks) if len(tasks) > 1 else None
    )
  except TypeError as error:
    raise ConfigError(f'--slurm: {error}') from error
  lines = [text.rstrip(), '', f'# {len(tasks)} jobs; what each runs:']
  for number, task in enumerate(tasks):
    lines.append(f'# {number}: {task.name}')
    lines += [f'#   {shlex.join(command)}' for part in task.parts for command in [part.train, *(c for _, c in part.evaluations)]]
  return '\n'.join(lines)


@contextlib.contextmanager
def _stoppable():
  """SIGINT and SIGTERM raise Preempted: the jobs go on without us."""

  def stop(number, frame):
    del frame
    raise Preempted(f'stopped by {signal.Signals(number).name}; the jobs go on (the same command looks at them again)')

  before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
  try:
    yield
  finally:
    for number, handler in before.items():
      signal.signal(number, handler)
