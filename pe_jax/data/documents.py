"""Documents: a sequence of texts as UTF-8 bytes, read when asked for, with a record of where they came from.

A document belongs to train, validation or test by a hash of its content, so that two equal documents never end up on
both sides and adding a document moves no other.
"""

import hashlib

from pe_jax.errors import ConfigError, DataError

ROLES = ('train', 'validation', 'test')


class Documents:
  """`len(d)` texts; `d[i]` is bytes, `d.block(i, j)` a list of them read at once.

  `read(indices)` gives the texts of increasing indices. `record` is a JSON-able dict for the run's record.
  """

  def __init__(self, read, count, record):
    self._read = read
    self._count = int(count)
    self.record = record

  def __len__(self):
    return self._count

  def __getitem__(self, i):
    if not -self._count <= i < self._count:
      raise IndexError(f'document {i} of {self._count}')
    return self._read([i % self._count])[0]

  def block(self, start, stop):
    return self._read(range(start, min(stop, self._count)))


def role_of(content):
  """'train' for 90 in 100 contents, 'validation' for 5, 'test' for 5: sha256 of the bytes, modulo 100."""
  share = int.from_bytes(hashlib.sha256(content).digest(), 'big') % 100
  return 'train' if share < 90 else 'validation' if share < 95 else 'test'


def utf8(value, errors, where):
  """(bytes that are UTF-8, whether something was replaced) of text given as bytes or str.

  `where` says, given the offset of the first bad byte, what the user should look at.
  """
  if errors not in ('strict', 'replace'):
    raise ConfigError(f"data.unicode_errors: '{errors}' is unknown (take 'strict' or 'replace')")
  # A str can hold half a surrogate pair, which JSON can write and UTF-8 cannot.
  content = value.encode('utf-8', 'surrogatepass') if isinstance(value, str) else bytes(value)
  try:
    content.decode('utf-8')
  except UnicodeDecodeError as e:
    if errors == 'strict':
      raise DataError(f'{where(e.start)}: not UTF-8, {e.reason} (convert the text, or set data.unicode_errors=replace)') from None
    return content.decode('utf-8', 'replace').encode(), True
  return content, False


def fingerprint(named):
  """sha256 over (name, content) pairs in order; lengths go in, so that nothing can move between a name and its
  content.
  """
  digest = hashlib.sha256()
  for name, content in named:
    for part in (name.encode('utf-8', 'surrogateescape'), content):
      digest.update(len(part).to_bytes(8, 'little'))
      digest.update(part)
  return digest.hexdigest()
