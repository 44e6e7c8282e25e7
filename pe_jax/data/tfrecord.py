"""One TFRecord file with random access and without TensorFlow.

A TFRecord is a chain of

    length (uint64), checksum of the length (uint32), data (length bytes), checksum of the data (uint32),

so where record i begins is known only after i headers were read. A shard walks its headers once, at its first read, and
keeps the offsets. Checksums are not verified: a crc32c in Python would take longer than reading the data. A chain that
does not end where the file ends, or has another number of records than the dataset says, is an error.
"""

import struct

import numpy as np

from pe_jax.errors import DataError

HEADER, FOOTER = 12, 4


class TFRecordShard:
  """`read(indices)` gives the records' bytes. `examples` is the number that there should be."""

  def __init__(self, path, examples=None):
    self.path = path
    self._examples = examples
    self._offset = None

  def read(self, indices):
    with _open(self.path) as f:
      if self._offset is None:
        self._offset, self._size = index(f, self.path, self._examples)
      return [self._record(f, int(i)) for i in indices]

  def _record(self, f, i):
    f.seek(self._offset[i])
    return f.read(self._size[i])


def index(f, path, examples=None):
  """(offset, size) of the data of each record of an open file, int64."""
  end = f.seek(0, 2)
  at, offset, size = 0, [], []
  while at < end:
    f.seek(at)
    header = f.read(HEADER)
    (length,) = struct.unpack('<Q', header[:8]) if len(header) == HEADER else (end,)
    if at + HEADER + length + FOOTER > end:
      raise DataError(
        f'{path}: record {len(offset)} at byte {at} goes past the end of the file at byte {end} (copy or prepare this shard again)'
      )
    offset.append(at + HEADER)
    size.append(length)
    at += HEADER + length + FOOTER
  if examples is not None and len(offset) != examples:
    raise DataError(
      f'{path}: ends at byte {end} after {len(offset)} records where the dataset lists {examples} (copy or prepare this shard again)'
    )
  return np.asarray(offset, np.int64), np.asarray(size, np.int64)


def _open(path):
  from etils import epath

  try:
    return epath.Path(path).open('rb')
  except FileNotFoundError:
    raise DataError(f'{path}: this shard is missing (copy or prepare the dataset again)') from None
