"""Tokenizers give text back, and their byte lengths add up to its bytes."""

import io
import sys

import numpy as np
import pytest

from pe_jax.data import tokenizer
from pe_jax.errors import ConfigError, DataError

TEXT = 'The quick brown fox\njumps over  the lazy dog.\n\tÄ λ 語 🦊\n'


@pytest.fixture(scope='module')
def model(tmp_path_factory):
  return train(tmp_path_factory.mktemp('spm') / 'tiny.model')


def train(path, **kwargs):
  import warnings

  with warnings.catch_warnings():
    warnings.simplefilter('ignore', DeprecationWarning)
    import sentencepiece
  written = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(['the quick brown fox jumps over the lazy dog'] * 20 + ['pack my box with five dozen jugs'] * 20),
    model_writer=written,
    vocab_size=310,
    model_type='bpe',
    normalization_rule_name='identity',
    add_dummy_prefix=False,
    remove_extra_whitespaces=False,
    byte_fallback=True,
    user_defined_symbols=['\n'],
    minloglevel=2,
    **kwargs,
  )
  path.write_bytes(written.getvalue())
  return str(path)


def test_bytes_are_their_own_tokens():
  tok = tokenizer.make('bytes')
  assert (tok.name, tok.vocab_size, tok.bos) == ('bytes', 257, 256)
  ids = tok.encode(bytes(range(256)))
  assert ids.dtype == np.int32
  assert ids.tolist() == list(range(256))
  assert tok.decode([256, *tok.encode(TEXT.encode())]) == TEXT
  assert tok.byte_length_V.tolist() == [1] * 256 + [0]


def test_sentencepiece_gives_the_text_back_and_counts_its_bytes(model):
  tok = tokenizer.make(model)
  for text in (TEXT, '', ' ', '\n\n', '  the  ', '\0'):
    ids = tok.encode(text.encode())
    assert ids.dtype == np.int32
    assert tok.decode([tok.bos, *ids]) == text
    assert tok.byte_length_V[ids].sum() == len(text.encode())
  assert len(tok.encode(TEXT.encode())) < len(TEXT.encode())
  assert tok.byte_length_V.shape == (tok.vocab_size,)
  assert tok.byte_length_V[tok.bos] == 0


def test_a_model_without_bos_gets_one_more_id(tmp_path, model):
  without = tokenizer.make(train(tmp_path / 'no_bos.model', bos_id=-1))
  assert without.bos == without.vocab_size - 1 == 310
  assert without.byte_length_V[310] == 0
  assert without.decode([310, *without.encode(b'the fox')]) == 'the fox'
  assert tokenizer.make(model).vocab_size == 310
  assert tokenizer.make(model).bos == 1


def test_errors_name_the_way_out(tmp_path, monkeypatch, model):
  with pytest.raises(ConfigError, match=r"'byte' is unknown \(did you mean 'bytes'\?\)"):
    tokenizer.make('byte')
  with pytest.raises(DataError, match=r'gone\.model: there is no such sentencepiece model'):
    tokenizer.make(str(tmp_path / 'gone.model'))
  (tmp_path / 'bad.model').write_bytes(b'not a model')
  with pytest.raises(DataError, match=r'bad\.model: not a sentencepiece model'):
    tokenizer.make(str(tmp_path / 'bad.model'))
  monkeypatch.setitem(sys.modules, 'sentencepiece', None)
  with pytest.raises(ConfigError, match=r'pip install pe_jax\[spm\]'):
    tokenizer.make(model)
