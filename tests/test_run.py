"""A Run by itself: positions and documents that are given, and where texts end."""

import json

import jax
import numpy as np
import pytest
import tiny

from pe_jax.errors import ConfigError, DataError
from pe_jax.run import Run


def a_run(spec, workdir='', **settings):
  config, _, params = tiny.made(spec, vocab_size=257, **settings)
  config = config.copy_and_resolve_references()
  config.unlock()
  config.encoding = spec
  return Run(str(workdir), config, params, 0)


@pytest.mark.parametrize('size', [3, 1100], ids=['whole rows', 'blocks'])
def test_positions_that_are_given_are_those_that_distances_are_counted_from(size):
  """A hundred thousand apart, the mildest slope hides all keys but one's own: each token is alone."""
  run = a_run('alibi')
  tokens = tiny.tokens(1, size)
  far = run.logits(tokens, pos=100_000 * np.arange(size)[None])
  alone = run.logits(np.asarray(tokens).reshape(-1, 1)[-3:])
  assert tiny.error(far[0, -3:], alone[:, 0]) < 1e-5
  assert tiny.error(run.logits(tokens, pos=np.arange(size)[None] + 7), run.logits(tokens)) < 1e-5


@pytest.mark.parametrize('spec', ['learned', 'alibi', 'rope'])
def test_each_document_of_a_row_begins_at_position_0(spec):
  run = a_run(spec)
  packed = run.logits([[5, 6, 7, 8, 9]], doc=[[1, 1, 2, 2, 2]])[0]
  np.testing.assert_allclose(packed[:2], run.logits([5, 6])[0], atol=1e-5)
  np.testing.assert_allclose(packed[2:], run.logits([7, 8, 9])[0], atol=1e-5)


@pytest.mark.parametrize(
  ('given', 'says'),
  [
    ({'pos': [[0, 2, 1]]}, 'pos: positions must rise within a document'),
    ({'pos': [[0, 0, 1]]}, 'pos: positions must rise within a document'),
    ({'pos': [[0, 1]]}, r'pos: a position for each token is wanted, and tokens have shape \(1, 3\), positions \(1, 2\)'),
    ({'pos': [[-1, 0, 1]]}, 'pos: -1 is below 0, where positions begin'),
    ({'doc': [[1, 1, 1, 1]]}, 'doc: a document for each token is wanted'),
    ({'doc': [[7, 2, 7]]}, r'doc: document 7 comes twice in row 0, which would see itself across another \(number each run anew\)'),
  ],
)
def test_positions_and_documents_that_cannot_be_are_refused(given, says):
  with pytest.raises(ConfigError, match=says):
    a_run('alibi').logits([5, 6, 7], **given)


def test_padding_may_stand_on_both_sides_and_has_no_position():
  run = a_run('learned(max_length=4)')
  padded = run.logits([[0, 5, 6, 0]], pos=[[-9, 0, 1, 99]], doc=[[0, 4, 4, 0]])
  np.testing.assert_allclose(padded[0, 1:3], run.logits([5, 6])[0], atol=1e-5)


def test_a_position_that_a_table_does_not_have_is_refused():
  """A gather would answer with the last row, so that all positions beyond are one."""
  run = a_run('learned(max_length=8)')
  assert run.logits([5, 6], pos=[[6, 7]]).shape == (1, 2, 257)
  with pytest.raises(ConfigError, match=r"'learned\(max_length=8\)' has 8 positions and cannot serve length 9"):
    run.logits([5, 6], pos=[[7, 8]])


@pytest.mark.parametrize('tokens', [[1.7, 2.2], [[[1]]], [], [True, False]])
def test_tokens_that_are_no_rows_of_whole_numbers_are_refused(tokens):
  with pytest.raises(ConfigError, match=r'tokens: whole numbers \(B, T\) are wanted'):
    a_run('rope').logits(tokens)


@pytest.mark.parametrize('generation', [True, False], ids=['generation_config.json', 'config.json'])
def test_a_text_ends_where_the_source_of_an_imported_run_says(tmp_path, generation):
  run = a_run('rope', tmp_path)
  whole = run.generate([5, 6], 6, temperature=0)
  third = int(whole.tokens[0, 2])
  count = whole.tokens[0].tolist().index(third) + 1
  card = {'eos_token_id': None, 'generation': {'eos_token_id': [third]}} if generation else {'eos_token_id': third, 'generation': None}
  (tmp_path / 'card.json').write_text(json.dumps(card))
  ended = run.generate([5, 6], 6, temperature=0)
  assert (int(whole.count[0]), int(ended.count[0])) == (6, count)
  np.testing.assert_array_equal(ended.tokens[0, :count], whole.tokens[0, :count])
  assert int(run.generate([5, 6], 6, temperature=0, stop=()).count[0]) == 6


@pytest.mark.parametrize(('text', 'says'), [('{"torn', 'card.json: no JSON: '), ('[1]', 'card.json: holds no JSON object')])
def test_a_card_that_cannot_be_read_is_a_sentence(tmp_path, text, says):
  (tmp_path / 'card.json').write_text(text)
  with pytest.raises(DataError, match=says):
    a_run('rope', tmp_path).generate([5, 6], 2)


def test_parameters_are_read_and_not_changed(tmp_path):
  run = a_run('dynamic_ntk(factor=2)', tmp_path)
  before = jax.tree.structure(run.params)
  run.generate([5, 6], 3, temperature=0)
  assert jax.tree.structure(run.params) == before
