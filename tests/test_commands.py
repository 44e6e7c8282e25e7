"""What a user meets first: the list of commands, and help at once."""

import os
import subprocess
import sys

import tiny_runs as runs

from pe_jax import __main__ as commands
from pe_jax import selfcheck


def test_every_command_is_listed_with_a_sentence(capsys):
  assert commands.main(['pe_jax']) == 0
  out = capsys.readouterr().out
  for path in (runs.ROOT / 'scripts').glob('*.py'):
    assert f'python scripts/{path.name} ' in out, path
  assert 'python train.py ' in out
  assert 'python eval.py ' in out
  for line in out.splitlines():
    if line.startswith('  python'):
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
