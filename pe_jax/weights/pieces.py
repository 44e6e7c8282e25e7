"""A sentencepiece .model as a tokenizer.json, which transformers takes as it is: what reads it of itself adds a space, or leaves out BOS.

    BPE        the pair whose piece has the highest score is merged first
    unigram    the cut with the highest sum of scores
Its normalisation is kept: the map of characters, white space that is put together, a space before the text. Texts that hold the name of a
piece for unknown text or a byte, '<unk>', are cut at it by a unigram here where one of its characters is unknown.
"""

import pathlib

from pe_jax.errors import ConfigError

UNIGRAM, BPE = 1, 2  # TrainerSpec.model_type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # SentencePiece.type, and tokenizer.ggml.token_type
SPACE, NEVER = '▁', -1e6
TRIED = (
  'a', 'Two words.', ' before and after ', 'two  spaces\nand\ta tab\n', 'naïve – 漢字 😀', '1234567890 3.14', 'x_y=f(a[0]) # code', '▁',
)  # fmt: skip


def tokenizer(path, lib):
  """The `tokenizers.Tokenizer` of a .model; `lib` is the tokenizers package. Refuses what comes out otherwise."""
  try:
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as stored
  except ImportError:
    raise ConfigError(f'{path}: needs the sentencepiece and protobuf packages (pip install pe_jax[spm])') from None
  proto = stored.ModelProto()
  proto.ParseFromString(pathlib.Path(path).read_bytes())
  pieces, spec = list(proto.pieces), proto.normalizer_spec
  tokens, scores, types = ([getattr(p, name) for p in pieces] for name in ('piece', 'score', 'type'))
  kind = proto.trainer_spec.model_type
  if kind == BPE:
    model = merging(lib, tokens, scores, types)
  elif kind == UNIGRAM:
    unknown = types.index(UNKNOWN) if UNKNOWN in types else None
    # What stands for a byte, or for nothing, is never found in a text as it is written.
    scores = [score if kind in (NORMAL, USER_DEFINED) else NEVER for score, kind in zip(scores, types)]
    model = lib.models.Unigram(list(zip(tokens, scores)), unknown, BYTE in types)
  else:
    raise ConfigError(f'{path}: its pieces are whole words or characters, for which there is no tokenizer.json')
  made, parts = lib.Tokenizer(model), lib.normalizers
  first = [parts.Precompiled(spec.precompiled_charsmap)] if spec.precompiled_charsmap else []
  if spec.remove_extra_whitespaces:
    first += [parts.Replace(lib.Regex(' {2,}'), ' '), parts.Strip()]
  made.normalizer, made.decoder = parts.Sequence([*first, *spaces(lib, spec.add_dummy_prefix)]), decoder(lib, spec.add_dummy_prefix)
  added(lib, made, tokens, types, spec.add_dummy_prefix)
  own = [t for t, k in zip(tokens, types) if k == USER_DEFINED]
  _check(path, made, sentencepiece.SentencePieceProcessor(model_file=str(path)), own)
  return made


def merging(lib, tokens, scores, types):
  """Sentencepiece's BPE; what no piece has becomes bytes where there are pieces for them."""
  ids = {t: n for n, t in enumerate(tokens)}
  pairs = [(piece[:k], piece[k:]) for piece in tokens for k in range(1, len(piece)) if piece[:k] in ids and piece[k:] in ids]
  pairs.sort(key=lambda pair: -scores[ids[pair[0] + pair[1]]])
  unknown = next((t for t, k in zip(tokens, types) if k == UNKNOWN), None)
  return lib.models.BPE(ids, pairs, unk_token=unknown, fuse_unk=True, byte_fallback=BYTE in types)


def spaces(lib, prefix):
  """Normalizers that write spaces as pieces have them, one before the text if it is so."""
  return [*([lib.normalizers.Prepend(SPACE)] if prefix else []), lib.normalizers.Replace(' ', SPACE)]


def decoder(lib, prefix):
  """Their inverse."""
  ends = [lib.decoders.Strip(' ', 1, 0)] if prefix else []
  return lib.decoders.Sequence([lib.decoders.Replace(SPACE, ' '), lib.decoders.ByteFallback(), lib.decoders.Fuse(), *ends])


def added(lib, made, tokens, types, prefix):
  """Tokens that a text is first cut at: those of control, and the user's. `prefix`: whether a text begins with a space."""
  special, own = [[t for t, k in zip(tokens, types) if k == wanted] for wanted in (CONTROL, USER_DEFINED)]
  made.add_special_tokens(special)
  # As they stand, and not as texts of their own, which would begin with a space; those of spaces are found where spaces are written so.
  made.add_tokens([lib.AddedToken(token, normalized=SPACE in token and not prefix) for token in own])


def _check(path, made, model, own):
  """Both must cut alike; names of control tokens are tokens in a tokenizer.json and text for sentencepiece, and are not compared.

  `own`: tokens of the user's.
  """
  control = [model.id_to_piece(n) for n in range(model.get_piece_size()) if model.is_control(n)]
  spaced = [token.replace(SPACE, ' ') for token in own]
  for text in (*TRIED, *(f'a{token} b{token}c' for token in dict.fromkeys([*own, *spaced]))):
    if not any(token in text for token in control) and made.encode(text, add_special_tokens=False).ids != model.encode(text):
      raise ConfigError(f'{path}: a tokenizer.json made of it cuts {text!r} otherwise, so that what it reads would not be what was trained')
