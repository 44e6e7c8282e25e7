"""Character vectors out of the data of an R package, without R.

R writes an object as a tree in XDR (big-endian) form, "X\\n" first; "R Internals", section Serialization Formats, says how. Of it those
kinds are read that lists and vectors of text and numbers are made of. A package keeps its objects in NAME.rdb, one after the other, each
compressed with zlib after its size, and in NAME.rdx a compressed list of where each is.
"""

import gzip
import io
import pathlib
import struct
import zlib

HAS_ATTRIBUTES, HAS_TAG = 0x200, 0x400
NIL, SYMBOL, PAIRS, CHARACTERS, LOGICALS, INTEGERS, REALS, STRINGS, LIST, REFERENCE = 254, 1, 2, 9, 10, 13, 14, 16, 19, 255


def variables(index):
  """{name: object} of NAME.rdx with NAME.rdb beside it."""
  index = pathlib.Path(index)
  places = loads(gzip.decompress(index.read_bytes()))['variables']
  data = index.with_suffix('.rdb').read_bytes()
  return {name: loads(_decompressed(data[offset : offset + size])) for name, (offset, size) in places.items()}


def _decompressed(block):
  """Of one object: four bytes of its size, then zlib data."""
  content = zlib.decompress(block[4:])
  if len(content) != struct.unpack('>i', block[:4])[0]:
    raise ValueError(f'an object has {len(content)} bytes and should have {struct.unpack(">i", block[:4])[0]}')
  return content


def loads(content):
  """An object: text as str (None: NA), vectors as lists, lists as dicts where all have names."""
  file = io.BytesIO(content)
  if file.read(2) != b'X\n':
    raise ValueError('not an R object in XDR form')
  version = _integers(file, 3)[0]
  if version == 3:
    file.read(_integers(file, 1)[0])  # the name of the native encoding
  return _item(file, [])


def _integers(file, count):
  return struct.unpack(f'>{count}i', file.read(4 * count))


def _item(file, seen):
  (flags,) = _integers(file, 1)
  kind = flags & 0xFF
  if kind == NIL:
    return None
  if kind == REFERENCE:
    return seen[(flags >> 8) - 1]
  if kind == SYMBOL:
    seen.append(_item(file, seen))
    return seen[-1]
  if kind == PAIRS:
    return _pairs(file, flags, seen)
  (count,) = _integers(file, 1)
  if kind == CHARACTERS:
    return None if count < 0 else file.read(count).decode('utf-8')
  if kind in (STRINGS, LIST):
    values = [_item(file, seen) for _ in range(count)]
  elif kind in (LOGICALS, INTEGERS):
    values = list(_integers(file, count))
  elif kind == REALS:
    values = [int(x) if x.is_integer() else x for x in struct.unpack(f'>{count}d', file.read(8 * count))]
  else:
    raise ValueError(f'an R object of kind {kind}, which is not read here')
  names = (_item(file, seen) or {}).get('names') if flags & HAS_ATTRIBUTES else None
  return dict(zip(names, values, strict=True)) if kind == LIST and names else values


def _pairs(file, flags, seen):
  """{tag: value} of a pairlist."""
  found = {}
  while flags & 0xFF == PAIRS:
    if flags & HAS_ATTRIBUTES:
      _item(file, seen)
    tag = _item(file, seen) if flags & HAS_TAG else None
    found[tag] = _item(file, seen)
    (flags,) = _integers(file, 1)
  return found
