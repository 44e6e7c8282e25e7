"""What the documents say is so: README's table is the registry's, examples give what is printed below them, links lead somewhere."""

import doctest
import pathlib
import re

import pytest

from pe_jax import encodings, tasks
from pe_jax.errors import ConfigError
from pe_jax.report import encodings_table

ROOT = pathlib.Path(__file__).parent.parent
README, GUIDE = ROOT / 'README.md', ROOT / 'docs' / 'encodings.md'
DOCUMENTS = [README, *sorted((ROOT / 'docs').glob('*.md'))]


def links(path):
  """(text, target) of the Markdown links and images of a file."""
  return re.findall(r'\[([^\]\[]*)\]\(([^)\s]*)\)', path.read_text())


def test_the_table_of_encodings_in_the_readme_is_the_registrys():
  text = README.read_text()
  assert encodings_table.rewritten(text, encodings_table.table()) == text, (
    'README.md differs from the registry (python -m pe_jax.report.encodings_table README.md rewrites its table)'
  )


def test_the_table_has_one_row_for_every_name():
  rows = re.findall(r'^\| `(\w+)', encodings_table.table(), re.MULTILINE)
  assert sorted(rows) == encodings.names()


def test_only_what_stands_between_the_two_comments_is_rewritten(tmp_path):
  begin, end = encodings_table.BEGIN, encodings_table.END
  assert encodings_table.rewritten(f'a\n{begin}\nold\n{end}\nb', 'new') == f'a\n{begin}\nnew\n{end}\nb'
  for text in ('', begin, f'{end} {begin}', f'{begin} {end} {end}'):
    with pytest.raises(ConfigError, match='once each'):
      encodings_table.rewritten(text, 'new')
  with pytest.raises(ConfigError, match='there is no file'):
    encodings_table.main([str(tmp_path / 'none.md')])
  (tmp_path / 'some.md').write_text(f'a\n{begin}{end}\nb')
  encodings_table.main([str(tmp_path / 'some.md')])
  assert (tmp_path / 'some.md').read_text() == f'a\n{begin}\n{encodings_table.table()}\n{end}\nb'


def test_the_guide_has_an_entry_for_every_name():
  """A heading, an item of a list that starts with the name, or a row of a table."""
  entries = re.findall(r'^(?:#+ |- \*\*|\| )`(\w+)`', GUIDE.read_text(), re.MULTILINE)
  assert [name for name in encodings.names() if name not in entries] == []


def test_the_list_of_tasks_is_the_registrys_and_has_their_chances():
  rows = re.findall(r'^\| `(\w+)` \|.*?\|.*?\| 1/(\d+)', (ROOT / 'docs' / 'tasks.md').read_text(), re.MULTILINE)
  assert {name: int(choices) for name, choices in rows} == {name: len(tasks.make(name).alphabet) for name in tasks.names()}


def test_the_numbers_in_the_guide_are_what_the_code_gives():
  examples = doctest.DocTestParser().get_doctest(code(GUIDE), {}, GUIDE.name, str(GUIDE), 0)
  assert len(examples.examples) > 40
  said = []
  doctest.DocTestRunner(verbose=False).run(examples, out=said.append)
  assert not said, ''.join(said)


def code(path):
  """A file's Python blocks, those in quotations too; every other line is empty, so that lines keep their numbers."""
  lines, inside = [], False
  for line in path.read_text().splitlines():
    line = line[2:] if line.startswith('> ') else line
    fence = line.startswith('```')
    lines.append(line if inside and not fence else '')
    inside = line == '```python' or (inside and not fence)
  return '\n'.join(lines) + '\n'


@pytest.mark.parametrize('path', DOCUMENTS, ids=lambda p: p.name)
def test_an_arxiv_link_shows_the_id_it_leads_to(path):
  text = path.read_text()
  for shown, target in links(path):
    if 'arxiv' in target.lower():
      assert re.fullmatch(r'\d{4}\.\d{5}', shown), (shown, target)
      assert target == f'https://arxiv.org/abs/{shown}'
  assert len(re.findall('arxiv.org', text)) == len(re.findall(r'\]\(https://arxiv\.org/abs/\d{4}\.\d{5}\)', text))


@pytest.mark.parametrize('path', DOCUMENTS, ids=lambda p: p.name)
def test_a_relative_link_leads_to_a_file_and_a_heading_that_exist(path):
  for shown, target in links(path):
    if '://' in target:
      continue
    name, _, anchor = target.partition('#')
    there = (path.parent / name) if name else path
    assert there.exists(), f'{path.name}: [{shown}]({target})'
    if anchor:
      assert anchor in anchors(there), f'{path.name}: [{shown}]({target})'


def anchors(path):
  """The anchors GitHub gives a file's headings."""
  headings = re.findall(r'^#+ (.*)$', path.read_text(), re.MULTILINE)
  return {re.sub(r'[^\w\- ]', '', h.lower()).replace(' ', '-') for h in headings}
