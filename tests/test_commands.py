"""What a user meets first: the list of commands, help at once, and a lack of memory in words."""

import os
import re
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
import tiny_runs as runs

from pe_jax import __main__ as commands
from pe_jax import boards, memory, metrics, resolve, selfcheck, train
from pe_jax.errors import ConfigError
from pe_jax.sweep import child


def test_every_command_is_listed_with_a_sentence(capsys):
  assert commands.main(['pe_jax']) == 0
  out = capsys.readouterr().out
  for path in (runs.ROOT / 'scripts').glob('*.py'):
    assert f'python scripts/{path.name} ' in out, path
  for path in (runs.ROOT / 'scripts').glob('*.sh'):
    assert f'  scripts/{path.name} ' in out, path
  assert 'python train.py ' in out
  assert 'python eval.py ' in out
  for line in out.splitlines():
    if line.startswith('  '):
      assert len(line.split()) > 5, line


def test_a_word_that_is_none_is_refused_and_one_that_is_gets_what_follows(capsys, monkeypatch):
  assert commands.main(['pe_jax', 'slefcheck']) == 2
  assert "ERROR: 'slefcheck' is no command of python -m pe_jax (did you mean 'selfcheck'?)" in capsys.readouterr().err
  seen = []
  monkeypatch.setattr(selfcheck, 'main', lambda: seen.append(sys.argv[1:]) or 0)
  monkeypatch.setattr(sys, 'argv', ['pe_jax'])
  assert commands.main(['pe_jax', 'selfcheck', '--quick']) == 0
  assert seen == [['--quick']]


def test_help_of_every_command_takes_less_than_a_second_of_computing():
  slow = []
  for command in [*([str(path)] for path in commands.commands()), ['-m', 'pe_jax'], ['-m', 'pe_jax', 'selfcheck']]:
    before = os.times()
    done = subprocess.run([sys.executable, *command, '--help'], cwd=runs.ROOT, capture_output=True, text=True, timeout=60, check=False)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert (done.returncode, done.stderr) == (0, ''), command
    assert len(done.stdout.splitlines()) >= 4, command
    if spent > 1:
      slow.append((command, spent))
  assert not slow


def test_a_run_that_does_not_fit_says_how_large_it_is_and_what_to_lower(tmp_path):
  """A table of 2^31 - 1 rows, which no machine of this kind holds."""
  config = runs.config(encoding='rope', model__vocab_size=2**31 - 1, model__embed_dim=1024)
  with pytest.raises(ConfigError, match=r'^batch_size: not enough memory for 8 rows .*2199.* M parameters.*lower batch_size') as error:
    train.run(config, tmp_path)
  assert (error.value.exit_code, '\n' in str(error.value)) == (2, False)


def test_only_a_lack_of_memory_is_explained():
  with (
    pytest.raises(ConfigError, match='lengths: not enough memory at one of 16, 32 tokens: the host has no more'),
    memory.explained_at([16, 32]),
  ):
    raise MemoryError
  with pytest.raises(ConfigError, match=r'tokens: Out of memory while trying to allocate 9 bytes\. \(leave out'), memory.explained_at([16]):
    raise jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.\n')
  with pytest.raises(jax.errors.JaxRuntimeError, match='INTERNAL'), memory.explained_at([16]):
    raise jax.errors.JaxRuntimeError('INTERNAL: a fault')


def test_the_sizes_in_that_sentence_are_the_runs():
  config = resolve.resolve(runs.config(encoding='learned', train_length=16))
  enc_rows, vocabulary, width = 16, 257, 16
  count = vocabulary * width + enc_rows * width
  said = memory.size(config)
  assert 'batch_size: not enough memory for 8 rows (accumulate=1) of train_length=16' in said
  assert float(said.split(' M parameters')[0].split()[-1]) == pytest.approx(count / 1e6, abs=0.05)


def test_a_process_that_the_system_killed_is_said_to_lack_memory():
  assert re.fullmatch(r'killed by SIGKILL, as the kernel does when memory runs out \(lower batch_size .*\)', child.reason(-9, ''))


def test_weights_and_biases_is_asked_for_by_name_and_refused_without_its_package(tmp_path, monkeypatch):
  monkeypatch.setattr(boards.importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(
    ConfigError, match=r"wandb: 'mine' asks for Weights & Biases, whose package is missing \(pip install -e '\.\[wandb\]'\)"
  ):
    train.run(runs.config(wandb='mine'), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()
  boards.check(runs.config())


@pytest.mark.filterwarnings('ignore')  # of the package
def test_weights_and_biases_offline_keeps_the_rows_on_disk(tmp_path, monkeypatch):
  pytest.importorskip('wandb')
  monkeypatch.setenv('WANDB_MODE', 'offline')
  monkeypatch.setenv('WANDB_SILENT', 'true')
  log = metrics.Log(tmp_path, 0, resolve.resolve(runs.config(wandb='mine')))
  for n in (1, 2):
    log.metrics({'step': n, 'loss': float(np.exp(-n))})
  log.close()
  written = list((tmp_path / 'wandb').glob('offline-run-*/run-*.wandb'))
  assert len(written) == 1
  end = time.monotonic() + 30
  while written[0].stat().st_size <= 500:  # wandb's own process writes it, which may be after the run has ended here
    assert time.monotonic() < end, written[0].stat().st_size
    time.sleep(0.05)
