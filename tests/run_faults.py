"""Faults against the promises of docs/guarantees.md on runs: (name, file, text that stands there once, what it becomes, tests).

One of the tests must fail. `make mutants` plants them beside those of mutants.py; tests/test_guarantees.py sees that every promise has one.
"""

LOOP, CHECKPOINT, SAVED = 'pe_jax/loop.py', 'pe_jax/checkpoint.py', 'pe_jax/saved.py'
WORKDIR, OWNER, CHANGES, STEP = 'pe_jax/workdir.py', 'pe_jax/owner.py', 'pe_jax/changes.py', 'pe_jax/step.py'
KILLED = 'tests/test_kills.py::test_a_run_that_is_killed_at_random_ends_with_the_bits_of_one_that_is_not[learned concat x4]'
RESTORED = "    return self.spread.put_state(state) if self.config.parallel == 'pmap' else state\n"
SET_ASIDE = 'tests/test_checkpoint.py::test_what_is_no_checkpoint_of_the_run_is_set_aside_by_name'
SEEDS, TOGETHER = 'pe_jax/seeds.py', 'tests/test_seeds.py::test_'

ROWS = (
  # A run that is killed
  (
    'random key forgotten',
    LOOP,
    RESTORED,
    '    return self.spread.put_state(dataclasses.replace(state, key=jax.random.PRNGKey(latest)))\n',
    (KILLED,),
  ),
  ('optimizer forgotten', LOOP, RESTORED, '    return self.spread.put_state(dataclasses.replace(state, opt=start.opt))\n', (KILLED,)),
  (
    'data shifted by a batch',
    LOOP,
    "    self.batches.set_state(saved['position'])\n",
    "    self.batches.set_state(saved['position'])\n    next(self.batches)\n",
    (KILLED,),
  ),
  (
    'torn line kept',
    'pe_jax/metrics.py',
    "        workdir_lib.write(path, ''.join(kept))\n",
    "        torn = (path.read_text() if path.exists() else '').rpartition('\\n')[2]\n"
    "        workdir_lib.write(path, ''.join(kept) + (torn + '\\n' if torn else ''))\n",
    (KILLED,),
  ),
  ('log not rewound', 'pe_jax/metrics.py', "if row['step'] <= step]", "if row['step'] <= step + 1]", (KILLED,)),
  # Checkpoints
  (
    'arrays not verified',
    SAVED,
    '  differ = [name for name, p in prints.items() if',
    '  differ = [name for name, p in {}.items() if',
    ('tests/test_checkpoint.py::test_forty_random_bit_flips_in_the_data_of_arrays_are_all_found',),
  ),
  ('seal not looked at', SAVED, '  if seal != _seal(record):', '  if not seal:', (f'{SET_ASIDE}[edited]',)),
  ('step not looked at', SAVED, "  if record['step'] != int(path.name):", "  if record['step'] < 0:", (f'{SET_ASIDE}[future]',)),
  (
    'bad checkpoint deleted',
    CHECKPOINT,
    '      remote.move(self._folder / str(step), self._bad / name)',
    '      (self._folder / str(step)).rmtree()',
    (f'{SET_ASIDE}[no item]',),
  ),
  (
    'leftovers stay',
    CHECKPOINT,
    "    for path in [*self._folder.glob(f'*{ocp.utils.TMP_DIR_SUFFIX}*'), *filter(saved.cut_off, steps)]:\n",
    '    for path in ():\n',
    (f'{SET_ASIDE}[left over]',),
  ),
  (
    'checkpoints of a bucket on the disk',
    CHECKPOINT,
    'remote.is_remote(folder) else folder.absolute()',
    'not folder else folder.absolute()',
    ('tests/test_remote.py::test_checkpoints_of_a_run_in_a_bucket_are_there_and_not_on_the_machine',),
  ),
  (
    'mark of the end not looked for',
    SAVED,
    '  return remote.is_remote(path) and not ',
    '  return False and not ',
    ('tests/test_remote.py::test_what_a_machine_lost_while_saving_leaves_in_a_bucket_is_removed',),
  ),
  (
    'deleted and not copied',
    'pe_jax/remote.py',
    '    _copy(source, target)\n    source.rmtree()\n',
    '    source.rmtree()\n',
    ('tests/test_remote.py::test_a_damaged_checkpoint_in_a_bucket_is_set_aside_whole',),
  ),
  (
    'missing files passed over',
    CHECKPOINT,
    '    for step in self._numbers():\n      try:\n',
    '    for step in self.steps():\n      try:\n',
    ('tests/test_checkpoint.py::test_no_damage_to_any_file_of_a_checkpoint_goes_unseen',),
  ),
  (
    'silent start from 0',
    CHECKPOINT,
    '    if aside:\n',
    '    if not aside:\n',
    ('tests/test_checkpoint.py::test_where_all_are_bad_the_run_stops_and_never_begins_anew',),
  ),
  (
    'types not compared',
    SAVED,
    '  if was != here:\n',
    '  if {n: s[1] for n, s in was.items()} != {n: s[1] for n, s in here.items()}:\n',
    ('tests/test_checkpoint.py::test_a_checkpoint_of_another_model_is_told_from_a_damaged_one[bfloat16]',),
  ),
  (
    'asynchronous error lost',
    CHECKPOINT,
    '    if self._in_flight and not self._manager.is_saving_in_progress():\n',
    '    if False:\n',
    ('tests/test_checkpoint.py::test_an_error_of_an_asynchronous_save_is_raised_at_the_next_step_and_the_older_one_stays',),
  ),
  (
    'last save not awaited',
    CHECKPOINT,
    '        manager.wait_until_finished()\n        manager.close()\n',
    '        pass\n',
    ('tests/test_checkpoint.py::test_the_last_save_is_awaited',),
  ),
  (
    'not finite and saved',
    CHECKPOINT,
    '    if bad := [name for name, p in prints.items() if p.not_finite]:\n',
    '    if bad := []:\n',
    ('tests/test_checkpoint.py::test_nothing_that_is_not_finite_is_ever_written',),
  ),
  (
    'room not looked at',
    CHECKPOINT,
    '(free := shutil.disk_usage(self._folder).free) < need:',
    '(free := shutil.disk_usage(self._folder).free) < 0:',
    ('tests/test_checkpoint.py::test_a_disk_without_room_for_two_is_refused_before_a_byte_is_written',),
  ),
  (
    'what stands there deleted',
    CHECKPOINT,
    '    if hosts.gathered(step in self._numbers())[0]:  # nothing',
    '    if step < 0:  # nothing',
    ('tests/test_checkpoint.py::test_what_stands_where_a_checkpoint_goes_is_set_aside_and_not_deleted',),
  ),
  (
    'place not in the fingerprint',
    'pe_jax/fingerprint.py',
    '(words ^ (place * jnp.uint32(PLACE)))',
    'words',
    ('tests/test_fingerprint.py::test_every_flipped_bit_and_every_exchange_of_two_words_is_seen',),
  ),
  (
    'restored where it was saved',
    SAVED,
    '  abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)\n',
    '  first = jax.sharding.SingleDeviceSharding(jax.devices()[0])\n'
    '  abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=first), like)\n',
    ('tests/test_train.py::test_a_state_saved_on_four_devices_is_the_same_on_one_and_on_eight',),
  ),
  # One writer, one configuration
  (
    'lock shared',
    WORKDIR,
    'fcntl.LOCK_EX, attempts=10)',
    'fcntl.LOCK_SH, attempts=10)',
    ('tests/test_one_writer.py::test_of_eight_simultaneous_starts_exactly_one_wins',),
  ),
  (
    'token not read again',
    OWNER,
    "    if now.get('token') != token:\n",
    '    if not token:\n',
    ('tests/test_one_writer.py::test_a_later_start_takes_over_and_the_earlier_one_stops_at_its_next_save',),
  ),
  (
    'token not asked before a save',
    CHECKPOINT,
    '    self._still_mine()\n',
    '',
    ('tests/test_checkpoint.py::test_a_folder_taken_over_by_another_process_is_not_written_to',),
  ),
  (
    'row after a take-over',
    'pe_jax/metrics.py',
    '    elif self.mine():\n',
    '    else:\n',
    ('tests/test_one_writer.py::test_no_row_is_written_to_a_log_that_is_another_processs_by_now',),
  ),
  (
    'half a file stays',
    WORKDIR,
    '    _remove_leftovers(folder)\n',
    '',
    ('tests/test_one_writer.py::test_what_a_process_that_died_while_writing_has_left_is_removed_by_the_next_holder',),
  ),
  (
    'every change goes on',
    CHANGES,
    'return [field for field in changed if field not in free]',
    'return [field for field in free if field not in free]',
    ('tests/test_changes.py::test_a_changed_field_is_refused_with_a_diff_or_allowed[seed]',),
  ),
  (
    'steps never matter',
    CHANGES,
    '  return config.optim.final_fraction != 1 or',
    '  return False and config.optim.final_fraction != 1 or',
    ('tests/test_changes.py::test_more_steps_are_allowed_where_nothing_depends_on_their_number',),
  ),
  (
    'override without a trace',
    WORKDIR,
    '  if changed:\n    step = newest_step(workdir)',
    '  if changed and not overridden:\n    step = newest_step(workdir)',
    ('tests/test_changes.py::test_an_override_goes_on_and_leaves_its_trace_and_another_model_is_still_refused',),
  ),
  (
    'other data taken',
    'pe_jax/train.py',
    '    if not override:\n      workdir_lib.check_data',
    '    if override:\n      workdir_lib.check_data',
    ('tests/test_train.py::test_other_text_under_the_same_path_is_refused',),
  ),
  (
    'another environment not told',
    WORKDIR,
    '  lines = config_lib.diff(json.loads(path.read_text()), now) if path.exists() else []\n',
    '  lines = []\n',
    ('tests/test_changes.py::test_a_run_that_goes_on_in_another_environment_is_told_what_that_costs',),
  ),
  (
    'names of sources alone',
    'pe_jax/environment.py',
    'as_posix().encode(), path.read_bytes()):',
    'as_posix().encode(),):',
    ('tests/test_changes.py::test_every_edit_of_a_source_is_another_digest',),
  ),
  # Signals
  (
    'signal while jax is imported',
    'train.py',
    '  with signals.noted() as caught:\n    from pe_jax',
    '  for caught in (None,):\n    from pe_jax',
    ('tests/test_preemption.py::test_a_signal_before_anything_is_begun_ends_with_75_and_leaves_nothing',),
  ),
  (
    'signal forgotten until the first step',
    LOOP,
    '      if (stop := self.stopped_by.now()) and first < config.num_train_steps:\n',
    '      if stop := None:\n',
    ('tests/test_preemption.py::test_a_signal_in_any_phase_saves_the_step_that_was_reached_and_a_second_one_changes_nothing',),
  ),
  (
    'signal at the end',
    'pe_jax/cli.py',
    '        signal.signal(number, signal.SIG_IGN)\n',
    '        signal.signal(number, signal.SIG_DFL)\n',
    ('tests/test_preemption.py::test_once_all_is_saved_another_signal_does_not_turn_75_into_something_else',),
  ),
  # Not finite
  (
    'not finite and taken',
    STEP,
    'jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, old), metrics',
    'new, metrics',
    ('tests/test_nonfinite.py::test_whatever_breaks_whenever_the_run_stops_and_nothing_of_it_is_saved[gradient-middle]',),
  ),
  (
    'moments not looked at',
    STEP,
    'all_finite((params, opt))',
    'all_finite(params)',
    ('tests/test_nonfinite.py::test_a_moment_that_overflows_is_seen_though_the_update_is_finite',),
  ),
  (
    'skipped and taken',
    STEP,
    '  finite = finite if skip else finite & state.finite\n',
    '  finite = finite | skip if skip else finite & state.finite\n',
    ('tests/test_nonfinite.py::test_a_skipped_step_changes_neither_parameters_nor_optimizer',),
  ),
  (
    'never enough in a row',
    LOOP,
    'self.skipped + 1, self.in_a_row + 1\n',
    'self.skipped + 1, 1\n',
    ('tests/test_nonfinite.py::test_skip_stops_after_so_many_in_a_row_even_if_a_resume_lies_between',),
  ),
  (
    'place of the next batch',
    LOOP,
    '        self.pending.append((n, numbers, batch, before))\n',
    '        self.pending.append((n, numbers, batch, position))\n',
    ('tests/test_nonfinite.py::test_the_batch_can_be_replayed',),
  ),
  # Seeds trained together
  (
    'rows of one seed for all',
    SEEDS,
    'self.asked[lane if lane in going else going[0]][1]',
    'self.asked[going[0]][1]',
    (f'{TOGETHER}three_seeds_together_are_the_three_runs_alone',),
  ),
  (
    'state of one seed for all',
    'pe_jax/parallel.py',
    'jax.tree.map(lambda *x: jnp.stack(x), *states)',
    'jax.tree.map(lambda *x: jnp.stack([x[0]] * len(x)), *states)',
    (f'{TOGETHER}seeds_that_are_killed_three_times_end_with_the_bits_of_those_that_are_not',),
  ),
  (
    'seeds that wait are trained',
    SEEDS,
    '[lane in going for lane in self.lanes]',
    '[True for lane in self.lanes]',
    (f'{TOGETHER}runs_go_on_together_and_alone_in_turn',),
  ),
  (
    'one that ends stops all',
    SEEDS,
    '    except (NotFinite, Preempted, WorkdirInUse) as error:\n',
    '    except (Preempted, WorkdirInUse) as error:\n',
    (f'{TOGETHER}a_seed_that_is_not_finite_ends_and_the_others_do_not',),
  ),
  (
    'one taken over stops all',
    SEEDS,
    '    except (NotFinite, Preempted, WorkdirInUse) as error:\n',
    '    except (NotFinite, Preempted) as error:\n',
    (f'{TOGETHER}a_seed_whose_folder_is_taken_over_ends_and_the_others_do_not',),
  ),
)
