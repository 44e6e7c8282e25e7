"""140 cases of bad input: each exits with 2 or 3 and one sentence that names the field or the file, before there is a workdir."""

import json
import os
import subprocess
import sys

import bad_paths
import case as one
import pytest
import table
import tiny_runs as runs

ALONE = [(group, c) for group, cases in table.GROUPS.items() for c in cases if not c.command]


def test_there_are_140():
  assert {group: len(cases) for group, cases in table.GROUPS.items()} == {
    'numbers': 72,
    'across fields': 24,
    'names': 10,
    'data': 22,
    'paths and formats': 12,
  }
  assert {c.code for cases in table.GROUPS.values() for c in cases} == {2, 3}


@pytest.mark.parametrize('case', [c for _, c in ALONE], ids=[f'{group}: {c.what}' for group, c in ALONE])
def test_bad_input_is_answered_in_one_sentence_with_its_code(case, tmp_path):
  assert one.fault(case, one.outcome(case, tmp_path), tmp_path) == ''


def test_bad_input_on_the_command_line(tmp_path):
  bad_paths.write(runs.home())
  commands = [c for cases in table.GROUPS.values() for c in cases if c.command]
  answers = one.commands(commands, tmp_path, runs.home())
  assert [said for c, answer in zip(commands, answers) if (said := one.fault(c, answer, tmp_path))] == []
  assert len(commands) == 8


def test_what_needs_no_jax_is_answered_without_it():
  """All numbers, most names and what can be counted: 86 cases in one process, in which jax is never imported."""
  early = [c for cases in table.GROUPS.values() for c in cases if c.early]
  command = [sys.executable, str(table.HERE / 'table.py'), '--early']
  done = subprocess.run(command, capture_output=True, text=True, cwd=runs.ROOT, env=os.environ, timeout=60, check=True)
  found = json.loads(done.stdout)
  assert found['jax'] is False
  assert len(early) == 86
  for c, (code, sentence) in zip(early, found['answers'], strict=True):
    assert code == c.code
    assert sentence
