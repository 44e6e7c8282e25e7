"""Faults against what docs/guarantees.md promises of several processes, in the form of run_faults.py."""

HOSTS, LOOP, CHECKPOINT = 'pe_jax/hosts.py', 'pe_jax/loop.py', 'pe_jax/checkpoint.py'
PAIR, TOGETHER = 'tests/test_hosts.py::test_', 'tests/test_hosts_together.py::test_'
AS_ONE = f'{PAIR}two_processes_of_two_devices_train_as_one_of_four'

ROWS = (
  (
    'the same rows in every process',
    'pe_jax/data/pipeline.py',
    'slice(process_index * local, (process_index + 1) * local)',
    'slice(0, local)',
    (AS_ONE,),
  ),
  (
    'every process writes the log',
    LOOP,
    'metrics.Log(self.folder, first, config, self.writer.holds) if hosts.is_first() else metrics.NoLog()',
    'metrics.Log(self.folder, first, config, self.writer.holds)',
    (AS_ONE,),
  ),
  (
    'signal known to nobody else',
    HOSTS,
    'lambda numbers: numbers.max()',
    'lambda numbers: numbers.min()',
    (f'{PAIR}a_signal_to_either_in_any_phase_saves_the_same_step_on_both_and_they_end_as_if_untouched',),
  ),
  (
    'missing process taken for a fault',
    HOSTS,
    '  if gone(error):\n    return Preempted.exit_code\n',
    '',
    (f'{TOGETHER}only_what_is_said_of_a_missing_process_is_taken_for_one',),
  ),
  (
    'missing process waited for',
    'pe_jax/join.py',
    'heartbeat_timeout_seconds=timeout',
    'heartbeat_timeout_seconds=3600',
    (f'{PAIR}a_killed_process_ends_the_other_within_the_timeout',),
  ),
  (
    'start after another taken for the first',
    'pe_jax/join.py',
    '  if again.is_again():\n',
    '  if not told:\n',
    ('tests/test_join.py::test_whoever_is_missing_at_a_start_after_another_may_come_yet',),
  ),
  (
    'the same checkpoint counted as new',
    'scripts/again.sh',
    'sort -u "$PE_JAX_SAVED" | wc -l',
    'wc -l < "$PE_JAX_SAVED"',
    ('tests/test_tpu_vm.py::test_a_run_is_started_again_until_it_has_ended_for_good_or_saves_nothing_more',),
  ),
  (
    'every error taken for a missing process',
    HOSTS,
    ' and GONE.search(said) and not OWN.match(said):',
    ':',
    (f'{TOGETHER}only_what_is_said_of_a_missing_process_is_taken_for_one',),
  ),
  (
    'rows of the other process forgotten',
    'pe_jax/evaluate/score.py',
    'np.asarray(hosts.fetch(scored), np.float64)',
    'np.asarray(np.tile(scored.addressable_data(0), (jax.device_count(), 1)), np.float64)',
    (f'{TOGETHER}a_short_last_batch_is_shared_unevenly_and_waits_for_nobody',),
  ),
  (
    'damage in a part of the arrays passed over',
    CHECKPOINT,
    '    for step in reversed(hosts.gathered(self.steps())[0]):\n',
    '    for step in hosts.gathered(self.steps())[0]:\n',
    (f'{TOGETHER}a_checkpoint_that_one_process_finds_damaged_is_set_aside_for_both',),
  ),
  (
    'hash of a part of the batch',
    HOSTS,
    'return batch if jax.process_count() == 1 else multihost_utils.process_allgather(batch, tiled=True)',
    'return batch',
    (AS_ONE, f'{TOGETHER}what_is_written_of_a_bad_step_is_of_the_whole_batch_and_written_once'),
  ),
)
