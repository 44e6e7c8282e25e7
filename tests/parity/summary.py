"""How far pe_jax is from public implementations, as a table.

    python tests/parity/summary.py

Relative differences, the worst of all settings: of frequencies as the peer computes them (float32), of frequencies from the same lines of
the peer in float64 (stored to eleven digits), and of attention factors. Of witnesses (seeded inputs through a peer's module): the worst
difference of a value over the largest value.

Models: the worst difference of a logit over the largest, of a text alone, packed beside another, behind padding and through a cache; under
rope types the worst of all four.
"""

import pathlib
import sys
import tempfile

import numpy as np
import ours

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tiny_imports
import tiny_runs as runs
import tiny_weights as made

PROPERTIES = ('plain', 'packing', 'padding', 'cache')
KINDS = tuple(dict.fromkeys(one['kind'] for one in made.ropes().values()))
COLUMNS = ('peer', 'function', 'settings', 'frequency', 'in float64', 'attention factor')


def main():
  print('peers:', ', '.join(f'{name} {version}' for name, version in ours.PEERS['versions'].items()))
  print('worst relative differences; frequency: as the peer computes it, in float32; in float64: from the same lines of the peer')
  print_table([COLUMNS, *map_rows()])
  print()
  print_table([('peer', 'function', 'settings', 'worst difference'), *alibi_rows(), *t5_rows()])
  print()
  print_table([('encoding', 'peer', 'cases', 'worst difference'), *witness_rows()])
  print()
  print('models:', ', '.join(f'{name} {version}' for name, version in made.read()['versions'].items()))
  with runs.quick_compiles():
    print_table([('family', 'models', *PROPERTIES, *KINDS), *family_rows()])


def map_rows():
  """One row a rope type of Hugging Face."""
  table = []
  for rope_type in dict.fromkeys(row['map'] for row in ours.PEERS['maps']):
    rows = ours.rows(rope_type)
    pairs = [(ours.mapped(rope_type, row['settings']), row) for row in rows]
    worst = [max(ours.relative(mine[0], row[key]) for mine, row in pairs) for key in ('frequency', 'frequency_in_double')]
    factors = [ours.relative(mine[1], row['attention_factor']) for mine, row in pairs]
    table.append(('transformers', rope_type, len(rows), *map(show, worst), show(max(factors))))
  return table


def alibi_rows():
  """One row a peer."""
  for peer in ours.PEERS['alibi']:
    pairs = ours.slopes(peer)
    yield 'transformers', f'{peer} ALiBi slopes', len(pairs), show(max(ours.relative(*pair) for pair in pairs))


def t5_rows():
  """One row a peer; the difference is a count of distances."""
  for peer in dict.fromkeys(row['peer'] for row in ours.PEERS['t5']):
    rows = [row for row in ours.PEERS['t5'] if row['peer'] == peer]
    different = sum(int(np.sum(np.not_equal(*ours.buckets(row)))) for row in rows)
    name = 'transformers' if peer == 't5' else peer
    yield name, 'T5 buckets', len(rows), f'{different} of {len(rows) * (ours.LONGEST + 1)} distances'


def witness_rows():
  """One row an encoding."""
  for name, (peer, _) in ours.WITNESSES.items():
    pairs = [map(np.asarray, pair) for pair in ours.witness(name)]
    yield name, peer, len(pairs), show(max(float(np.max(np.abs(a - b)) / np.max(np.abs(b))) for a, b in pairs))


def family_rows():
  """One row a family: the worst of its models, then under each rope type, of which a dash says that transformers has none."""
  programs, types = {}, [one['config']['model_type'] for one in made.stored().values()]
  for family in dict.fromkeys(types):
    read, found = {}, []
    for name in (name for name, one in made.stored().items() if one['config']['model_type'] == family):
      with tempfile.TemporaryDirectory() as folder:
        read[name] = tiny_imports.imported(made.folder(folder, name))
      found.append(all_four(read[name], name, programs))
    cells = [show(max(one[what] for one in found)) for what in PROPERTIES]
    under = {one['kind']: name for name, one in made.ropes().items() if one['family'] == family}
    for kind in KINDS:
      one = all_four(tiny_imports.of_rope(under[kind], read[family]), under[kind], programs) if kind in under else {}
      cells.append(show(max(one.values())) if one else '-')
    yield family, types.count(family), *cells


def all_four(read, name, programs):
  """{property: worst difference} of a model."""
  return {**tiny_imports.differences(read, name, programs), 'cache': tiny_imports.of_cache(read, name, programs)}


def show(number):
  """Two digits; an exact 0 as 0."""
  return f'{number:.1e}' if number else '0'


def print_table(rows):
  """Columns as wide as their widest entry."""
  rows = [[str(cell) for cell in row] for row in rows]
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  for row in rows:
    print('  '.join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


if __name__ == '__main__':
  main()
