"""docs/guarantees.md keeps in step: its tests and faults exist, its quotations stand where it says, and every promise has both."""

import pathlib
import re

import hosts_faults
import mutants
import pytest
import run_faults
import user_faults

from pe_jax.report import pointers

ROOT = pathlib.Path(__file__).parent.parent
PAGE = ROOT / 'docs' / 'guarantees.md'


def promises():
  """(promise, said in, test, [faults]) of every row of the page's tables."""
  rows = [
    re.split(r' \| ', line.strip().strip('|').strip()) for line in PAGE.read_text(encoding='utf-8').splitlines() if line.startswith('| ')
  ]
  assert {len(row) for row in rows} == {4}
  return [(promise, said, test.strip('`'), faults.split(' · ')) for promise, said, test, faults in rows if promise != 'promise']


FAULTS = {fault.name: fault for fault in mutants.FAULTS}


@pytest.mark.parametrize(('promise', 'said', 'test', 'faults'), promises(), ids=[row[2].partition('::')[2] for row in promises()])
def test_a_promise_has_a_test_and_a_fault_against_it(promise, said, test, faults):
  assert pointers.fault(ROOT, f'test: {test}') == ''
  assert faults
  for name in faults:
    assert name in FAULTS, name
    files = {named.partition('[')[0] for named in FAULTS[name].tests}
    assert test in files, (name, test)
  if said != '–':
    quoted = re.fullmatch(r'\[[^\]]+\]\(([^)]+)\): “(.+)”', said)
    assert quoted, said
    text = ' '.join((PAGE.parent / quoted[1]).read_text(encoding='utf-8').split())
    assert quoted[2] in text, f'{quoted[1]} does not say: {quoted[2]}'
  assert promise.endswith('.')


def test_every_fault_against_a_promise_is_on_the_page_and_can_be_planted():
  assert len(FAULTS) == len(mutants.FAULTS)
  named = {name for _, _, _, faults in promises() for name in faults}
  assert {row[0] for row in (*run_faults.ROWS, *user_faults.ROWS, *hosts_faults.ROWS)} <= named
  for fault in mutants.FAULTS:
    assert (ROOT / fault.file).read_text(encoding='utf-8').count(fault.old) == 1, fault.name
    for test in fault.tests:
      assert pointers.fault(ROOT, f'test: {test.partition("[")[0]}') == '', fault.name
