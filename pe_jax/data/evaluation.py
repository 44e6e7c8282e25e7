"""Evaluation rows: a fixed list, which scores exactly the same targets at every length.

Documents come in the order of a hash of their content, which no storage or version of a dataset can change, until
`max_targets` is reached; the last is cut there, in content tokens and so independently of the length. A longer window
then only gives the same targets more context.
"""

import hashlib

import numpy as np

from pe_jax.data import packing as packings
from pe_jax.data.blocks import encode_all, long_enough, read_block
from pe_jax.errors import DataError


def evaluation_rows(documents, tokenizer, *, length, max_targets=0, min_bytes=0, packing='windows'):
  """(Rows, info). `info` counts the 'documents', their 'targets', the 'bytes' those stand for and what was 'dropped',
  identifies the documents by 'documents_sha256', and tells of the windows their 'length', their number, and the
  shortest, mean and longest of them.
  """
  chosen, info = evaluation_documents(documents, tokenizer, max_targets=max_targets, min_bytes=min_bytes)
  rows = packings.by_name(packing)(chosen, length, tokenizer.bos)
  pieces = rows.piece_lengths()
  measured = {'min': int(pieces.min()), 'mean': float(pieces.mean()), 'max': int(pieces.max())}
  return rows, info | {'length': length, 'windows': {'count': len(pieces)} | measured}


def evaluation_documents(documents, tokenizer, *, max_targets=0, min_bytes=0):
  """(list of token ids, info): what `evaluation_rows` packs, for callers that want several lengths of it. Reads every
  document once to order them.
  """
  order, dropped = _order(documents, min_bytes)
  first = 0 if tokenizer.bos is not None else 1  # without a BOS nothing predicts the first token
  digest, chosen, targets, bytes_ = hashlib.sha256(), [], 0, 0
  dropped['no_target'] = 0
  for i in order:
    if max_targets and targets >= max_targets:
      break
    text = documents[i]
    (ids,) = encode_all([text], tokenizer)
    if len(ids) <= first:
      dropped['no_target'] += 1
      continue
    if max_targets:
      ids = ids[: first + max_targets - targets]
    digest.update(len(text).to_bytes(8, 'little') + text)
    chosen.append(ids)
    targets += len(ids) - first
    bytes_ += int(tokenizer.byte_length_V[ids[first:]].sum(dtype=np.int64))
  if not targets:
    raise DataError(
      f'evaluation documents: 0 targets in {len(documents)} documents; dropped: {dropped} (lower data.min_bytes, or give other text)'
    )
  info = {'documents': len(chosen), 'targets': targets, 'bytes': bytes_, 'documents_sha256': digest.hexdigest()}
  return chosen, info | {'dropped': dropped}


def _order(documents, min_bytes, block=1024):
  """(indices of the documents that are long enough by hash of content, counts of the others)"""
  keys, dropped = [], {'empty': 0, 'short': 0}
  for start in range(0, len(documents), block):
    for i, text in enumerate(read_block(documents, start, min(start + block, len(documents))), start):
      kept, counts = long_enough([text], min_bytes)
      dropped = {k: n + counts[k] for k, n in dropped.items()}
      keys += [(hashlib.sha256(t).digest(), i) for t in kept]
  return [i for _, i in sorted(keys)], dropped
