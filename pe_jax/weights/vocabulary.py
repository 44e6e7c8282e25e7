"""The tokenizer of a checkpoint, brought into the run's folder: tokenizer.json, a sentencepiece model, or what a GGUF file has of one.

A GGUF vocabulary becomes a tokenizer.json: byte-level BPE from its merges, or sentencepiece's BPE, whose merges are its pairs in the order
of their scores. How text is cut before merging is a name there (`tokenizer.ggml.pre`), and an unknown name is refused: a text cut otherwise
becomes other tokens, which shows in nothing but a worse loss.

Beside it stands a tokenizer_config.json with what the source says of special tokens and the chat template, which export gives back.
"""

import json
import pathlib
import shutil

from pe_jax.errors import ConfigError, DataError
from pe_jax.weights import pieces
from pe_jax.weights.gguf_file import value
from pe_jax.weights.hf_folder import read_json

FILES = ('tokenizer.json', 'tokenizer.model')
TOLD, TEMPLATE = 'tokenizer_config.json', 'chat_template.jinja'
# What is kept of it: nothing that would change how text is cut, which tokenizer.json says.
TOKENS = ('bos', 'eos', 'unk', 'pad', 'sep', 'cls', 'mask')
KEPT = (
  *(f'{name}_token' for name in TOKENS), 'additional_special_tokens', 'extra_special_tokens', 'chat_template', 'model_max_length',
  'padding_side', 'truncation_side', 'clean_up_tokenization_spaces',
)  # fmt: skip
OF_GGUF = {'bos': 'bos', 'eos': 'eos', 'unk': 'unknown', 'pad': 'padding', 'sep': 'seperator', 'cls': 'cls', 'mask': 'mask'}  # its spelling
LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# {tokenizer.ggml.pre: the pattern of pieces, '' GPT-2's own, 'digits' GPT-2's with every digit alone}
CUTS = {
  'gpt-2': '',
  'olmo': '',
  'smollm': 'digits',
  'llama-bpe': LETTERS.replace('DIGITS', '{1,3}'),
  'smaug-bpe': LETTERS.replace('DIGITS', '{1,3}'),
  'dbrx': LETTERS.replace('DIGITS', '{1,3}'),
  'qwen2': LETTERS.replace('DIGITS', ''),
}
# llama.cpp takes a piece that is a token as it is, whatever its merges make of it, and begins with BOS unless the file says otherwise.
WHOLE_PIECES = ('llama-bpe',)
AS_GPT2 = ('gpt2', 'gptj')  # model types whose vocab.json with merges.txt is cut as GPT-2's
BOS = '<s>'  # of bytes


def of_folder(source, folder, model_type):
  """The path of the tokenizer, copied from a Hugging Face folder. How vocab.json and merges.txt are cut is known of some model types."""
  folder.mkdir(parents=True, exist_ok=True)
  _keep(told(source), folder)
  for name in FILES:
    if (source / name).is_file():
      copy = str(shutil.copyfile(source / name, folder / name))
      return _begun(copy, source) if name == FILES[0] else copy
  vocabulary, merges = source / 'vocab.json', source / 'merges.txt'
  if vocabulary.is_file() and merges.is_file():
    if model_type not in AS_GPT2:
      raise ConfigError(
        f'{source}: vocab.json and merges.txt do not say how a {model_type} cuts text before merging (known of {", ".join(AS_GPT2)}); '
        'put its tokenizer.json there (as AutoTokenizer.from_pretrained(…).save_pretrained(…) writes it), or name one with --tokenizer=PATH'
      )
    models = _library().models
    try:
      model = models.BPE.from_file(str(vocabulary), str(merges))
    except Exception as error:  # the package raises nothing narrower
      raise DataError(f'{vocabulary}: cannot be read: {error}') from error
    return _saved(_byte_level(model, ''), folder)
  raise DataError(
    f'{source}: no tokenizer there ({", ".join(FILES)}, or vocab.json with merges.txt); name one with --tokenizer=PATH, '
    'or --tokenizer=bytes for a model that reads bytes'
  )


def _begun(path, source):
  """The same tokenizer.json, with BOS before a text where `add_bos_token` says so, which counts more than the file itself."""
  given = read_json(source / TOLD) if (source / TOLD).is_file() else {}
  wanted, bos = given.get('add_bos_token'), told(source).get('bos_token')
  if not isinstance(wanted, bool):
    return path
  lib = _library()
  try:
    tokenizer = lib.Tokenizer.from_file(path)
  except Exception as error:  # the package raises nothing narrower
    raise DataError(f'{source / FILES[0]}: not a tokenizer.json, {error}') from error
  whole, bare = (tokenizer.encode('a', add_special_tokens=with_bos).ids for with_bos in (True, False))
  begins = len(whole) > len(bare) and whole[1 : len(bare) + 1] == bare
  if begins == wanted:
    return path
  number = tokenizer.token_to_id(bos) if wanted and isinstance(bos, str) else None
  if wanted and number is None:
    raise ConfigError(f'{source / TOLD}: add_bos_token is true, and bos_token={bos!r} is no token (name a tokenizer with --tokenizer=PATH)')
  special = [(bos, number)] if wanted else []
  tokenizer.post_processor = lib.processors.TemplateProcessing(single=f'{bos} $A' if wanted else '$A', special_tokens=special)
  tokenizer.save(path)
  return path


def of_given(path, folder):
  """The path of a tokenizer that the user names, copied; 'bytes' is itself."""
  if path == 'bytes':
    return path
  path = pathlib.Path(path).expanduser()
  if not path.is_file() or path.suffix not in ('.json', '.model'):
    raise ConfigError(f"--tokenizer: '{path}' is no tokenizer.json and no sentencepiece .model (or take 'bytes')")
  folder.mkdir(parents=True, exist_ok=True)
  _keep(told(path.parent), folder)
  return str(shutil.copyfile(path, folder / f'tokenizer{path.suffix}'))


def told(folder):
  """{key: value} of KEPT that a folder says of its tokenizer, tokens by their text."""
  found = {}
  for name in ('special_tokens_map.json', TOLD):
    given = read_json(folder / name) if (folder / name).is_file() else {}
    found |= {key: _texts(given[key]) for key in KEPT if given.get(key) is not None}
  template = folder / TEMPLATE
  return found | ({'chat_template': template.read_text(encoding='utf-8')} if template.is_file() else {})


def _texts(tokens):
  """Tokens written as objects by their text, whatever else as it is."""
  if isinstance(tokens, list):
    return [_texts(token) for token in tokens]
  return tokens['content'] if isinstance(tokens, dict) and 'content' in tokens else tokens


def _keep(found, folder):
  folder.mkdir(parents=True, exist_ok=True)
  (folder / TOLD).write_text(json.dumps(found, indent=2, ensure_ascii=False) + '\n', encoding='utf-8')


def of_gguf(reader, path, folder):
  """The path of a tokenizer.json made of a GGUF file's vocabulary."""
  kind, tokens = value(reader, 'tokenizer.ggml.model'), value(reader, 'tokenizer.ggml.tokens')
  if kind not in ('gpt2', 'llama') or not tokens:
    raise ConfigError(f'{path}: tokenizer.ggml.model={kind!r} cannot be imported (these can: gpt2, llama); name one with --tokenizer=PATH')
  types = value(reader, 'tokenizer.ggml.token_type', [pieces.NORMAL] * len(tokens))
  try:
    tokenizer = _merged(reader, path, tokens) if kind == 'gpt2' else _scored(reader, tokens, types)
  except ConfigError:
    raise
  except Exception as error:  # the package raises nothing narrower
    raise DataError(f'{path}: its vocabulary cannot be read: {error}') from error
  pieces.added(_library(), tokenizer, tokens, types, kind == 'llama' and value(reader, 'tokenizer.ggml.add_space_prefix', True))
  bos = value(reader, 'tokenizer.ggml.bos_token_id', 1 if kind == 'llama' else None)  # 1 is sentencepiece's
  if value(reader, 'tokenizer.ggml.add_bos_token', kind == 'llama' or value(reader, 'tokenizer.ggml.pre') in WHOLE_PIECES):
    if bos is None or not 0 <= bos < len(tokens):
      raise ConfigError(
        f'{path}: texts begin with BOS, and tokenizer.ggml.bos_token_id={bos} is none of {len(tokens)} tokens; name a tokenizer with '
        '--tokenizer=PATH'
      )
    processors = _library().processors
    tokenizer.post_processor = processors.TemplateProcessing(single=f'{tokens[bos]} $A', special_tokens=[(tokens[bos], bos)])
  found = {token: tokenizer.token_to_id(token) for token in tokens}
  if wrong := [(n, t) for n, t in enumerate(tokens) if found[t] != n]:
    raise DataError(f'{path}: token {wrong[0][0]} of its vocabulary, {wrong[0][1]!r}, comes twice')
  ids = {name: value(reader, f'tokenizer.ggml.{theirs}_token_id') for name, theirs in OF_GGUF.items()}
  template = value(reader, 'tokenizer.chat_template')
  special = {f'{name}_token': tokens[n] for name, n in ids.items() if n is not None and 0 <= n < len(tokens)}
  _keep(special | ({'chat_template': template} if template else {}), folder)
  return _saved(tokenizer, folder)


def of_pieces(path, folder, bos):
  """(the path of a tokenizer.json made of a sentencepiece .model, what begins a text with it): id `bos`, or one more than the pieces."""
  lib = _library()
  tokenizer = pieces.tokenizer(path, lib)
  token = tokenizer.id_to_token(bos)
  if token is None:
    tokenizer.add_special_tokens([BOS])
    token = BOS
    if tokenizer.token_to_id(BOS) != bos:
      raise ConfigError(f'{path}: it has a piece {BOS} that begins no text, and one more of that name cannot be added')
  tokenizer.post_processor = lib.processors.TemplateProcessing(single=f'{token} $A', special_tokens=[(token, bos)])
  return _saved(tokenizer, folder), token


def of_bytes(folder):
  """A tokenizer.json that reads bytes as `data.tokenizer='bytes'` does: ids are the bytes, BOS comes first."""
  lib = _library()
  # Byte-level vocabularies write a byte that is no printable character of Latin-1 as one from 256 on.
  printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
  other = [b for b in range(256) if b not in printable]
  ids = {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(other)}
  tokenizer = _byte_level(lib.models.BPE(ids, []), '')
  tokenizer.add_special_tokens([BOS])
  tokenizer.post_processor = lib.processors.TemplateProcessing(single=f'{BOS} $A', special_tokens=[(BOS, 256)])
  return _saved(tokenizer, folder)


def _library():
  try:
    import tokenizers
  except ImportError:
    raise ConfigError('the tokenizer of a checkpoint needs the tokenizers package (pip install pe_jax[weights])') from None
  return tokenizers


def _merged(reader, path, tokens):
  """Byte-level BPE."""
  cut = value(reader, 'tokenizer.ggml.pre')
  if cut not in CUTS:
    raise ConfigError(f'{path}: tokenizer.ggml.pre={cut!r} is not known (known: {", ".join(CUTS)}); name a tokenizer with --tokenizer=PATH')
  merges = [tuple(pair.split(' ', 1)) for pair in value(reader, 'tokenizer.ggml.merges', [])]
  ids = {t: n for n, t in enumerate(tokens)}
  return _byte_level(_library().models.BPE(ids, merges, ignore_merges=cut in WHOLE_PIECES), CUTS[cut])


def _byte_level(model, pattern):
  lib = _library()
  tokenizer, pre = lib.Tokenizer(model), lib.pre_tokenizers
  whole = pre.ByteLevel(add_prefix_space=False, use_regex=pattern in ('', 'digits'))
  first = {'': [], 'digits': [pre.Digits(individual_digits=True)]}.get(pattern)
  first = [pre.Split(lib.Regex(pattern), 'isolated')] if first is None else first
  tokenizer.pre_tokenizer = pre.Sequence([*first, whole])
  tokenizer.decoder = lib.decoders.ByteLevel()
  return tokenizer


def _scored(reader, tokens, types):
  """Sentencepiece's BPE."""
  lib, prefix = _library(), value(reader, 'tokenizer.ggml.add_space_prefix', True)
  made = lib.Tokenizer(pieces.merging(lib, tokens, value(reader, 'tokenizer.ggml.scores', [0.0] * len(tokens)), types))
  made.normalizer, made.decoder = lib.normalizers.Sequence(pieces.spaces(lib, prefix)), pieces.decoder(lib, prefix)
  return made


def _saved(tokenizer, folder):
  folder.mkdir(parents=True, exist_ok=True)
  tokenizer.save(str(folder / FILES[0]))
  return str(folder / FILES[0])
