"""Tokenizers: text as bytes to token ids, with the number of bytes each token stands for.

A synthetic task has words of its own: 'task:copy(symbols=26)' reads and writes them with spaces between. They stand
for no bytes.

'bytes' needs no vocabulary file: ids 0..255 are the bytes, 256 begins a sequence. A path that ends in '.model' is a
sentencepiece model. Losses of different tokenizers compare only per byte, so each token has a byte length whose sum
over a text is the text's number of bytes. For sentencepiece that is exact if the model was trained with identity
normalisation, no dummy prefix, no removal of extra white space and byte fallback (`normalization_rule_name='identity',
add_dummy_prefix=False, remove_extra_whitespaces=False, byte_fallback=True`), and the text does not itself hold U+2581,
which sentencepiece writes for a space. With a dummy prefix each text counts one byte too many.

A path that ends in '.json' is a tokenizer.json, as imported checkpoints have it (pe_jax/weights). It begins texts with
BOS if that is what it does by itself. Words in the text that name a special token become that token. Byte lengths are
exact for byte-level BPE, and as above for sentencepiece's.
"""

import dataclasses
import json
import os
import warnings
from collections.abc import Callable

import numpy as np

from pe_jax.config import did_you_mean
from pe_jax.errors import ConfigError, DataError


@dataclasses.dataclass(frozen=True, eq=False)
class Tokenizer:
  """`encode(bytes)` gives int32 ids without BOS, `decode(ids)` a str. Ids are below vocab_size; `bos` is None if there
  is none.
  """

  name: str
  vocab_size: int
  bos: int | None
  byte_length_V: np.ndarray
  encode: Callable[[bytes], np.ndarray]
  decode: Callable[..., str]


TASK = 'task:'  # before the name of a task; resolve.py writes it


def make(name):
  """The tokenizer of `data.tokenizer`: 'bytes', the path of a sentencepiece .model or of a tokenizer.json, or 'task:' and a task."""
  if name == 'bytes':
    return _bytes()
  if str(name).endswith('.model'):
    return _sentencepiece(os.path.expanduser(name))
  if str(name).startswith(TASK):
    return _words(name)
  if str(name).endswith('.json'):
    return _json(os.path.expanduser(name))
  raise ConfigError(
    f"data.tokenizer: '{name}' is unknown{did_you_mean(name, ['bytes'])} (take 'bytes' or the path of a sentencepiece .model or of a "
    'tokenizer.json)'
  )


def _bytes():
  def encode(text):
    return np.frombuffer(text, np.uint8).astype(np.int32)

  def decode(ids):
    ids = np.asarray(ids)
    return ids[ids < 256].astype(np.uint8).tobytes().decode('utf-8', 'replace')

  byte_length_V = np.append(np.ones(256, np.int32), np.int32(0))
  return Tokenizer('bytes', 257, 256, byte_length_V, encode, decode)


def _words(name):
  from pe_jax import tasks

  task = tasks.make(name.removeprefix(TASK))
  ids = {word: i for i, word in enumerate(task.words)}

  def encode(text):
    words = text.decode('utf-8').split()
    for word in words:
      if word not in ids:
        raise DataError(f"'{word}' is no word of {task.spec}{did_you_mean(word, ids)} (its words: {', '.join(ids)})")
    return np.asarray([ids[word] for word in words], np.int32)

  def decode(ids):
    return ' '.join(task.words[int(i)] for i in ids if i < len(task.words))

  return Tokenizer(name, task.vocab_size, task.bos, np.zeros(task.vocab_size, np.int32), encode, decode)


def _sentencepiece(path):
  if not os.path.isfile(path):
    raise DataError(f"{path}: there is no such sentencepiece model (train one, or set data.tokenizer='bytes')")
  try:
    with warnings.catch_warnings():
      # Its SWIG wrapper warns about itself on newer Pythons.
      warnings.simplefilter('ignore', DeprecationWarning)
      import sentencepiece
  except ImportError:
    raise ConfigError(f"data.tokenizer: '{path}' needs the sentencepiece package (pip install pe_jax[spm])") from None
  model = sentencepiece.SentencePieceProcessor()
  try:
    model.LoadFromFile(path)
  except (OSError, RuntimeError) as e:
    raise DataError(f'{path}: not a sentencepiece model, {e} (give the .model file that its training wrote)') from None

  pieces = model.get_piece_size()
  bos = model.bos_id() if model.bos_id() >= 0 else pieces
  byte_length_V = np.zeros(max(pieces, bos + 1), np.int32)
  byte_length_V[:pieces] = [_byte_length(model, i) for i in range(pieces)]

  def encode(text):
    return np.asarray(model.encode(text.decode('utf-8')), np.int32)

  def decode(ids):
    return model.decode([int(i) for i in ids if i < pieces])

  return Tokenizer(path, len(byte_length_V), bos, byte_length_V, encode, decode)


def _byte_length(model, i):
  if model.is_control(i) or model.is_unknown(i) or model.is_unused(i):
    return 0
  if model.is_byte(i):
    return 1
  return len(model.id_to_piece(i).replace('▁', ' ').encode())


def _json(path):
  if not os.path.isfile(path):
    raise DataError(f"{path}: there is no such tokenizer.json (set data.tokenizer, or take 'bytes')")
  try:
    import tokenizers
  except ImportError:
    raise ConfigError(f"data.tokenizer: '{path}' needs the tokenizers package (pip install pe_jax[weights])") from None
  try:
    model = tokenizers.Tokenizer.from_file(path)
  except Exception as e:  # the package raises nothing narrower
    raise DataError(f'{path}: not a tokenizer.json, {e}') from None
  model.no_truncation()
  model.no_padding()
  tokens, added = model.get_vocab(with_added_tokens=True), model.get_added_tokens_decoder()
  size = max(tokens.values(), default=-1) + 1
  with open(path, encoding='utf-8') as file:
    parts = json.load(file)
  # Each character of a byte-level token stands for a byte.
  by_byte = "'ByteLevel'" in str([parts.get('pre_tokenizer'), parts.get('decoder')])
  byte_length_V = np.zeros(size, np.int32)
  for token, i in tokens.items():
    if i in added:
      byte_length_V[i] = 0 if added[i].special else len(added[i].content.encode())
    else:
      byte_length_V[i] = len(token) if by_byte else _piece_bytes(token)

  def encode(text):
    return np.asarray(model.encode(text.decode('utf-8'), add_special_tokens=False).ids, np.int32)

  def decode(ids):
    return model.decode([int(i) for i in ids if i < size], skip_special_tokens=True)

  whole, bare = (model.encode('a', add_special_tokens=wanted).ids for wanted in (True, False))
  bos = whole[0] if whole[1 : len(bare) + 1] == bare and len(whole) > len(bare) else None
  return Tokenizer(path, size, bos, byte_length_V, encode, decode)


def _piece_bytes(piece):
  """Bytes of a sentencepiece piece: <0xE4> is one."""
  is_byte = len(piece) == 6 and piece.startswith('<0x') and piece.endswith('>')
  return 1 if is_byte else len(piece.replace('▁', ' ').encode())
