"""Tidy tables of runs: one observation a row, one variable a column, as Parquet and as CSV.

    runs        a run: its state, configuration and machine
    results     a row of an evaluation: a run, encoding, length and protocol or probe
    positions   a range of positions of such a row: its mean loss
    training    a logged step
    needle      a depth of a needle's grid
    attention   a head at a length

`run` joins them. A column is empty where the protocol or probe has no such number; losses are nats a target.
"""

import json
import pathlib
import statistics

from pe_jax import workdir
from pe_jax.config import config_hash
from pe_jax.report.rows import number, whole

RUN = {'run': 'string', 'encoding': 'string', 'seed': 'int64', 'train_length': 'int64'}
ROW = RUN | {'read_as': 'string', 'measure': 'string', 'variant': 'string', 'length': 'int64'}
COLUMNS = {
  'runs': RUN
  | dict.fromkeys(('state', 'error'), 'string')
  | dict.fromkeys(('step', 'num_train_steps'), 'int64')
  | dict.fromkeys(('validation_loss', 'tokens_per_second'), 'float64')
  | dict.fromkeys(('params_sha256', 'config_hash', 'backend', 'device_kind', 'jax', 'config', 'warnings'), 'string'),
  'results': ROW
  | dict.fromkeys(('read_at_length_as', 'split', 'targets_sha256', 'documents_sha256', 'positions'), 'string')
  | dict.fromkeys(('step', 'targets', 'documents'), 'int64')
  | dict.fromkeys(('nll', 'ppl', 'bits_per_byte', 'change', 'change_low', 'change_high', 'shuffled_far', 'replaced_far'), 'float64')
  | dict.fromkeys(('predicted', 'residual', 'exact_match', 'exact_match_low', 'exact_match_high', 'chance_exact_match'), 'float64')
  | dict.fromkeys(('token_accuracy', 'accuracy', 'accuracy_low', 'accuracy_high', 'chance', 'margin'), 'float64')
  | dict.fromkeys(('entropy', 'share', 'effective', 'sink', 'recent', 'beyond'), 'float64'),
  'positions': ROW | {'start': 'int64', 'end': 'int64', 'nll': 'float64', 'targets': 'int64'},
  'training': RUN | {'step': 'int64'} | dict.fromkeys(('loss', 'validation_loss', 'learning_rate', 'gradient_norm'), 'float64'),
  'needle': ROW | dict.fromkeys(('depth', 'distance', 'accuracy', 'accuracy_low', 'accuracy_high', 'margin', 'chance'), 'float64'),
  'attention': ROW
  | {'layer': 'int64', 'head': 'int64'}
  | dict.fromkeys(('entropy', 'share', 'effective', 'sink', 'recent', 'beyond', 'slope', 'slope_low', 'slope_high'), 'float64'),
}


def tables(runs):
  """{table: [rows as dicts]} of all Runs."""
  out = {name: [] for name in COLUMNS}
  for run in runs:
    named = {'run': run.name, 'encoding': run.config.get('encoding'), 'train_length': run.config.get('train_length')}
    named['seed'] = run.config.get('seed')
    out['runs'].append(named | _run(run))
    out['training'] += [row | named for row in run.metrics]
    for row in run.rows:
      of_row = named | {'read_as': row['asked_encoding']} | {k: row.get(k) for k in ('measure', 'variant', 'length')}
      out['results'].append(row | of_row | _result(row))
      out['positions'] += [bucket | of_row for bucket in row.get('position_buckets') or ()]
      out['needle'] += [cell | of_row | {'chance': row.get('chance')} for cell in row.get('cells') or () if row['measure'] == 'needle']
      out['attention'] += [head | of_row for head in row.get('heads') or ()]
  return {name: [{c: _typed(row.get(c), kind) for c, kind in COLUMNS[name].items()} for row in rows] for name, rows in out.items()}


def _run(run):
  speeds = [x for x in (number(row.get('tokens_per_second')) for row in run.timing) if x is not None]
  packages = run.env.get('packages')
  return {
    'state': run.state,
    'error': run.error or None,
    'step': run.step,
    'num_train_steps': run.config.get('num_train_steps'),
    'validation_loss': run.done.get('validation_loss'),
    'tokens_per_second': statistics.median(speeds) if speeds else None,
    'params_sha256': run.done.get('params_sha256'),
    'config_hash': config_hash(run.config) if run.config else None,
    'backend': run.env.get('backend'),
    'device_kind': run.env.get('device_kind'),
    'jax': packages.get('jax') if isinstance(packages, dict) else None,
    'config': json.dumps(run.config, sort_keys=True) if run.config else None,
    'warnings': '; '.join(run.warnings) or None,
  }


def _result(row):
  """The nested numbers of a row by the names of their columns."""
  difference, account = row.get('difference') or {}, row.get('accounting')
  last = (row.get('buckets') or [{}])[-1]
  found = {'read_at_length_as': row.get('encoding')}
  found |= {'change': difference.get('mean', last.get('difference'))}
  found |= {f'change_{side}': difference.get(side, last.get(side)) for side in ('low', 'high')}
  found |= {arm: row[arm]['mean'] for arm in ('shuffled_far', 'replaced_far') if arm in row}
  return found | ({key: account.get(key) for key in ('predicted', 'residual')} if isinstance(account, dict) else {})


def _typed(value, kind):
  """The value if it is of the column's kind, else None."""
  if kind == 'string':
    return value.encode('utf-8', 'replace').decode() if isinstance(value, str) else None
  if kind == 'int64':
    return value if whole(value) else None
  return number(value)


def write(runs, folder):
  """Writes every table as FOLDER/<table>.parquet and .csv; the paths. Readers never see half a file."""
  import pyarrow as pa
  import pyarrow.csv
  import pyarrow.parquet

  folder, paths = pathlib.Path(folder), []
  for name, rows in tables(runs).items():
    schema = pa.schema([(column, getattr(pa, kind)()) for column, kind in COLUMNS[name].items()])
    table = pa.Table.from_pylist(rows, schema=schema)
    for suffix, writer in (('parquet', pa.parquet.write_table), ('csv', pa.csv.write_csv)):
      path = folder / f'{name}.{suffix}'
      temporary = path.with_name(f'.{path.name}.tmp')
      with workdir.writing(path):
        writer(table, str(temporary))
        temporary.replace(path)
      paths.append(path)
  return paths
