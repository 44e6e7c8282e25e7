"""Tokenizers of checkpoints: the same ids as where they come from, and byte lengths that add up."""

import json

import numpy as np
import pytest

from pe_jax.data import tokenizer
from pe_jax.errors import ConfigError, DataError
from pe_jax.weights import vocabulary

tokenizers = pytest.importorskip('tokenizers')
TEXT = 'The quick brown fox\njumps over  the lazy dog in 1984.\n\tÄ λ 語 🦊\n'
WORDS = ['the quick brown fox jumps over the lazy dog', 'pack my box with five dozen jugs', 'in 1984 and 2001']


class Reader:
  """The part of a gguf.GGUFReader that vocabularies ask."""

  def __init__(self, **fields):
    self.fields = {f'tokenizer.ggml.{key}': value for key, value in fields.items()}

  def get_field(self, key):
    return type('Field', (), {'contents': lambda _: self.fields[key]})() if key in self.fields else None


def trained(digits=True):
  """A byte-level BPE as SmolLM's, with its vocabulary in the order of its ids."""
  pre = tokenizers.pre_tokenizers
  model = tokenizers.Tokenizer(tokenizers.models.BPE())
  model.pre_tokenizer = pre.Sequence([*([pre.Digits(individual_digits=True)] if digits else []), pre.ByteLevel(add_prefix_space=False)])
  model.decoder = tokenizers.decoders.ByteLevel()
  trainer = tokenizers.trainers.BpeTrainer(
    vocab_size=300, special_tokens=['<|end|>'], initial_alphabet=pre.ByteLevel.alphabet(), show_progress=False
  )
  model.train_from_iterator(WORDS * 20, trainer)
  return model


def as_gguf(model, **more):
  parts = json.loads(model.to_str())['model']
  tokens = sorted(parts['vocab'], key=parts['vocab'].get)
  types = [3 if token == '<|end|>' else 1 for token in tokens]
  return Reader(model='gpt2', tokens=tokens, token_type=types, merges=[' '.join(pair) for pair in parts['merges']], **more)


def test_a_byte_level_vocabulary_of_a_gguf_file_gives_the_same_ids(tmp_path):
  model = trained()
  made = tokenizer.make(vocabulary.of_gguf(as_gguf(model, pre='smollm', bos_token_id=0), 'a.gguf', tmp_path))
  ids = made.encode(TEXT.encode())
  assert ids.tolist() == model.encode(TEXT).ids
  assert made.decode(ids) == TEXT
  assert made.byte_length_V[ids].sum() == len(TEXT.encode())
  assert made.byte_length_V[0] == 0
  assert made.bos is None  # it has one, and does not begin with it by itself


def test_how_text_is_cut_decides_its_tokens(tmp_path):
  """The trap: with the same merges, another cut gives other tokens, and the text comes back from both."""
  model = trained(digits=False)
  ids = [
    tokenizer.make(vocabulary.of_gguf(as_gguf(model, pre=cut), 'a.gguf', tmp_path / cut)).encode(b'in 1984') for cut in ('smollm', 'gpt-2')
  ]
  assert ids[1].tolist() == model.encode('in 1984').ids
  assert len(ids[0]) > len(ids[1])


def test_bos_is_what_the_tokenizer_adds_by_itself(tmp_path):
  path = vocabulary.of_gguf(as_gguf(trained(), pre='smollm', bos_token_id=0, add_bos_token=True), 'a.gguf', tmp_path)
  made = tokenizer.make(path)
  assert made.bos == 0
  assert 0 not in made.encode(TEXT.encode())
  assert tokenizers.Tokenizer.from_file(path).encode('the').ids[0] == 0


@pytest.mark.parametrize('cut', sorted(vocabulary.CUTS))
def test_whole_pieces_and_bos_are_those_of_llama_cpp(cut, tmp_path):
  """By the name of the cut alone: Llama 3 takes a piece that is a token whatever the merges make of it, and begins with BOS."""
  reader = as_gguf(trained(), pre=cut, bos_token_id=0)
  reader.fields['tokenizer.ggml.tokens'] += ['zebra']
  reader.fields['tokenizer.ggml.token_type'] += [1]
  made = tokenizer.make(vocabulary.of_gguf(reader, 'a.gguf', tmp_path))
  whole = made.encode(b'zebra').tolist() == [len(reader.fields['tokenizer.ggml.tokens']) - 1]
  assert (whole, made.bos) == ((True, 0) if cut == 'llama-bpe' else (False, None))
  assert len(made.encode(b'zebras')) > 1
  reader.fields['tokenizer.ggml.add_bos_token'] = False
  assert tokenizer.make(vocabulary.of_gguf(reader, 'a.gguf', tmp_path / 'none')).bos is None


@pytest.mark.parametrize('cut', sorted(vocabulary.CUTS))
def test_every_way_of_cutting_keeps_the_text(cut, tmp_path):
  made = tokenizer.make(vocabulary.of_gguf(as_gguf(trained(), pre=cut, bos_token_id=0), 'a.gguf', tmp_path))
  assert made.decode(made.encode(TEXT.encode())) == TEXT


def test_special_tokens_and_the_chat_template_of_a_gguf_file_are_kept(tmp_path):
  reader = as_gguf(trained(), pre='smollm', bos_token_id=0, eos_token_id=0, padding_token_id=3, unknown_token_id=999)
  reader.fields['tokenizer.chat_template'] = '{{ messages }} Ä'
  vocabulary.of_gguf(reader, 'a.gguf', tmp_path)
  third = reader.fields['tokenizer.ggml.tokens'][3]
  assert vocabulary.told(tmp_path) == {
    'bos_token': '<|end|>', 'eos_token': '<|end|>', 'pad_token': third, 'chat_template': '{{ messages }} Ä'
  }  # fmt: skip


def test_what_a_folder_says_of_special_tokens_is_kept_in_whatever_file_it_stands(tmp_path):
  trained().save(str(tmp_path / 'tokenizer.json'))
  end = {'__type': 'AddedToken', 'content': '<|end|>', 'special': True}
  (tmp_path / 'special_tokens_map.json').write_text(json.dumps({'eos_token': '<|old|>', 'pad_token': {'content': '<|end|>'}}))
  told = {'eos_token': end, 'extra_special_tokens': [end], 'tokenizer_class': 'Qwen2Tokenizer', 'add_bos_token': False, 'sep_token': None}
  (tmp_path / 'tokenizer_config.json').write_text(json.dumps(told))
  (tmp_path / 'chat_template.jinja').write_text('{{ messages }}')
  want = {'eos_token': '<|end|>', 'pad_token': '<|end|>', 'extra_special_tokens': ['<|end|>'], 'chat_template': '{{ messages }}'}
  vocabulary.of_folder(tmp_path, tmp_path / 'a', 'llama')
  vocabulary.of_given(tmp_path / 'tokenizer.json', tmp_path / 'b')
  assert [vocabulary.told(tmp_path / name) for name in 'ab'] == [want, want]


def test_a_sentencepiece_vocabulary_of_a_gguf_file_gives_the_same_ids(tmp_path):
  import warnings

  with warnings.catch_warnings():
    warnings.simplefilter('ignore', DeprecationWarning)
    import sentencepiece
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(WORDS * 20), model_prefix=str(tmp_path / 'm'), vocab_size=310, model_type='bpe', byte_fallback=True,
    normalization_rule_name='identity', remove_extra_whitespaces=False, minloglevel=2,
  )  # fmt: skip
  model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / 'm.model'))
  pieces = range(model.get_piece_size())
  kinds = [6 if model.is_byte(i) else 2 if model.is_unknown(i) else 3 if model.is_control(i) else 1 for i in pieces]
  reader = Reader(
    model='llama', tokens=[model.id_to_piece(i) for i in pieces], scores=[model.get_score(i) for i in pieces], token_type=kinds,
    bos_token_id=1,
  )  # fmt: skip
  made = tokenizer.make(vocabulary.of_gguf(reader, 'a.gguf', tmp_path / 'out'))
  for text in (TEXT, *WORDS, 'a', ' the  fox '):
    assert made.encode(text.encode()).tolist() == model.encode(text), text
    assert made.decode(made.encode(text.encode())) == text
  assert made.bos == 1
  assert made.byte_length_V[made.encode(TEXT.encode())].sum() == len(TEXT.encode()) + 1  # the space before it


def trained_pieces(path, more=(), **how):
  import warnings

  with warnings.catch_warnings():
    warnings.simplefilter('ignore', DeprecationWarning)
    import sentencepiece
  options = {'vocab_size': 310, 'model_type': 'bpe', 'byte_fallback': True, 'normalization_rule_name': 'identity'}
  options |= {'remove_extra_whitespaces': False, 'minloglevel': 2} | how
  sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter([*WORDS, *more] * 20), model_prefix=str(path), **options)
  return sentencepiece.SentencePieceProcessor(model_file=f'{path}.model')


def test_a_token_of_the_users_is_one_token_in_the_middle_of_a_text(tmp_path):
  """The trap: a text begins with a space there, and the token is no text of its own that would begin with one."""
  model = trained_pieces(tmp_path / 'm', user_defined_symbols=['<|im|>'])
  number = model.piece_to_id('<|im|>')
  kinds = [6 if model.is_byte(i) else 2 if model.is_unknown(i) else 3 if model.is_control(i) else 1 for i in range(model.get_piece_size())]
  kinds[number] = 4
  tokens, scores = ([of(i) for i in range(model.get_piece_size())] for of in (model.id_to_piece, model.get_score))
  reader = Reader(model='llama', tokens=tokens, scores=scores, token_type=kinds, bos_token_id=1)
  made = tokenizer.make(vocabulary.of_gguf(reader, 'a.gguf', tmp_path / 'out'))
  for text in ('the<|im|>fox', '<|im|>', 'the fox <|im|> <|im|>'):
    assert made.encode(text.encode()).tolist().count(number) == text.count('<|im|>'), text
  assert made.encode(b'the fox<|im|>').tolist() == model.encode('the fox<|im|>')


@pytest.mark.parametrize(
  'how',
  [
    {},
    {'add_dummy_prefix': False, 'user_defined_symbols': ['\n']},
    {'add_dummy_prefix': False, 'bos_id': -1},
    {'add_dummy_prefix': False, 'user_defined_symbols': ['▁▁▁▁', '▁▁']},
    {'model_type': 'unigram', 'vocab_size': 296},
    {'model_type': 'unigram', 'vocab_size': 296, 'add_dummy_prefix': False},
    {'normalization_rule_name': 'nmt_nfkc', 'remove_extra_whitespaces': True},
  ],
)
def test_pieces_become_a_tokenizer_json_that_gives_the_same_ids_and_begins_with_bos(how, tmp_path):
  model = trained_pieces(tmp_path / 'm', **how)
  ours = tokenizer.make(str(tmp_path / 'm.model'))
  path, bos = vocabulary.of_pieces(tmp_path / 'm.model', tmp_path / 'out', ours.bos)
  made = tokenizers.Tokenizer.from_file(path)
  for text in (TEXT, *WORDS, 'a', ' the  fox ', 'no such word: xyzzy', 'if a:\n        b'):
    ids = made.encode(text).ids
    assert ids == [ours.bos, *model.encode(text)], text
    assert made.decode(ids, skip_special_tokens=True) == model.decode(model.encode(text))
  assert made.token_to_id(bos) == ours.bos


def test_the_name_of_a_byte_in_a_text_is_text_to_a_unigram_too(tmp_path):
  told = ['a < b > c 0 x 4 1 u n k', '<0x41> <unk>']
  model = trained_pieces(tmp_path / 'm', told, model_type='unigram', vocab_size=310, hard_vocab_limit=False)
  path, _ = vocabulary.of_pieces(tmp_path / 'm.model', tmp_path / 'out', 1)
  made = tokenizers.Tokenizer.from_file(path)
  for text in ('<0x41>', 'the <unk> fox'):
    assert made.encode(text, add_special_tokens=False).ids == model.encode(text), text


def test_pieces_that_would_be_cut_otherwise_are_refused(tmp_path):
  trained_pieces(tmp_path / 'm', user_defined_symbols=['<|im|>'])  # after it sentencepiece writes no space, and tokenizers does
  with pytest.raises(ConfigError, match=r"a tokenizer\.json made of it cuts 'a<\|im\|> b<\|im\|>c' otherwise"):
    vocabulary.of_pieces(tmp_path / 'm.model', tmp_path / 'out', 1)
  trained_pieces(tmp_path / 'w', model_type='char', vocab_size=40, byte_fallback=False)
  with pytest.raises(ConfigError, match='its pieces are whole words or characters'):
    vocabulary.of_pieces(tmp_path / 'w.model', tmp_path / 'out', 1)


def test_whether_a_text_begins_with_bos_is_what_tokenizer_config_says(tmp_path):
  """It counts more than tokenizer.json, in transformers too."""
  model, told = trained(), tmp_path / 'tokenizer_config.json'
  processors = tokenizers.processors
  for begins in (False, True):
    if begins:
      model.post_processor = processors.TemplateProcessing(single='<|end|> $A', special_tokens=[('<|end|>', 0)])
    model.save(str(tmp_path / 'tokenizer.json'))
    for wanted, bos in ((True, 0), (False, None), (None, 0 if begins else None)):
      told.write_text(json.dumps({'bos_token': {'content': '<|end|>'}} | ({} if wanted is None else {'add_bos_token': wanted})))
      made = tokenizer.make(vocabulary.of_folder(tmp_path, tmp_path / 'out', 'llama'))
      assert made.bos == bos, (begins, wanted)
      assert made.encode(TEXT.encode()).tolist() == model.encode(TEXT, add_special_tokens=False).ids
  told.write_text(json.dumps({'bos_token': '<none>', 'add_bos_token': True}))
  model.post_processor = processors.TemplateProcessing(single='$A', special_tokens=[])
  model.save(str(tmp_path / 'tokenizer.json'))
  with pytest.raises(ConfigError, match="add_bos_token is true, and bos_token='<none>' is no token"):
    vocabulary.of_folder(tmp_path, tmp_path / 'out', 'llama')


def test_bytes_as_a_tokenizer_json_are_bytes(tmp_path):
  path, bytes_ = vocabulary.of_bytes(tmp_path), tokenizer.make('bytes')
  made = tokenizer.make(path)
  assert (made.vocab_size, made.bos) == (257, 256)
  text = TEXT + ''.join(map(chr, range(1, 256)))
  assert made.encode(text.encode()).tolist() == bytes_.encode(text.encode()).tolist()
  assert made.decode([256, *made.encode(text.encode())]) == text
  assert made.byte_length_V.tolist() == bytes_.byte_length_V.tolist()


def test_vocab_and_merges_of_older_folders_are_read(tmp_path):
  model = trained(digits=False)
  model.model.save(str(tmp_path))
  for model_type in ('gpt2', 'gptj'):
    made = tokenizer.make(vocabulary.of_folder(tmp_path, tmp_path / 'out', model_type))
    assert made.encode(TEXT.encode()).tolist() == model.encode(TEXT).ids
  # The trap: Qwen 2 cuts otherwise, and the text would come back from other tokens too.
  with pytest.raises(ConfigError, match=r'do not say how a qwen2 cuts text .* put its tokenizer\.json there .* --tokenizer=PATH'):
    vocabulary.of_folder(tmp_path, tmp_path / 'out', 'qwen2')


def test_a_tokenizer_that_would_cut_texts_short_does_not(tmp_path):
  model = trained()
  model.enable_truncation(5)
  model.enable_padding(length=8)
  model.save(str(tmp_path / 'tokenizer.json'))
  made = tokenizer.make(str(tmp_path / 'tokenizer.json'))
  assert len(made.encode(TEXT.encode())) > 8
  assert made.encode(b'').dtype == np.int32


@pytest.mark.parametrize(
  ('reader', 'error', 'match'),
  [
    (Reader(model='t5', tokens=['a']), ConfigError, "tokenizer.ggml.model='t5' cannot be imported"),
    (Reader(), ConfigError, 'tokenizer.ggml.model=None cannot be imported'),
    (Reader(model='gpt2', tokens=['a'], pre='klingon'), ConfigError, "tokenizer.ggml.pre='klingon' is not known"),
    (Reader(model='gpt2', tokens=['a']), ConfigError, 'tokenizer.ggml.pre=None is not known'),
    (Reader(model='gpt2', tokens=['a'], pre='llama-bpe'), ConfigError, 'texts begin with BOS, and tokenizer.ggml.bos_token_id=None'),
    (Reader(model='gpt2', tokens=['a'], pre='gpt-2', merges=['a x']), DataError, 'a.gguf: its vocabulary cannot be read: '),
    (Reader(model='llama', tokens=['a', 'b', 'ab'], scores=[0.0]), DataError, 'a.gguf: its vocabulary cannot be read: '),
    (Reader(model='gpt2', tokens=['a', 'b', 'a'], pre='gpt-2'), DataError, "token 0 of its vocabulary, 'a', comes twice"),
  ],
)
def test_a_vocabulary_that_cannot_be_read_is_named(reader, error, match, tmp_path):
  with pytest.raises(error, match=match):
    vocabulary.of_gguf(reader, 'a.gguf', tmp_path)


def test_a_file_that_is_no_tokenizer_is_named(tmp_path):
  (tmp_path / 'tokenizer.json').write_text('{}')
  with pytest.raises(DataError, match=r'tokenizer\.json: not a tokenizer\.json'):
    tokenizer.make(str(tmp_path / 'tokenizer.json'))
  with pytest.raises(DataError, match=r'there is no such tokenizer\.json'):
    tokenizer.make(str(tmp_path / 'gone.json'))
