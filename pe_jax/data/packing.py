"""Rows: documents laid into rows of `length` positions, each position an input token and its target.

A document x1 .. xc gives, with a BOS, the inputs [BOS, x1 .. x(c-1)] and the targets [x1 .. xc]; without one, the
inputs x1 .. x(c-1) and the targets x2 .. xc. Targets never cross a document. Where a document is cut, by the end of a
row or of a window, it goes on as a new piece with its own document id, positions from 0, and, if there is a BOS, the
BOS in place of its first input. So every content token is a target exactly once (the first excepted, without a BOS),
and an evaluation window looks like a training row. Padding is where the document id is 0, whatever the token there: the
id 0 is an ordinary token.
"""

import dataclasses

import numpy as np

from pe_jax.config import did_you_mean
from pe_jax.errors import ConfigError


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
  """`dropped` counts the documents that gave no target: 'empty' ones, and 'no_target' ones of one token without a
  BOS.
  """

  tokens_BT: np.ndarray  # int32
  targets_BT: np.ndarray  # int32
  weight_BT: np.ndarray  # float32, 1 for a target, 0 for padding
  doc_BT: np.ndarray  # int32, 1, 2, .. within a row, 0 for padding
  pos_BT: np.ndarray  # int32, position within the piece
  source_BT: np.ndarray  # int32, index of the document in the packed list, -1 for padding
  dropped: dict = dataclasses.field(default_factory=dict)

  def __len__(self):
    return len(self.tokens_BT)

  def take(self, indices):
    return Rows(*(a[indices] for a in self.arrays()), self.dropped)

  def as_dict(self):
    return dict(zip(('tokens', 'targets', 'weight', 'doc', 'pos', 'source'), self.arrays()))

  def batches(self, size):
    """Yields Rows of exactly `size` rows; the last is filled up with rows of padding, which weigh nothing."""
    for start in range(0, len(self), size):
      part = self.take(slice(start, start + size))
      short = size - len(part)
      fill = (0, 0, 0, 0, 0, -1)
      padded = [np.pad(a, [(0, short), (0, 0)], constant_values=v) for a, v in zip(part.arrays(), fill)]
      yield Rows(*padded, self.dropped) if short else part

  def piece_lengths(self):
    """Positions of each piece, in order."""
    pos = self.pos_BT[self.doc_BT > 0]
    return np.diff(np.append(np.flatnonzero(pos == 0), len(pos)))

  def arrays(self):
    return self.tokens_BT, self.targets_BT, self.weight_BT, self.doc_BT, self.pos_BT, self.source_BT


def concat(documents, length, bos):
  """Documents one after the other, cut at row ends; only the last row has padding."""
  targets = _targets(documents, length, bos)
  ends = np.cumsum(targets)
  total = int(ends[-1]) if len(ends) else 0
  begin = np.union1d((ends - targets)[targets > 0], np.arange(0, total, length))
  source = np.searchsorted(ends, begin, side='right')
  start = begin - (ends - targets)[source]
  size = np.diff(np.append(begin, total))
  return _lay(documents, length, bos, source, start, size, begin // length, begin % length)


def pad(documents, length, bos):
  """Each document cut every `length` targets, one piece a row."""
  source, start, size = _cut(_targets(documents, length, bos), length)
  return _lay(documents, length, bos, source, start, size, np.arange(len(size)), np.zeros_like(size))


def windows(documents, length, bos):
  """Each document cut every `length` targets: full windows first, a row each; then what remained of all documents, the
  longest first, each into the first row where it fits, never cut again.
  """
  source, start, size = _cut(_targets(documents, length, bos), length)
  full = size == length
  row, column = np.zeros_like(size), np.zeros_like(size)
  row[full] = np.arange(full.sum())
  rest = np.flatnonzero(~full)
  rest = rest[np.argsort(-size[rest], kind='stable')]
  row[rest], column[rest] = first_fit(size[rest], length)
  row[rest] += full.sum()
  order = np.lexsort((column, row))
  return _lay(documents, length, bos, source[order], start[order], size[order], row[order], column[order])


def sliding(documents, length, stride, bos):
  """Windows of `length` targets that start every `stride` targets, a row each. The first of a document scores all of its targets, the
  others their last ones, those that no earlier window has scored; the others weigh nothing.
  """
  targets = _targets(documents, length, bos)
  count = np.where(targets > 0, 1 + np.maximum(-(-(targets - length) // stride), 0), 0)
  source = np.repeat(np.arange(len(targets)), count)
  start = (np.arange(len(source)) - np.repeat(np.cumsum(count) - count, count)) * stride
  rows = pieces(documents, length, bos, source, start, np.minimum(length, targets[source] - start))
  again = (start > 0)[:, None] & (rows.pos_BT < length - stride)
  return dataclasses.replace(rows, weight_BT=np.where(again, np.float32(0), rows.weight_BT))


def pieces(documents, length, bos, source, start, size):
  """The targets start .. start + size of documents `source`, a row each. Sources come in rising order."""
  return _lay(documents, length, bos, source, start, size, np.arange(len(size)), np.zeros_like(size))


def by_name(name):
  """The packing of `data.packing`."""
  known = {'concat': concat, 'pad': pad, 'windows': windows}
  if name not in known:
    raise ConfigError(f"data.packing: '{name}' is unknown{did_you_mean(name, known)} (there are {', '.join(known)})")
  return known[name]


def first_fit(size, length):
  """(row, column) of pieces put, in the given order, into the first row that has room."""
  free = np.full(len(size), length)
  row = np.zeros(len(size), np.int64)
  column = np.zeros(len(size), np.int64)
  rows = 0
  for k, s in enumerate(size):
    r = int(np.argmax(free[: rows + 1] >= s))  # the row after the last is empty, so there always is one
    row[k], column[k] = r, length - free[r]
    free[r] -= s
    rows = max(rows, r + 1)
  return row, column


def _targets(documents, length, bos):
  if length < 1:
    raise ConfigError(f'length: {length} positions cannot hold a target (take at least 1)')
  tokens = np.fromiter(map(len, documents), np.int64, len(documents))
  return tokens if bos is not None else np.maximum(tokens - 1, 0)


def _cut(targets, length):
  """(source, start, size) of the pieces of every document."""
  pieces = -(-targets // length)
  source = np.repeat(np.arange(len(targets)), pieces)
  start = (np.arange(len(source)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * length
  return source, start, np.minimum(length, targets[source] - start)


def _lay(documents, length, bos, source, start, size, row, column):
  """Rows of the pieces `start .. start + size` (in targets) of documents `source`, which come in the order of (row,
  column).
  """
  tokens = np.fromiter(map(len, documents), np.int64, len(documents))
  text = np.concatenate([np.zeros(0, np.int32), *documents]).astype(np.int32, copy=False)
  first = np.cumsum(tokens) - tokens
  begin = np.cumsum(size) - size
  pos = np.arange(size.sum()) - np.repeat(begin, size)
  slot = pos + np.repeat(row * length + column, size)
  target = pos + np.repeat(first[source] + start + (bos is None), size)
  inputs = text[target - 1]
  if bos is not None:
    inputs[begin] = bos
  doc = np.arange(len(row)) - np.searchsorted(row, row) + 1
  shape = (int(row[-1]) + 1 if len(row) else 0, length)

  def fill(values, dtype, padding=0):
    flat = np.full(shape[0] * length, padding, dtype)
    flat[slot] = values
    return flat.reshape(shape)

  return Rows(
    tokens_BT=fill(inputs, np.int32),
    targets_BT=fill(text[target], np.int32),
    weight_BT=fill(1, np.float32),
    doc_BT=fill(np.repeat(doc, size), np.int32),
    pos_BT=fill(pos, np.int32),
    source_BT=fill(np.repeat(source, size), np.int32, -1),
    dropped={'empty': int((tokens == 0).sum()), 'no_target': int((tokens == 1).sum()) if bos is None else 0},
  )
