"""Runs are found by looking, at any depth and in any state; of rows the newest counts; what is no row is left out and told."""

import fcntl
import json
import os
import platform

import pytest
import written_runs as written

from pe_jax import workdir
from pe_jax.errors import DataError
from pe_jax.report import commands, results, rows


def states(folder):
  return {run.name: run.state for run in results.scan(folder)}


def test_every_run_below_the_folder_is_found_with_its_state(tmp_path):
  tree = written.config()
  written.run(tmp_path / 'deep' / 'er' / 'finished', tree)
  written.run(
    tmp_path / 'stopped', tree, steps=300, done=False, log='runs/a 200/1000 steps\nsaved at step 300: run the same command again\n'
  )
  written.run(tmp_path / 'failed', tree, steps=300, done=False, log='runs/a 200/1000 steps\nERROR: loss: is nan at step 300 (lower it)\n')
  written.run(tmp_path / 'crashed', tree, steps=300, done=False, log='Traceback (most recent call last):\n  File\nValueError: no\n')
  again = written.run(tmp_path / 'begun again', tree, steps=300, done=False, log='Traceback (most recent call last):\nValueError: no\n')
  with (again / 'log.txt').open('a') as log:
    log.write('runs/a 310/1000 steps loss 2.0\n')
  swept = written.run(tmp_path / 'swept', tree, steps=300, done=False)
  (swept / 'FAILED').write_text(json.dumps({'code': -9, 'reason': 'killed: out of memory'}))
  never = tmp_path / 'never'
  never.mkdir()
  (never / 'log.txt').write_text("ERROR: encoding: 'roep' is unknown\n")
  broken = written.run(tmp_path / 'broken', tree)
  (broken / 'config.json').write_text('{"encoding": ')
  (tmp_path / 'other').mkdir()
  (tmp_path / 'other' / 'config.json').write_text('{"model_type": "llama"}')
  assert states(tmp_path) == {
    'deep/er/finished': 'finished', 'stopped': 'stopped', 'failed': 'failed', 'crashed': 'failed', 'begun again': 'stopped',
    'swept': 'failed', 'never': 'failed', 'broken': 'unreadable',
  }  # fmt: skip
  told = {run.name: run.error for run in results.scan(tmp_path)}
  assert told['failed'] == 'ERROR: loss: is nan at step 300 (lower it)'
  assert told['crashed'] == 'ValueError: no'
  assert told['swept'] == 'killed: out of memory'
  assert 'config.json: cannot be read' in told['broken']


def test_a_run_is_running_while_its_lock_is_held_and_no_longer(tmp_path):
  path = written.run(tmp_path / 'a', written.config(), steps=300, done=False)
  with (path / 'LOCK').open('w') as lock:
    lock.write(f'process {os.getpid()} on {platform.node()}\n')
    lock.flush()
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert states(tmp_path) == {'a': 'running'}
  assert states(tmp_path) == {'a': 'stopped'}
  (path / 'LOCK').write_text('process 1 on another-machine\n')
  assert states(tmp_path) == {'a': 'running'}  # it has just written
  for log in path.glob('*.jsonl'):
    os.utime(log, (1, 1))
  assert states(tmp_path) == {'a': 'stopped'}


def test_looking_changes_nothing(tmp_path):
  written.sweep(tmp_path, ['rope'])
  before = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in tmp_path.rglob('*') if p.is_file()}
  results.scan(tmp_path)
  assert {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in tmp_path.rglob('*') if p.is_file()} == before


def test_the_newest_row_of_the_same_key_counts_and_that_is_said(tmp_path):
  first = [written.row('sliding', 'rope', n, 2.0) for n in (64, 128)]
  second = [written.row('sliding', 'rope', 128, 3.0), written.row('sliding', 'yarn', 128, 4.0, trained='rope')]
  written.run(tmp_path / 'a', written.config(), first + second)
  (run,) = results.scan(tmp_path)
  assert [(r['asked_encoding'], r['length'], r['nll']) for r in run.of('sliding')] == [
    ('rope', 64, 2.0),
    ('rope', 128, 3.0),
    ('yarn', 128, 4.0),
  ]
  assert run.replaced == 1
  assert '1 row measured again: the newest of the same key counts' in run.warnings


def test_rows_of_several_checkpoints_are_told(tmp_path):
  written.run(tmp_path / 'a', written.config(), [written.row('sliding', 'rope', n, 2.0, step=n) for n in (64, 128)])
  (run,) = results.scan(tmp_path)
  assert 'evaluated at steps 64, 128: its rows speak of different parameters' in run.warnings


GOOD = written.row('context', 'rope', 128, 2.0)
BAD = {
  'a length in words': GOOD | {'length': '<script>'},
  'no length': {k: v for k, v in GOOD.items() if k != 'length'},
  'no encoding': GOOD | {'asked_encoding': None},
  'a loss that is none': GOOD | {'nll': 'low'},
  'a truth for a loss': GOOD | {'nll': True},
  'a bucket without an end': GOOD | {'position_buckets': [{'start': 0, 'nll': 1.0, 'targets': 1}]},
  'a bucket without targets': GOOD | {'position_buckets': [{'start': 0, 'end': 8, 'nll': 1.0, 'targets': 0}]},
  'buckets that are a word': GOOD | {'position_buckets': 'many'},
  'a difference in words': GOOD | {'difference': {'mean': 'small'}},
  'units of unequal lengths': GOOD | {'by_unit': {'unit': 'document', 'nll': [1.0], 'targets': [1, 2]}},
  'a split that is a list': GOOD | {'split': ['test']},
}


@pytest.mark.parametrize('name', BAD)
def test_a_row_of_another_form_is_not_sound(name):
  assert rows.sound(GOOD)
  assert not rows.sound(BAD[name])


def test_lines_that_are_no_rows_are_left_out_and_counted_but_a_torn_last_line_is_not(tmp_path):
  path = written.run(tmp_path / 'a', written.config(), [GOOD])
  with (path / 'eval' / 'context.jsonl').open('a') as file:
    file.write(
      '{"protocol": \n[1, 2]\n' + json.dumps(BAD['no length']) + '\n' + '{"nll": NaN}\n' + '[' * 100_000 + '\n' + '{"protocol": "con'
    )
  (run,) = results.scan(tmp_path)
  assert len(run.rows) == 1
  assert 'eval/context.jsonl: 5 lines could not be read as a row and were left out' in run.warnings


def test_numbers_that_are_none_do_not_pass():
  assert rows.number(1) == 1.0
  for x in (True, None, '1', float('nan'), float('inf'), 10**400, [1]):
    assert rows.number(x) is None


def test_arguments_of_labelled_evaluations_are_kept(tmp_path):
  path = written.run(tmp_path / 'a', written.config(), [GOOD | {'label': 'sweep-0'}])
  (path / 'eval' / 'sweep-0.done').write_text(json.dumps({'arguments': ['--lengths=64,128', '--protocols=all']}))
  (run,) = results.scan(tmp_path)
  assert run.evaluations == {'sweep-0': ['--lengths=64,128', '--protocols=all']}


def test_a_folder_that_is_not_there_is_refused(tmp_path):
  with pytest.raises(DataError, match='there is no such folder'):
    results.scan(tmp_path / 'nosuch')


def test_a_name_that_is_no_text_can_be_shown(tmp_path):
  written.run(tmp_path / os.fsdecode(b'caf\xe9'), written.config())
  (run,) = results.scan(tmp_path)
  assert run.name == 'caf\ufffd'


def test_the_signature_changes_when_a_run_writes(tmp_path):
  path = written.run(tmp_path / 'a', written.config())
  before = results.signature(tmp_path)
  assert results.signature(tmp_path) == before
  written.jsonl(path / 'eval' / 'context.jsonl', [GOOD])
  assert results.signature(tmp_path) != before


def test_the_signature_changes_when_a_run_is_gone_without_a_word(tmp_path):
  path = written.run(tmp_path / 'a', written.config(), done=False)
  with workdir.locked(path):
    before = results.signature(tmp_path)
    assert results.signature(tmp_path) == before
    times = (path / 'LOCK').stat()
  assert (path / 'LOCK').stat().st_mtime_ns == times.st_mtime_ns
  assert results.signature(tmp_path) != before


def test_the_command_that_measures_again_has_the_strides_of_the_rows(tmp_path):
  rows = [written.row('sliding', 'rope', n, 2.0, stride=stride) for n, stride in ((64, 16), (128, 32), (256, 1), (512, 1))]
  rows += [written.row('context', 'rope', 64, 2.0, span=16)]
  written.run(tmp_path / 'a', written.config(), rows)
  (run,) = results.scan(tmp_path)
  said = [line.partition(' --lengths=')[2] for line in commands.evaluate(run)]
  assert said == [
    '64 --protocols=context --span=16',
    '64,128 --protocols=sliding --max_targets=1200',
    '256,512 --protocols=sliding --max_targets=1200 --stride=1',
  ]


def test_the_commands_that_measure_again_name_other_tasks_seeds_and_floors(tmp_path):
  config = written.config(**{'data.source': 'task', 'data.name': 'flip_flop'})
  rows = [written.row('task', 'rope', n, 2.0, task=task, samples=9) for n in (8, 16) for task in ('flip_flop', 'flip_flop(ignore=0.98)')]
  probe = {key: value for key, value in written.row('leak', 'rope', 64, 2.0, probe='leak').items() if key != 'protocol'}
  rows += [probe | {'probe_seed': 7, 'floor': 1.5}, probe | {'length': 128, 'probe_seed': 0, 'floor': None}]
  written.run(tmp_path / 'a', config, rows)
  (run,) = results.scan(tmp_path)
  said = [line.partition(' --lengths=')[2] for line in commands.evaluate(run)]
  assert sorted(said) == [
    '128 --probes=leak',
    '64 --probes=leak --seed=7 --options=floor=1.5',
    '8,16 --protocols=task --samples=9',
    "8,16 --protocols=task --samples=9 '--task=flip_flop(ignore=0.98)'",
  ]
