"""Runs as jobs of submitit, whose local executor does on this machine what a cluster would."""

import os
import pathlib
import re
import signal
import sys
import time
import types

import pytest
import tiny_runs as runs
from sweeps import REAL, TWO, finish, sweep_of

from pe_jax import workdir
from pe_jax.errors import ConfigError
from pe_jax.sweep import local, plan, pool, slurm, state

submitit = pytest.importorskip('submitit', reason=f'submitit is not installed ({slurm.INSTALL})')


@pytest.fixture(autouse=True)
def environment(monkeypatch):
  for name, value in runs.environment(PYTHONPATH=os.pathsep.join(sys.path)).items():
    monkeypatch.setenv(name, value)


def test_jobs_train_and_evaluate_and_later_stages_follow(tmp_path):
  (tmp_path / 'sweep.py').write_text(REAL.replace('CORPUS', repr(str(runs.home() / 'corpus'))))
  sweep, said = plan.Sweep(f'{tmp_path}/sweep.py', tmp_path / 'runs'), []
  slurm.run(sweep, {'good', 'no-text', 'after'}.__contains__, said.append, 'local', {'timeout_min': 5})
  kinds = {name: state.of(run.folder).kind for name, run in sweep.runs.items()}
  assert {name: kinds[name] for name in ('good', 'no-text', 'after', 'long')} == {
    'good': 'done', 'no-text': 'failed', 'after': 'done', 'long': 'waiting',
  }  # fmt: skip
  assert 'no such file or folder' in state.of(sweep.runs['no-text'].folder).reason
  assert [re.sub(r'\d+', '0', line).partition(' (')[0] for line in said if 'submitted' in line] == ['0 jobs submitted: 0 to 0'] * 2
  assert sum(': done' in line for line in said) == 2
  assert (tmp_path / 'runs' / 'good' / 'eval' / 'sweep-0.done').exists()
  before = len(said)
  slurm.run(sweep, {'good', 'after'}.__contains__, said.append, 'local')
  assert len(said) == before  # nothing is submitted for what is done


@pytest.mark.skipif(sys.platform != 'linux', reason='looks at processes through /proc')
def test_a_job_that_is_told_to_leave_saves_and_comes_again(tmp_path):
  (tmp_path / 'sweep.py').write_text(REAL.replace('CORPUS', repr(str(runs.home() / 'corpus'))))
  sweep = plan.Sweep(f'{tmp_path}/sweep.py', tmp_path / 'runs')
  (task,) = local.together(sweep, [sweep.plan({})['good']])
  executor = slurm.executor_of(sweep, 'local', {'timeout_min': 5})
  (job,) = executor.submit_array([slurm.Work(task, pool.Limits())])
  log = tmp_path / 'runs' / 'good' / 'metrics.jsonl'
  while not log.exists() or log.stat().st_size < 1000:
    assert not job.done(), job.stderr()
    time.sleep(0.05)
  controller = int(job.job_id)
  (worker,) = pathlib.Path(f'/proc/{controller}/task/{controller}/children').read_text().split()
  os.kill(int(worker), signal.SIGUSR2)  # as Slurm does before a time limit
  assert job.result() == ('done', '')
  text = task.log.read_text()
  assert 'stopped by SIGTERM and saved at step' in text
  assert 'going on from step' in text


def test_the_job_script_is_an_array_and_says_what_its_jobs_run(tmp_path):
  sweep = sweep_of(tmp_path, TWO + "def evaluation():\n  return {'lengths': [16]}\n")
  tasks = local.together(sweep, sweep.plan({}).values())
  text = slurm.script(sweep, tasks, {'partition': 'gpu', 'gpus_per_node': 1, 'mem_gb': 32})
  assert text.startswith('#!/bin/bash')
  for line in ('--array=0-1%2', '--partition=gpu', '--gpus-per-node=1', '--mem=32GB', '--time=1440', '--job-name=runs'):
    assert f'#SBATCH {line}\n' in text
  assert 'submitit.core._submit' in text
  assert re.search(r'^# 1: b\n#   \S+ \S+train.py .*--config.encoding=alibi.*\n#   \S+ \S+eval.py ', text, re.MULTILINE)
  with pytest.raises(ConfigError, match=r'--slurm: .*nosuch'):
    slurm.script(sweep, tasks, {'nosuch': 1})
  with pytest.raises(ConfigError, match='--slurm: '):
    slurm.executor_of(sweep, 'local', {'gpus_per_node': 'many'})


def test_a_run_that_another_process_holds_is_not_waited_for(tmp_path):
  sweep = sweep_of(tmp_path, TWO)
  (task, _) = local.together(sweep, sweep.plan({}).values())
  finish(task.folder, 1.0)
  assert slurm.Work(task, pool.Limits())() == ('done', '')
  (task.folder / 'DONE').unlink()
  with workdir.locked(task.folder):
    assert slurm.Work(task, pool.Limits())() == ('elsewhere', 'another process works on it')


def cluster(folder, monkeypatch, sbatch):
  """A cluster of two commands, of which sbatch does what is given."""
  for name, text in (('sbatch', sbatch), ('srun', 'exit 1')):
    (folder / name).write_text(f'#!/bin/sh\n{text}\n')
    (folder / name).chmod(0o755)
  monkeypatch.setenv('PATH', str(folder), prepend=os.pathsep)


def test_what_slurm_refuses_is_one_sentence(tmp_path, monkeypatch, capsys):
  refusal = (
    'sbatch: error: invalid partition specified: nosuch\nsbatch: error: Batch job submission failed: Invalid partition name specified'
  )
  cluster(tmp_path, monkeypatch, f"echo '{refusal}' >&2; exit 1")
  says = (
    r'^--slurm: 2 jobs could not be submitted: sbatch: error: invalid partition specified: nosuch .*\(--dry_run shows the job script\)$'
  )
  with pytest.raises(ConfigError, match=says) as error:
    slurm.run(sweep_of(tmp_path, TWO), lambda name: True, settings={'partition': 'nosuch'})
  assert (error.value.exit_code, '\n' in str(error.value), capsys.readouterr().err) == (2, False, '')
  cluster(tmp_path, monkeypatch, 'echo what')
  with pytest.raises(ConfigError, match=r'could not be submitted: Could not make sense of sbatch output "what"'):
    slurm.run(sweep_of(tmp_path, TWO), lambda name: True)


def test_a_job_that_runs_into_its_time_limit_comes_again_as_often_as_a_run_may(tmp_path, monkeypatch):
  """As often as --again says, and not three times, which is what submitit takes by itself."""
  cluster(tmp_path, monkeypatch, 'echo Submitted batch job 1')
  sweep = sweep_of(tmp_path, TWO)
  for kind in ('slurm', 'local'):
    executor = slurm.executor_of(sweep, kind, {}, 7)
    assert executor._executor.max_num_timeout == 7
  assert pool.Limits().again == 20
  asked = []
  monkeypatch.setattr(slurm, '_wait', lambda jobs, say: jobs.clear())
  jobs = [types.SimpleNamespace(job_id=name) for name in ('1_0', '1_1')]
  monkeypatch.setattr(slurm, '_submitted', lambda executor, works: asked.append(executor) or jobs)
  slurm.run(sweep, lambda name: True, lambda text: None, limits=pool.Limits(again=5))
  assert asked[0]._executor.max_num_timeout == 5
