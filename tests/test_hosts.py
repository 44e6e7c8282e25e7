"""Two processes of two devices are one process of four: same losses, one log, saved by both, ended together."""

import functools
import json
import pathlib
import re
import signal
import socket
import tempfile
import time

import jax
import numpy as np
import pytest
import tiny_runs as runs

from pe_jax import hosts, join, metrics
from pe_jax.errors import ConfigError

pytestmark = pytest.mark.xdist_group('hosts')  # they share what is computed once

# A process that writes no log is stopped at the rows that it would have written.
OF_THE_OTHER = """
def silent(log, row):
  stop(f"{'validation' if 'validation_loss' in row else 'step'} {row['step']}")

if 'STOP_AT' in os.environ:
  metrics.NoLog.metrics = silent
"""
CHANGES = ('--config.model.dropout=0.1', '--config.optim.learning_rate=0.003')


@functools.cache
def home():
  """A folder for this file, with the config file of the pairs."""
  folder = pathlib.Path(tempfile.mkdtemp(dir=runs.home()))
  (folder / 'pair.py').write_text((runs.home() / 'tiny.py').read_text() + OF_THE_OTHER)
  return folder


def training(workdir, *more):
  """The arguments of train.py."""
  return ['train.py', f'--config={home() / "pair.py"}:learned', f'--workdir={workdir}', *CHANGES, *more]


def pair(arguments, first=(), second=(), stop=None, timeout=200, **environment):
  """The processes of a pair, started; `first` and `second` are arguments that only one has, `stop` is where the second one is stopped."""
  with socket.create_server(('127.0.0.1', 0)) as free:
    port = free.getsockname()[1]
  meet = [f'--coordinator=127.0.0.1:{port}', '--process_count=2', f'--timeout={timeout}']
  stops = ({}, {'STOP_AT': stop} if stop else {})
  return [
    runs.start(*arguments, *meet, f'--process_index={index}', *own, devices=2, **stops[index], **environment)
    for index, own in enumerate((first, second))
  ]


def finish(processes):
  """[(exit code, stdout, stderr)] of a pair, without what gloo says on stdout of its connections."""
  try:
    return [(code, re.sub(r'^\[Gloo\].*\n', '', out, flags=re.M), err) for code, out, err in map(patient, processes)]
  finally:
    for process in processes:
      process.kill()


def patient(process):
  """Two processes that compile take minutes on a machine that others use."""
  return runs.finish(process, timeout=400)


@functools.cache
def trained():
  """The workdir of an uninterrupted pair; that only process 0 spoke and wrote is seen here."""
  folder = home() / 'pair'
  (code, out, err), other = finish(pair(training(folder)))
  assert (code, out) == (0, ''), err
  assert other == (0, '', '')
  return folder


@functools.cache
def worked():
  """What the two processes of hosts_worker.py print."""
  said = finish(pair(['tests/hosts_worker.py', f'--folder={home() / "worker"}']))
  assert [code for code, _, _ in said] == [0, 0], said
  return [json.loads(out) for _, out, _ in said]


def both(key):
  """What both processes found alike."""
  a, b = (one[key] for one in worked())
  assert a == b
  return a


def final(folder):
  """What DONE says, and the log."""
  return json.loads((folder / 'DONE').read_text()), (folder / 'metrics.jsonl').read_bytes()


def test_two_processes_of_two_devices_train_as_one_of_four():
  folder = home() / 'one'
  code, _, err = patient(runs.start(*training(folder), devices=4))
  assert code == 0, err
  two, one = metrics.read(trained() / 'metrics.jsonl'), metrics.read(folder / 'metrics.jsonl')
  assert [(r['step'], sorted(r)) for r in two] == [(r['step'], sorted(r)) for r in one]
  assert len(two) == 44
  for name in ('loss', 'validation_loss'):
    a, b = ([r[name] for r in rows if name in r] for rows in (two, one))
    np.testing.assert_allclose(a, b, rtol=1e-6, err_msg=name)
  assert [r.get('targets', r.get('validation_targets')) for r in two] == [r.get('targets', r.get('validation_targets')) for r in one]
  environment = json.loads((trained() / 'env.json').read_text())
  assert (environment['process_count'], environment['device_count']) == (2, 4)
  assert (trained() / 'LOCK').read_text().count('process') == 1


def test_a_signal_to_one_saves_on_both_and_a_killed_one_ends_the_other_and_the_next_start_goes_on():
  folder = home() / 'cut'
  said = finish(pair(training(folder), stop='SIGTERM step 12'))
  # Both have saved and said so by then; on a busy machine jax can abort the second one in its exit, once process 0 has left.
  assert said[0][0] == 75, said
  assert said[1][0] in (75, -signal.SIGABRT), said
  saved = [re.search(r'stopped by SIGTERM and saved at step (\d+) ', err)[1] for _, _, err in said]
  assert saved[0] == saved[1]
  assert int(saved[0]) in (13, 14, 15)  # a row comes a step late, and so does the answer of the other
  assert max(int(p.name) for p in (folder / 'checkpoints').iterdir()) == int(saved[0])

  start = time.monotonic()
  (code, _, err), (other, _, _) = finish(pair(training(folder), stop='SIGKILL step 27', timeout=30))
  assert other == -signal.SIGKILL
  assert time.monotonic() - start < 300
  assert code in (75, 1), err  # 1 when jax's own service notices first, which leaves no time for a word
  if code == 75:
    assert re.search(r'^ERROR: .*/cut: process 0 of 2 ends, for another one is gone: .*goes on from the newest checkpoint\)$', err, re.M), (
      err
    )
  assert not (folder / 'DONE').exists()

  said = finish(pair(training(folder)))
  assert [code for code, _, _ in said] == [0, 0], said
  assert re.search('going on from step (20|25)$', said[0][2], re.M)  # the save of 25 may have been on its way
  assert said[1][2] == ''
  assert final(folder) == final(trained())


def test_a_silent_process_ends_the_other_within_the_timeout():
  first, second = pair(training(home() / 'silent'), stop='SIGSTOP step 6', timeout=10)
  try:
    start = time.monotonic()
    code, _, err = patient(first)
    assert code in (75, 1, -signal.SIGABRT), err
    assert time.monotonic() - start < 300
  finally:
    second.kill()
    runs.finish(second)


def test_two_processes_evaluate_as_one_does_and_one_of_them_writes():
  arguments = ['--lengths=16', '--protocols=nonoverlapping,prefix', '--probes=permutation,leak']
  said = finish(pair(['eval.py', f'--workdir={trained()}', *arguments]))
  assert [code for code, _, _ in said] == [0, 0], said
  assert (said[1][1], said[1][2]) == ('', '')
  assert 'learned' in said[0][1]
  two = {p.name: metrics.read(p) for p in (trained() / 'eval').iterdir()}
  code, out, err = patient(runs.start('eval.py', f'--workdir={trained()}', *arguments, devices=4))
  assert code == 0, err
  for name, rows in two.items():
    again = metrics.read(trained() / 'eval' / name)
    assert len(again) == 2 * len(rows)
    for a, b in zip(rows, again[len(rows) :], strict=True):
      assert a.keys() == b.keys()
      if 'nll' in a:
        assert a.get('targets') == b.get('targets')
        assert a['nll'] == pytest.approx(b['nll'], rel=1e-6)
  assert set(two) == {'nonoverlapping.jsonl', 'prefix.jsonl', 'permutation.jsonl', 'leak.jsonl'}
  assert out.splitlines()[:3] == said[0][1].splitlines()[:3]


def test_whoever_is_missing_or_differs_is_told_in_a_line_within_the_timeout():
  with socket.create_server(('127.0.0.1', 0)) as free:
    nobody = f'127.0.0.1:{free.getsockname()[1]}'
  alone = [f'--coordinator={nobody}', '--process_count=2', '--timeout=5']
  start = time.monotonic()
  waiting = runs.start(*training(home() / 'alone'), *alone, '--process_index=0', devices=2)
  differing = pair(training(home() / 'differs'), second=['--config.seed=7'])
  lost = runs.start(*training(home() / 'alone'), '--coordinator=127.0.0.1:9', '--process_count=2', '--timeout=2', '--process_index=1')
  code, _, err = runs.finish(lost)
  assert (code, err.count('\n')) == (2, 1), err
  assert err.startswith('ERROR: --coordinator: nobody answers at 127.0.0.1:9 within 2 s'), err
  code, _, err = runs.finish(waiting)
  assert code == 2, err
  assert re.search(
    r'^ERROR: --process_count: 2 processes were to meet at 127.0.0.1:\d+, and not all came within 5 s \(start one', err, re.M
  ), err
  for code, out, err in finish(differing):
    assert (code, out) == (2, ''), err
    assert 'ERROR: process_index: 1 differs from 0 (give all the same command' in err
    assert '  - config.seed: 0\n  + config.seed: 7' in err
  assert time.monotonic() - start < 300
  assert not (home() / 'alone').exists()
  assert not (home() / 'differs').exists()


def test_a_short_last_batch_is_shared_unevenly_and_waits_for_nobody():
  """Of 8 rows a batch each process has 4: 1 v 0, 4 v 1, 4 v 3 real rows and so on."""
  found = both('evaluations')
  assert [weight for _, weight in found['together']] == [weight for _, weight in found['alone']]
  np.testing.assert_allclose([nll for nll, _ in found['together']], [nll for nll, _ in found['alone']], rtol=1e-6)
  from hosts_worker import by_position

  with runs.quick_compiles():
    here = by_position()
  np.testing.assert_array_equal(both('by_position')[1], here[1])
  np.testing.assert_allclose(both('by_position')[0], here[0], rtol=1e-5)


def test_rows_may_be_spread_in_any_way_over_two_processes():
  found = both('training')
  for name, one in found.items():
    np.testing.assert_allclose(one['losses'], found['jit']['losses'], rtol=1e-5, err_msg=name)
    np.testing.assert_allclose(one['validation'], found['jit']['validation'], rtol=1e-5, err_msg=name)
    assert one['restored'] == one['digest'], name
    assert one['targets'] == 3
  assert len(found['jit']['losses']) == 3


def test_an_error_a_difference_and_a_signal_of_one_process_are_those_of_both():
  first, second = (one['agreements'] for one in worked())
  assert first['gathered'] == second['gathered'] == [{'me': 'ä'}, {'me': 'ää'}]
  assert first['one'] == [3, 'process 1: text of 1 is torn']
  assert second['one'] == [3, 'text of 1 is torn']
  assert (first['both'], second['both']) == ([3, 'text of 0 is torn'], [3, 'text of 1 is torn'])
  assert first['none'] == second['none'] == 'went on'
  assert first['differ'] == second['differ']
  assert first['differ'][1].endswith('(give all the same):\n  - optim.rate: 0.1\n  + optim.rate: 0.2')
  # Known at the step after it came, at the same one in both.
  assert first['stop'] == second['stop'] == [None, None, None, 'SIGTERM', 'SIGTERM', 'SIGTERM']


@pytest.mark.parametrize(
  ('given', 'says'),
  [
    (('10.0.0.2:8476', '', '0'), '--process_count: missing'),
    (('10.0.0.2:8476', '2', ''), '--process_index: missing'),
    (('', '2', '0'), "--coordinator: '' is not HOST:PORT"),
    (('10.0.0.2', '2', '0'), "--coordinator: '10.0.0.2' is not HOST:PORT"),
    (('10.0.0.2:99999', '2', '0'), 'is not HOST:PORT'),
    (('10.0.0.2:8476', 'two', '0'), "--process_count: 'two' is not a whole number"),
    (('10.0.0.2:8476', '2', '2'), r'--process_index: 2 is not one of 2 processes \(0 to 1\)'),
    (('10.0.0.2:8476', '0', '0'), '--process_index: 0 is not one of 0 processes'),
  ],
)
def test_what_is_asked_for_must_be_complete(given, says):
  with pytest.raises(ConfigError, match=says):
    join.join(*given, timeout=1)


def test_process_0_needs_its_port_and_nothing_asked_for_is_one_process(monkeypatch):
  for name in ('TPU_PROCESS_ADDRESSES', 'TPU_WORKER_HOSTNAMES'):
    monkeypatch.delenv(name, raising=False)
  with socket.create_server(('', 0)) as taken:
    port = taken.getsockname()[1]
    with pytest.raises(ConfigError, match=f'process 0 cannot listen on port {port} of 127.0.0.1:{port}: .*in use'):
      join.join(f'127.0.0.1:{port}', '2', '0', timeout=1)
  join.join()
  assert not jax.distributed.is_initialized()


def test_hosts_of_a_pod_that_were_not_introduced_are_refused(monkeypatch):
  monkeypatch.setattr(jax, 'process_count', lambda: 4)
  with pytest.raises(ConfigError, match=r'one of 4 hosts of a pod.*--coordinator=auto'), hosts.together():
    pass
