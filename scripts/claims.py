"""Writes docs/claims.md from docs/data/claims.toml, and refuses while a pointer leads nowhere.

python scripts/claims.py
"""

import pathlib

from pe_jax import cli
from pe_jax.errors import DataError
from pe_jax.report import claims

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
  """Read, check, write."""
  topics = claims.read(ROOT / 'docs' / 'data' / 'claims.toml')
  if faults := claims.faults(ROOT, topics):
    raise DataError('docs/data/claims.toml: ' + '; '.join(faults))
  (ROOT / 'docs' / 'claims.md').write_text(claims.page(ROOT, topics), encoding='utf-8')


if __name__ == '__main__':
  cli.run(main, __doc__)
