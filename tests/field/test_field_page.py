"""docs/field-cases.md has every case once, says what the tests say, and names tests that exist."""

import page

from pe_jax.report import pointers

CASES = page.cases()


def test_every_case_has_a_test_and_the_page_is_written_from_them():
  assert list(CASES) == [f'P{n:02}' for n in range(1, 51)]
  assert page.PAGE.read_text() == page.page(CASES), 'docs/field-cases.md: python tests/field/page.py writes it anew'


def test_every_test_that_the_page_names_exists():
  named = [name for tests in CASES.values() for _, test, others in tests for name in (test, *others)]
  assert len(named) > 90
  assert [said for name in named if (said := pointers.fault(page.ROOT, f'test: {name}'))] == []
