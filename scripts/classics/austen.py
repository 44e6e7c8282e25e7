"""Jane Austen's six novels, 4 MB in 269 chapters, out of the Debian package r-cran-janeaustenr: lines of text as R keeps them.

The texts are in the public domain.
"""

import itertools
import pathlib
import re
import shutil
import subprocess

from classics import r_data
from pe_jax.errors import DataError

PACKAGE = 'r-cran-janeaustenr'
HEADING = re.compile(r'chapter (?:[ivxlc]+|\d+)\.?', re.IGNORECASE)


def documents(folder):
  """[(novel, chapter, text)], the texts of a novel joined are the whole of it. `folder`: where the package may be unpacked."""
  for program in ('apt-get', 'dpkg-deb'):
    if not shutil.which(program):
      raise DataError(f'{program}: not found, and the novels come in a package of Debian (run this where apt-get is, and copy the files)')
  _call(['apt-get', '-q', 'download', PACKAGE], folder)
  (package,) = pathlib.Path(folder).glob(f'{PACKAGE}_*.deb')
  _call(['dpkg-deb', '-x', package.name, 'unpacked'], folder)
  (index,) = pathlib.Path(folder).glob('unpacked/usr/lib/R/site-library/janeaustenr/data/*.rdx')
  found = []
  for novel, lines in sorted(r_data.variables(index).items()):
    found += [(novel, number, text) for number, text in enumerate(chapters(lines), 1)]
  return found


def chapters(lines):
  """A novel's lines as texts, cut before every heading but the first: a title page is part of the first chapter."""
  starts = [n for n, line in enumerate(lines) if HEADING.fullmatch(line.strip())]
  edges = [0, *starts[1:], len(lines)]
  return ['\n'.join(lines[a:b]) + '\n' for a, b in itertools.pairwise(edges)]


def _call(command, folder):
  done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
  if done.returncode:
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    raise DataError(f'{" ".join(command)}: {said[-1] if said else done.returncode} (apt-get update first, where it was never run)')
