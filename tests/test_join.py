"""How processes find each other: what must be given, and one line within the timeout when somebody is missing."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time

import jax
import pairs
import pytest
import tiny_runs as runs

from pe_jax import hosts, join, process
from pe_jax.errors import ConfigError, Preempted


def test_whoever_is_missing_is_told_in_a_line_within_the_timeout():
  alone, start = pairs.home() / 'alone', time.monotonic()
  meet = [f'--coordinator=127.0.0.1:{pairs.free_port()}', '--process_count=2', '--timeout=5', '--process_index=0']
  waiting = runs.start(*pairs.training(alone), *meet, devices=2)
  lost = runs.start(*pairs.training(alone), '--coordinator=127.0.0.1:9', '--process_count=2', '--timeout=2', '--process_index=1')
  try:
    code, _, err = runs.finish(lost)
    assert (code, err.count('\n')) == (2, 1), err
    assert err.startswith('ERROR: --coordinator: nobody answers at 127.0.0.1:9 within 2 s'), err
    code, _, err = runs.finish(waiting)
    assert code == 2, err
    says = r'^ERROR: --process_count: 2 processes were to meet at 127.0.0.1:\d+, and not all came within 5 s \(start one'
    assert re.search(says, err, re.M), err
  finally:
    lost.kill()
    waiting.kill()
  assert time.monotonic() - start < 120
  assert not alone.exists()


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
  assert not process.joined()


def test_what_a_script_starts_belongs_to_no_run_of_several_processes(monkeypatch):
  monkeypatch.setenv('PE_JAX_COORDINATOR', '10.0.0.2:8476')
  monkeypatch.setenv('PE_JAX_PROCESS_COUNT', '2')
  monkeypatch.setenv('PE_JAX_PROCESS_INDEX', '1')
  here = join.asked(None, None, '0')
  assert here == ('10.0.0.2:8476', '2', '0')
  for name, value in process.child_environment().items():
    monkeypatch.setenv(name, value)
  assert join.asked(None, None, None) is None
  monkeypatch.delenv('PE_JAX_COORDINATOR')
  assert join.asked('', None, None) is None
  assert join.asked(None, None, None) == ('', '2', '1')


def test_hosts_of_a_pod_that_were_not_introduced_are_refused(monkeypatch):
  monkeypatch.setattr(jax, 'process_count', lambda: 4)
  with pytest.raises(ConfigError, match=r'one of 4 hosts of a pod.*--coordinator=auto'), hosts.together():
    pass


def test_whoever_is_missing_at_a_start_after_another_may_come_yet(monkeypatch):
  """With the exit code that again.sh starts it once more after."""
  assert type(join.missing('--coordinator: nobody', 'start all')) is ConfigError
  told = 'ABORTED: /job:jax_worker/replica:0/task:1 unexpectedly tried to connect with a different incarnation. It has likely restarted.'
  early = join.missing('--process_count: 2', 'start all', told)
  assert type(early) is Preempted
  assert 'those of the run before' in str(early)
  monkeypatch.setenv('PE_JAX_AGAIN', '1')
  assert type(join.missing('--coordinator: nobody', 'start all')) is Preempted
  with pytest.raises(Preempted, match=r'nobody answers at 127\.0\.0\.1:9 within 1 s: .*started again, and the others may still be ending'):
    join.join('127.0.0.1:9', '2', '1', timeout=1)
  with pytest.raises(ConfigError, match='is not one of 2'):  # no other process can change that
    join.join('127.0.0.1:9', '2', '2', timeout=1)


# Meets the other and tells it its number. At its first start number 1 is killed, which number 0 cannot notice by what they compute.
MEETS = """
import os, signal, sys, time
from pe_jax import again, hosts, join
join.join(sys.argv[1], '2', sys.argv[2], timeout=8)
if not again.is_again():
  os.kill(os.getpid(), signal.SIGKILL) if sys.argv[2] == '1' else time.sleep(600)
print(hosts.gathered(sys.argv[2]))
"""


def test_a_process_that_is_killed_and_back_at_once_meets_one_that_is_back_only_after_the_timeout():
  """What it finds first is the service of the run before, which refuses it and ends; then nobody."""
  place, processes = f'127.0.0.1:{pairs.free_port()}', []
  for index, seconds in ((0, 14), (1, 1)):
    command = ['bash', runs.ROOT / 'scripts' / 'again.sh', sys.executable, '-c', MEETS, place, str(index)]
    pipes = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, 'text': True, 'start_new_session': True}
    processes.append(subprocess.Popen(command, cwd=runs.ROOT, env=runs.environment(AGAIN_AFTER=str(seconds)), **pipes))
  try:
    ends = [runs.finish(process, 180) for process in processes]
  finally:
    for process in processes:
      with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
  assert [code for code, _, _ in ends] == [0, 0], ends
  assert all("['0', '1']" in out for _, out, _ in ends)
  assert re.findall('ended with (137|75): again', ends[1][2])[:2] == ['137', '75'], ends[1][2]
  assert 'this was started again, and the others may still be ending: the same command again' in ends[1][2]
