"""A sweep with `vmap_seeds`: really trained, in one process, and what it leaves is what separate runs leave."""

import os
import sys

import jax
import numpy as np
import pytest
import tiny_runs as runs
from sweeps import REAL

import pe_jax
from pe_jax import metrics, train
from pe_jax.sweep import local, plan, view

SEEDS = """
vmap_seeds = True

def sweep():
  for seed in (1, 2):
    yield f'rope-s{seed}', {'seed': seed, 'num_train_steps': 12, 'model.dropout': 0.1, 'mesh.data': 1}
"""


def test_seeds_that_a_sweep_trains_together_are_separate_runs_to_rounding(tmp_path, monkeypatch):
  for name, value in runs.environment(PYTHONPATH=os.pathsep.join(sys.path)).items():
    monkeypatch.setenv(name, value)
  base = REAL.partition('def sweep')[0].replace('CORPUS', repr(str(runs.home() / 'corpus')))
  (tmp_path / 'sweep.py').write_text(base + SEEDS)
  sweep = plan.Sweep(str(tmp_path / 'sweep.py'), tmp_path / 'runs')
  local.run(sweep, lambda name: True, view.View(sweep), processes=1)
  assert view.final(sweep, lambda name: True)[1:] == ([], [])
  said = (tmp_path / 'runs' / 'rope-s1' / 'log.txt').read_text()
  assert [line.count('--seeds=1,2') for line in said.splitlines() if line.startswith('$ ') and 'train.py' in line] == [1]
  assert sorted(sweep.runs) == ['rope-s1', 'rope-s2']
  with runs.quick_compiles():
    for name, run in sweep.runs.items():
      train.run(run.config, tmp_path / 'alone' / name)
      ours, theirs = (metrics.read(tmp_path / kind / name / 'metrics.jsonl') for kind in ('runs', 'alone'))
      assert len(ours) == 13
      for row, want in zip(ours, theirs, strict=True):
        assert row == pytest.approx(want, rel=1e-5, abs=1e-5)
      together, alone = (pe_jax.load(tmp_path / kind / name) for kind in ('runs', 'alone'))
      assert together.config == alone.config
      jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=0), together.params, alone.params)
