"""Local text: a .txt file is one document, a .jsonl file one document a line under `data.text_key`.

`data.path` is one such file, or a folder that is searched with its subfolders. One pass reads everything once to check
it, hash it and note where each document is; documents are read again from their files when asked for. The text is taken
byte for byte, with no newline translation.
"""

import contextlib
import json
import os

from pe_jax import remote
from pe_jax.data.documents import Documents, fingerprint, role_of, utf8
from pe_jax.errors import ConfigError, DataError

SUFFIXES = ('.txt', '.jsonl')


def documents(data, role):
  """The Documents of a role; 'all' takes every document, and a single file of any kind."""
  with readable(data.path):
    return _documents(data, role)


@contextlib.contextmanager
def readable(path):
  """What the file system refuses is one sentence."""
  try:
    yield
  except OSError as error:
    raise DataError(
      f'{error.filename or path}: cannot be read, {error.strerror or error} (set data.path to text that this user may read)'
    ) from None


def stamp(path):
  """What changes when a file does: its size and the time of its last change."""
  status = os.stat(path)
  return status.st_size, status.st_mtime_ns


def _documents(data, role):
  if role != 'all' and data[f'{role}_split'] != role:
    raise ConfigError(
      f"data.{role}_split: '{data[f'{role}_split']}', and source 'text' has no slices, it deals documents out by a hash (leave '{role}')"
    )
  root, names = files(data.path, role == 'all')
  places, stamps, bytes_, replaced, total = [], {}, 0, 0, 0

  def contents():
    nonlocal bytes_, replaced, total
    for name in names:
      path = root / name
      stamps[path] = stamp(path)
      for offset, size, content, changed in split_file(path, data):
        total += 1
        if role == 'all' or role_of(content) == role:
          places.append((path, offset, size))
          bytes_ += len(content)
          replaced += changed
      yield name, path.read_bytes()

  sha256 = fingerprint(contents())
  if not places:
    raise DataError(
      f'{data.path}: none of its {total} documents falls in {role}, since splits go by a hash of the content, '
      'about 90, 5 and 5 in 100 (give more documents, for example one paragraph a line in a .jsonl file)'
    )

  def read(indices):
    texts = []
    with readable(data.path):
      for path, offset, size in (places[i] for i in indices):
        if stamp(path) != stamps[path]:
          raise DataError(f'{path}: has changed since the run began to read it (start again, and leave the text alone meanwhile)')
        texts.append(parse(path, offset, size, data)[0])
    return texts

  record = {'source': 'text', 'path': str(data.path), 'split': role, 'documents': len(places), 'bytes': bytes_}
  record |= {'files': names, 'sha256': sha256, 'replaced_documents': replaced}
  return Documents(read, len(places), record)


def files(path, any_kind=False):
  """(folder, sorted names in it) of the text that `data.path` means."""
  if not path:
    raise ConfigError("data.path: source 'text' needs one (give a .txt or .jsonl file, or a folder of them)")
  path = remote.local(os.path.expanduser(path), 'data.path')
  wanted = ' or '.join(SUFFIXES)
  if path.is_file():
    if path.suffix not in SUFFIXES and not any_kind:
      raise DataError(f"{path}: its suffix '{path.suffix}' is not {wanted} (rename it to what it holds)")
    return path.parent, [path.name]
  if not path.is_dir():
    raise DataError(f'{path}: there is no such file or folder (set data.path to a {wanted} file or a folder of them)')
  names = sorted(f.relative_to(path).as_posix() for f in path.rglob('*') if f.suffix in SUFFIXES and f.is_file())
  if not names:
    count = sum(f.is_file() for f in path.rglob('*'))
    raise DataError(f'{path}: no {wanted} file among the {count} files there (put the text there, or set data.path)')
  return path, names


def split_file(path, data):
  """Yields (offset, size, content, whether replaced) of the documents of one file."""
  if path.suffix != '.jsonl':
    yield 0, path.stat().st_size, *parse(path, 0, -1, data)
    return
  offset = 0
  with path.open('rb') as f:
    for number, line in enumerate(f, 1):
      if line.strip():
        yield offset, len(line), *parse_line(line, path, data, number, offset)
      offset += len(line)


def parse(path, offset, size, data):
  """(content, whether replaced) of the document at a place that `split_file` gave."""
  with path.open('rb') as f:
    f.seek(offset)
    raw = f.read(size)
  if path.suffix != '.jsonl':
    return utf8(raw, data.unicode_errors, lambda at: f'{path}: byte {at}')
  return parse_line(raw, path, data, f'at byte {offset}', offset)


def parse_line(line, path, data, number, offset):
  line, changed = utf8(line, data.unicode_errors, lambda at: f'{path}:{number}: byte {offset + at}')
  try:
    fields = json.loads(line)
  except (ValueError, RecursionError) as e:
    raise DataError(f'{path}:{number}: not JSON, {e} (write one object a line)') from None
  if not isinstance(fields, dict):
    raise DataError(f'{path}:{number}: a {type(fields).__name__} where an object was wanted (write one object a line)')
  if data.text_key not in fields:
    keys = ', '.join(fields) or 'none'
    raise DataError(f"{path}:{number}: no key '{data.text_key}' (keys there: {keys}; set data.text_key)")
  text = fields[data.text_key]
  if not isinstance(text, str):
    raise DataError(f"{path}:{number}: '{data.text_key}' is a {type(text).__name__} where a string was wanted (set data.text_key)")
  content, surrogate = utf8(text, data.unicode_errors, lambda at: f"{path}:{number}: byte {at} of '{data.text_key}'")
  return content, changed or surrogate
