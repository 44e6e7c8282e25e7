"""What two processes do together, one thing at a time: rows and sums, ways to spread them, agreements, checkpoints, who is gone."""

import functools
import json

import jax
import numpy as np
import pairs
import pytest
import tiny_runs as runs

from pe_jax import hosts
from pe_jax.errors import ConfigError, WriteError

pytestmark = pytest.mark.xdist_group('hosts together')  # what is computed once


@functools.cache
def worked():
  """What the two processes of hosts_worker.py print."""
  (said,) = pairs.results([pairs.pair(['tests/hosts_worker.py', f'--folder={pairs.home() / "worker"}'])])
  assert [code for code, _, _ in said] == [0, 0], said
  return [json.loads(out) for _, out, _ in said]


def both(key):
  """What both processes found alike."""
  a, b = (one[key] for one in worked())
  assert a == b
  return a


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
  assert first['now'] == second['now'] == 'SIGTERM'


def test_a_length_that_one_process_has_no_memory_for_is_refused_by_both():
  first, second = (one['too long'] for one in worked())
  assert second[0] == 2
  assert second[1].startswith('lengths: 16 tokens need 0.0 GB beside the parameters')
  assert first == [2, f'process 1: {second[1]}']


def test_a_checkpoint_that_one_process_finds_damaged_is_set_aside_for_both():
  assert both('damage') == {'from': [3, 3], 'left': [3], 'aside': ['4']}


def test_a_folder_that_another_run_takes_over_is_left_by_both():
  first, second = (one['taken over'] for one in worked())
  assert [one and one[0] for one in (first, second)] == [5, 5]
  assert second[1] == f'process 0: {first[1]}'
  assert 'taken over by process 1 on elsewhere' in first[1]


def test_what_is_written_of_a_bad_step_is_of_the_whole_batch_and_written_once():
  found = both('not finite')
  assert (found['same batch'], found['files']) == (True, ['nonfinite_5.json'])
  assert found['arrays'] > 10


PEER = (
  'FAILED_PRECONDITION: Buffer Definition Event: Gloo all-reduce failed: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [::1]:7'
)


@pytest.mark.parametrize(
  ('said', 'of_a_peer'),
  [
    (PEER, True),
    ('INTERNAL: Gloo AllGather failed: Read timeout [127.0.0.1]:4711', True),
    ('INTERNAL: NCCL operation ncclGroupEnd() failed: remote process exited or there was a network error.', True),
    ('DEADLINE_EXCEEDED: Barrier timed out. Id: save::12. # of tasks that reached the barrier: 1/2.', True),
    ('UNAVAILABLE: Failed to send RPC to coordination service. Either the leader task was preempted or crashed', True),
    ('UNAVAILABLE: Task /job:jax_worker/replica:0/task:1 heartbeat timeout.', True),
    ('RESOURCE_EXHAUSTED: Out of memory allocating 17179869184 bytes.', False),
    ('RESOURCE_EXHAUSTED: out of memory while the network error was written', False),
    ('INVALID_ARGUMENT: Executable expected parameter 0 of size 4 but got buffer with incompatible size 8', False),
    ('INTERNAL: Mosaic failed to compile TPU kernel', False),
    ('UNIMPLEMENTED: there is no collective of this type', False),
  ],
)
def test_only_what_is_said_of_a_missing_process_is_taken_for_one(said, of_a_peer):
  """Memory, arguments and faults of the program keep their own way out."""
  error = jax.errors.JaxRuntimeError(said)
  assert bool(hosts.gone(error)) == of_a_peer
  assert hosts._code(error) == (75 if of_a_peer else 1)
  assert ('another one is gone' in hosts._last_words('runs/a', error)) == of_a_peer
  assert not hosts.gone(ValueError(said))


def test_a_checkpoint_that_fails_because_a_process_is_gone_is_no_matter_of_the_disk():
  with pytest.raises(WriteError) as caught:
    raise WriteError('runs/a: checkpoint 6 could not be written') from jax.errors.JaxRuntimeError(PEER)
  assert hosts._code(caught.value) == 75
  assert hosts._code(WriteError('runs/a: checkpoint 6 could not be written')) == 4
  assert hosts._code(ConfigError('batch_size: not enough memory')) == 2
