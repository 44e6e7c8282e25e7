"""Writes docs/field-cases.md from the tests of this folder: case, what must be true, tests.

  python tests/field/page.py

A test named test_p07_… shows case P07; its docstring says what must be true, and behind 'More:' which other tests show it.
"""

import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / 'docs' / 'field-cases.md'
HEAD = """# Field cases

Fifty faults that people reported in programs like this one, and what is true here instead. Each has a test on the smallest input that
shows the fault, named after what must be true; where the fault cannot exist by design, the test shows why. `python tests/field/page.py`
writes this page from the tests, and a test keeps it in step.

| case | what is true | tests |
|---|---|---|
"""


def cases(folder=pathlib.Path(__file__).parent):
  """{case: [(sentence, test, other tests)]} of the files test_field_*.py, in the order of the cases."""
  found = {}
  for path in sorted(folder.glob('test_field_*.py')):
    for node in ast.parse(path.read_text()).body:
      if isinstance(node, ast.FunctionDef) and (number := re.match(r'test_p(\d\d)_', node.name)):
        sentence, _, more = ' '.join(ast.get_docstring(node).split()).partition('More: ')
        test = f'{path.relative_to(folder.parent.parent).as_posix()}::{node.name}'
        found.setdefault(f'P{number[1]}', []).append((sentence.strip(), test, [m for m in more.split(', ') if m]))
  return dict(sorted(found.items()))


def page(found):
  """The text."""
  lines = []
  for case, tests in found.items():
    sentences = ' '.join(sentence for sentence, _, _ in tests).replace('|', '\\|')
    names = [test for _, name, others in tests for test in (name, *others)]
    lines.append(f'| {case} | {sentences} | {"<br>".join(f"`{name}`" for name in names)} |\n')
  return HEAD + ''.join(lines)


if __name__ == '__main__':
  PAGE.write_text(page(cases()))
