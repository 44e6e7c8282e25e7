"""The tables that are written hold what the runs hold, exactly, in both formats."""

import csv
import json

import pyarrow.parquet
import written_runs as written

from pe_jax.config import config_hash
from pe_jax.report import results, tidy


def written_tables(folder, out):
  tidy.write(results.scan(folder), out)
  return {name: pyarrow.parquet.read_table(out / f'{name}.parquet').to_pylist() for name in tidy.COLUMNS}


def test_tables_have_the_rows_of_the_runs(tmp_path):
  tree = written.config('alibi', seed=7)
  rows = written.context('alibi', {64: 1.5, 128: 1.75})
  rows += [written.row('nonoverlapping', 'alibi', 128, 1.6, accounting={'predicted': 1.7, 'residual': -0.1})]
  rows += [written.needle('alibi', 128, 0.25), written.attention('alibi', 128, [1.0, 2.0])]
  written.run(tmp_path / 'runs' / 'a', tree, rows)
  found = written_tables(tmp_path / 'runs', tmp_path / 'out')
  (run,) = found['runs']
  assert run['config_hash'] == config_hash(tree)
  assert json.loads(run['config']) == tree
  assert [run[k] for k in ('run', 'encoding', 'seed', 'train_length', 'state', 'step', 'num_train_steps', 'validation_loss')] == [
    'a', 'alibi', 7, 64, 'finished', 1000, 1000, 1.75,
  ]  # fmt: skip
  assert run['tokens_per_second'] == 1200.0  # the median of 1100, 1200, 1300
  result = {(r['measure'], r['length']): r for r in found['results']}
  assert set(result) == {('context', 64), ('context', 128), ('nonoverlapping', 128), ('needle', 128), ('attention', 128)}
  d = result['context', 128]
  assert [d[k] for k in ('run', 'seed', 'nll', 'change', 'change_low', 'change_high', 'shuffled_far', 'targets')] == [
    'a', 7, 1.75, 0.25, 0.25 - 0.02, 0.25 + 0.02, 0.375, written.UNITS * written.TARGETS,
  ]  # fmt: skip
  assert d['accuracy'] is None
  assert [result['nonoverlapping', 128][k] for k in ('predicted', 'residual', 'change')] == [1.7, -0.1, None]
  assert [result['needle', 128][k] for k in ('accuracy', 'chance', 'margin', 'variant')] == [0.25, 0.1, 0.5, 'single']
  assert [(r['start'], r['end'], r['nll']) for r in found['positions'] if r['measure'] == 'nonoverlapping'][6:10] == [
    (48, 56, 1.6), (56, 64, 1.6), (64, 72, 2.1), (72, 80, 2.1),
  ]  # fmt: skip
  assert [(r['depth'], r['distance'], r['accuracy'], r['chance']) for r in found['needle']] == [
    (0.0, 128.0, 0.25, 0.1), (0.5, 64.0, 0.25, 0.1), (1.0, 0.0, 0.25, 0.1),
  ]  # fmt: skip
  assert [(r['layer'], r['head'], r['entropy'], r['slope']) for r in found['attention']] == [(0, 0, 1.0, None), (1, 0, 2.0, None)]
  assert len(found['training']) == 11
  assert found['training'][-1]['validation_loss'] == 1.75


def test_csv_has_the_same_numbers(tmp_path):
  written.sweep(tmp_path / 'runs', ['rope'], seeds=(0,))
  found = written_tables(tmp_path / 'runs', tmp_path / 'out')
  for name, rows in found.items():
    with (tmp_path / 'out' / f'{name}.csv').open(newline='') as file:
      read = list(csv.DictReader(file))
    assert list(read[0] if read else tidy.COLUMNS[name]) == list(tidy.COLUMNS[name])
    for there, here in zip(read, rows, strict=True):
      for column, kind in tidy.COLUMNS[name].items():
        text = there[column]
        assert (here[column] is None and text == '') or text == (here[column] if kind == 'string' else text)
        if kind == 'float64' and here[column] is not None:
          assert float(text) == here[column]


def test_runs_without_results_have_empty_tables_of_the_same_columns(tmp_path):
  written.run(tmp_path / 'runs' / 'a', written.config(), steps=300, done=False)
  found = written_tables(tmp_path / 'runs', tmp_path / 'out')
  assert found['results'] == found['needle'] == []
  table = pyarrow.parquet.read_table(tmp_path / 'out' / 'results.parquet')
  assert table.column_names == list(tidy.COLUMNS['results'])
  assert str(table.schema.field('nll').type) == 'double'


def test_values_of_another_kind_are_empty(tmp_path):
  tree = written.config(seed=0)
  tree['seed'] = 'seven'
  written.run(tmp_path / 'runs' / 'a', tree, [written.row('sliding', 'rope', 64, 2.0, ppl='high', split='\ud800')])
  found = written_tables(tmp_path / 'runs', tmp_path / 'out')
  assert found['runs'][0]['seed'] is None
  assert found['results'][0]['ppl'] is None
  assert found['results'][0]['split'] == '?'


def test_files_are_replaced_whole(tmp_path):
  written.run(tmp_path / 'runs' / 'a', written.config())
  paths = tidy.write(results.scan(tmp_path / 'runs'), tmp_path / 'out')
  tidy.write(results.scan(tmp_path / 'runs'), tmp_path / 'out')
  assert sorted(tmp_path.joinpath('out').iterdir()) == sorted(paths)
