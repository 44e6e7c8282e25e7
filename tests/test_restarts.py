"""What a run may be interrupted by without its numbers changing: other numbers of devices, and evaluation."""

import json
import os
import signal

import jax
import numpy as np
import pytest
import tiny_runs as runs

from pe_jax import metrics, train
from pe_jax.errors import Preempted


@pytest.fixture(autouse=True, scope='module')
def quick():
  with runs.quick_compiles():
    yield


def test_a_run_goes_on_with_eight_then_one_then_four_then_eight_devices(tmp_path, monkeypatch):
  config = runs.config(encoding='learned', num_train_steps=24, model__dropout=0.1, accumulate=1, eval_every_steps=6)
  train.run(config, tmp_path / 'whole')
  devices, write = jax.devices(), metrics.Log.metrics
  assert len(devices) == 8
  for count, until in ((8, 6), (1, 11), (4, 17), (8, None)):

    def and_stop(log, row, until=until):
      write(log, row)
      if row['step'] == until and 'loss' in row:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(jax, 'devices', lambda count=count: devices[:count])
    monkeypatch.setattr(metrics.Log, 'metrics', and_stop)
    if until:
      with pytest.raises(Preempted, match='stopped by SIGTERM and saved'):
        train.run(config, tmp_path / 'chain')
    else:
      train.run(config, tmp_path / 'chain')
  chain, whole = (metrics.read(tmp_path / name / 'metrics.jsonl') for name in ('chain', 'whole'))
  assert [(r['step'], sorted(r)) for r in chain] == [(r['step'], sorted(r)) for r in whole]
  for a, b in zip(chain, whole):
    for name in ('loss', 'validation_loss', 'gradient_norm'):
      if name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-5, atol=1e-5, err_msg=f'{name} of step {a["step"]}')
    assert a.get('targets') == b.get('targets')


def test_evaluation_never_changes_training(tmp_path):
  """Whatever the interval, the targets and the logs: the same losses and parameters to the last bit."""
  ends = {}
  for every, targets, log in ((0, 300, 1), (1, 300, 1), (3, 1, 2), (5, 1000, 4)):
    changes = {'eval_every_steps': every, 'eval_targets': targets, 'log_every_steps': log}
    folder = tmp_path / str(every)
    train.run(runs.config(encoding='t5', num_train_steps=12, model__dropout=0.1, **changes), folder)
    rows = {r['step']: (r['loss'], r['gradient_norm'], r['targets']) for r in metrics.read(folder / 'metrics.jsonl') if 'loss' in r}
    ends[every] = json.loads((folder / 'DONE').read_text())['params_sha256'], rows
  digest, rows = ends[0]
  assert len(rows) == 12
  for every, (other_digest, others) in ends.items():
    assert other_digest == digest, every
    assert others == {n: rows[n] for n in others}, every


def test_who_starts_a_run_again_is_told_of_each_checkpoint(tmp_path, monkeypatch):
  """And the run goes on where that cannot be written."""
  config = runs.config(encoding='rope', num_train_steps=5, checkpoint_every_steps=2)
  monkeypatch.setenv('PE_JAX_SAVED', str(tmp_path / 'saved'))
  train.run(config, tmp_path / 'run')
  assert (tmp_path / 'saved').read_text().splitlines() == [f'{tmp_path}/run/checkpoints {n}' for n in (2, 4, 5)]
  monkeypatch.setenv('PE_JAX_SAVED', str(tmp_path / 'nosuch' / 'saved'))
  train.run(config, tmp_path / 'other')
