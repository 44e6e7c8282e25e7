"""docs/claims.md is what docs/data/claims.toml says, has every claim of the two source documents once, and points at things that exist."""

import copy
import pathlib
import shlex

import pytest

from pe_jax import encodings
from pe_jax.errors import DataError
from pe_jax.report import claims, pointers

ROOT = pathlib.Path(__file__).parent.parent
DATA = ROOT / 'docs' / 'data' / 'claims.toml'
TOPICS = claims.read(DATA)


def test_the_page_is_what_the_data_says():
  said = claims.page(ROOT, TOPICS)
  assert (ROOT / 'docs' / 'claims.md').read_text(encoding='utf-8') == said, 'docs/claims.md: python scripts/claims.py writes it anew'
  assert max(len(line) for line in said.splitlines() if '](' not in line) <= claims.WIDTH


def test_every_claim_of_both_documents_is_there():
  assert sorted(claims.flat(TOPICS)) == sorted([f'A{n}' for n in range(1, 53)] + [f'B{n}' for n in range(1, 69)])
  wrong = {name for name, claim in claims.flat(TOPICS).items() if claim['verdict'] == 'wrong'}
  assert wrong == {'A10', 'A17', 'A20', 'A32', 'A39', 'A44', 'A47', 'A48', 'A49', 'A50', 'B33'}


def test_every_pointer_points_at_something():
  assert claims.faults(ROOT, TOPICS) == []


def test_every_test_of_test_claims_shown_shows_a_claim():
  shown = {p.partition('::')[2] for claim in claims.flat(TOPICS).values() for p in claim['shown_by']}
  assert {name for name in pointers.names(ROOT / 'tests' / 'test_claims_shown.py') if name.startswith('test_')} <= shown


def test_every_encoding_of_a_command_exists():
  commands = [p for claim in claims.flat(TOPICS).values() for p in claim['shown_by'] if p.startswith('command: ')]
  specs = [word.partition('=')[2] for p in commands for word in shlex.split(p) if word.startswith('--encoding=')]
  assert len(specs) > 5
  for spec in specs:
    encodings.parse(spec)


@pytest.mark.parametrize(
  ('pointer', 'said'),
  [
    ('test: tests/test_model.py::test_of_nothing', 'tests/test_model.py has no test_of_nothing'),
    ('test: tests/test_model.py::logits', 'names no test'),
    ('test: tests/test_nothing.py::test_x', 'there is no file tests/test_nothing.py'),
    ('test: tests/encodings/test_contract.py::test_worst', 'has no test_worst'),
    ('code: pe_jax/encodings/rope.py::frequency', 'pe_jax/encodings/rope.py has no frequency'),
    ('doc: docs/encodings.md#rop', 'has no heading with that anchor'),
    ('doc: docs/encodings.md', 'has no heading with that anchor'),
    ('example: docs/encodings.md#learned-tables', 'has no heading with that anchor'),
    ('example: docs/encodings.md#pope', 'no example in that section'),
    ('measured: docs/encodings.md#9-choosing', 'no date of a measurement'),
    ('figure: docs/nothing.png', 'there is no file docs/nothing.png'),
    ('command: python scripts/nothing.py', 'there is no such script'),
    ('command: python eval.py --length=64', 'eval.py has no flag --length=64'),
    ('command: python eval.py 64', 'eval.py has no flag 64'),
    ('command: python train.py --config=configs/nothing.py:rope', 'there is no configs/nothing.py:rope'),
    ('command: make tea', 'the Makefile has no such target'),
    ('command: ls', 'there is no such script'),
    ('paper: 2104.09864', 'is of no kind'),
    ('tests/test_model.py', 'is of no kind'),
  ],
)
def test_a_pointer_that_leads_nowhere_is_told(pointer, said):
  assert said in pointers.fault(ROOT, pointer)
  planted = copy.deepcopy(TOPICS)
  claims.flat(planted)['A10']['shown_by'].append(pointer)
  (found,) = claims.faults(ROOT, planted)
  assert found.startswith('A10: ')
  assert said in found


@pytest.mark.parametrize(
  'pointer',
  [
    'test: tests/test_model.py::test_a_cache_refuses_what_does_not_fit',
    'test: tests/encodings/test_contract.py::test_left_padding_changes_nothing',
    'code: pe_jax/encodings/rope.py::frequencies',
    'code: pe_jax/encodings/base.py::Traits',
    'doc: docs/encodings.md#6-rope-derived',
    'example: docs/encodings.md#44-frequency-maps',
    'command: make demo',
    'command: python train.py --config=configs/task.py:copy --workdir=runs/copy --config.batch_size=8',
  ],
)
def test_a_pointer_that_leads_somewhere_is_not(pointer):
  assert pointers.fault(ROOT, pointer) == ''


def test_a_verdict_needs_more_than_prose():
  planted = copy.deepcopy(TOPICS)
  claims.flat(planted)['B5']['shown_by'] = ['doc: docs/encodings.md#rope']
  claims.flat(planted)['B15']['shown_by'] = []
  assert set(claims.faults(ROOT, planted)) == {
    'B15: no pointer',
    'B5: true with conditions, and neither a test, an example, a command nor a measurement shows it',
  }


@pytest.mark.parametrize(
  ('change', 'said'),
  [
    (lambda text: text.replace('.A7]', '.A70]'), 'exactly once, or no claim of the two documents: A7, A70'),
    (lambda text: text.replace('["Sinusoidal tables".A7]', '["RoPE".A8]'), 'A7, A8'),
    (lambda text: text.replace('verdict = "wrong"', 'verdict = "false"', 1), 'A10 needs the fields'),
    (lambda text: text.replace('why = "', 'wy = "', 1), 'A1 needs the fields'),
    (
      lambda text: text.replace('verdict = "true"', 'verdict = "not shown here"', 1),
      'B1 is not shown here and does not say what is missing',
    ),
    (lambda text: text + '[', 'claims.toml: '),
  ],
)
def test_data_that_is_not_whole_is_refused_in_a_sentence(tmp_path, change, said):
  (tmp_path / 'claims.toml').write_text(change(DATA.read_text(encoding='utf-8')), encoding='utf-8')
  with pytest.raises(DataError) as error:
    claims.read(tmp_path / 'claims.toml')
  assert said in str(error.value)
  assert '\n' not in str(error.value)


def test_headings_get_the_anchors_that_github_gives(tmp_path):
  (tmp_path / 'a.md').write_text(
    '# A `b`, c\n```\n# no heading\n```\n> ```python\n> # none\n> ```\n## 4.1 D\nx\n## 4.1 D\n', encoding='utf-8'
  )
  assert list(pointers.sections(tmp_path / 'a.md')) == ['a-b-c', '41-d', '41-d-1']
  assert pointers.sections(tmp_path / 'a.md')['41-d'] == ('4.1 D', 'x\n')
