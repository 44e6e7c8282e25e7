"""Tables and figures say what the rows say; the demo runs from end to end."""

import pathlib
import subprocess
import sys

import numpy as np

from pe_jax.report import figure, table

ROOT = pathlib.Path(__file__).parent.parent


def row(asked, length, losses, width=8, trained=None):
  buckets = [{'start': width * k, 'end': width * (k + 1), 'nll': x, 'targets': 10 * (k + 1)} for k, x in enumerate(losses)]
  nll = sum(b['nll'] * b['targets'] for b in buckets) / sum(b['targets'] for b in buckets)
  common = {'protocol': 'prefix', 'train_length': 16, 'targets': 100, 'documents': 2, 'device_count': 1, 'device_kind': 'cpu'}
  names = {'encoding': f'{asked}', 'asked_encoding': asked, 'trained_encoding': trained or asked}
  return common | names | {'length': length, 'nll': nll, 'position_buckets': buckets}


def test_the_mean_over_a_range_weighs_every_target_the_same():
  rows = row('rope', 32, [1.0, 2.0, 3.0, 4.0])
  assert np.isclose(table.mean(rows, 0, 16), (10 * 1 + 20 * 2) / 30)
  assert np.isclose(table.mean(rows, 16, 32), (30 * 3 + 40 * 4) / 70)


def test_the_table_has_a_line_for_every_reading_and_a_column_for_every_length():
  text = table.losses([row('rope', 16, [1.0, 2.0]), row('rope', 32, [1.0, 2.0, 3.0, 4.0]), row('yarn', 32, [5.0] * 4, trained='rope')])
  lines = text.splitlines()
  assert lines[0].split() == ['protocol', 'trained', 'with', 'read', 'as', '16', '32']
  assert lines[1].split() == ['prefix', 'rope', 'rope', '1.667', '3.000']
  assert lines[2].split() == ['prefix', 'rope', 'yarn', '5.000']
  assert 'targets of 2 documents: prefix 100;' in lines[3]


def test_the_figure_is_written(tmp_path):
  rows = [row('rope', 32, [1.0, 2.0, 3.0, 4.0]), row('alibi', 32, [1.0] * 4)]
  figure.loss_by_position([('one', rows), ('two', rows)], 16, tmp_path / 'a' / 'b.png', rows[1])
  assert (tmp_path / 'a' / 'b.png').read_bytes().startswith(b'\x89PNG')


def test_the_demo_runs_from_end_to_end(tmp_path):
  command = [sys.executable, ROOT / 'scripts' / 'demo.py', f'--workdir={tmp_path}', '--steps=3', '--max_targets=3000']
  done = subprocess.run(command, capture_output=True, text=True, timeout=600)
  assert done.returncode == 0, done.stderr
  readings = [line.split()[:2] for line in done.stdout.splitlines() if line.startswith(('rope', 'sinusoidal', 't5', 'alibi'))]
  assert ['rope', 'linear(factor=8)'] in readings
  assert ['rope', 'yarn(factor=8)'] in readings
  assert {r[0] for r in readings} == {'sinusoidal', 'rope', 't5(max_distance=32)', 'alibi'}
  assert 'wall time: data' in done.stdout
  assert (tmp_path / 'figures' / 'loss_by_position.png').stat().st_size > 20_000
