"""From a block of documents to token ids: what training and evaluation do alike."""

from pe_jax.errors import DataError


def read_block(documents, start, stop):
  """A list of bytes; at once where the documents can do that."""
  if hasattr(documents, 'block'):
    return documents.block(start, stop)
  return [documents[i] for i in range(start, stop)]


def long_enough(texts, min_bytes):
  """(texts that are neither empty nor shorter than min_bytes, counts of the others)"""
  kept = [t for t in texts if t and len(t) >= min_bytes]
  empty = sum(not t for t in texts)
  return kept, {'empty': empty, 'short': len(texts) - len(kept) - empty}


def encode_all(texts, tokenizer):
  """Token ids of each text, all of them in the vocabulary."""
  encoded = [tokenizer.encode(t) for t in texts]
  for ids in encoded:
    if len(ids) and not (ids.min() >= 0 and ids.max() < tokenizer.vocab_size):
      wrong = int(ids[(ids < 0) | (ids >= tokenizer.vocab_size)][0])
      raise DataError(
        f'{tokenizer.name}: token {wrong} is outside its vocabulary of {tokenizer.vocab_size} (give the model file it was made with)'
      )
  return encoded
