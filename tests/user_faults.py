"""Faults against promises of docs/guarantees.md that users meet outside of a run: strangers' files, many runs, what is told and shown.

Rows as in run_faults.py.
"""

SECURITY, MISTAKES = 'tests/test_security.py::test_', 'tests/test_cli.py::test_every_mistake_is_one_line_at_once_and_leaves_nothing_behind'
BAD_INPUT = 'tests/bad_input/test_bad_input.py::test_bad_input_'
ANSWERED = f'{BAD_INPUT}is_answered_in_one_sentence_with_its_code'

ROWS = (
  # What somebody else may hand you
  (
    'modules of the folder at hand',
    'eval.py',
    'from absl import flags\n',
    "sys.path.insert(0, '')\nfrom absl import flags\n",
    (f'{SECURITY}evaluating_a_foreign_results_folder_from_inside_it_executes_nothing_of_it',),
  ),
  (
    'pickle',
    'pe_jax/saved.py',
    '    tree = json.loads(path.read_text())\n',
    "    tree = __import__('pickle').loads(__import__('pickle').dumps(json.loads(path.read_text())))\n",
    (f'{SECURITY}a_checkpoint_is_read_without_pickle',),
  ),
  (
    'NaN in JSON',
    'pe_jax/config.py',
    'json.loads(text, parse_constant=no_number, object_pairs_hook=once)',
    'json.loads(text, object_pairs_hook=once)',
    (f'{BAD_INPUT}on_the_command_line',),
  ),
  (
    'class of a stranger',
    'pe_jax/data/sources/tfds.py',
    '  if foreign:\n',
    '  if foreign and not path:\n',
    (f'{SECURITY}a_dataset_cannot_name_code_to_be_imported',),
  ),
  (
    'names with a dot first',
    'pe_jax/names.py',
    "r'[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}'",
    "r'[A-Za-z0-9._-]{1,100}'",
    (f'{SECURITY}a_name_that_could_leave_its_folder_is_refused',),
  ),
  (
    'eval in a source',
    'pe_jax/names.py',
    'NAME = re.compile(',
    "NAME = eval('re.compile')(",
    ('tests/test_static_gate.py::test_no_source_does_what_it_may_not',),
  ),
  (
    'not escaped',
    'pe_jax/report/markup.py',
    '  return html.escape(clean(text), quote=True)\n',
    '  return clean(text)\n',
    ('tests/report/test_page.py::test_what_a_run_is_called_or_says_is_never_markup',),
  ),
  (
    'children with a network',
    'tests/no_network/loopback_only.py',
    "    environment['PYTHONPATH'] = os.pathsep.join(",
    "    environment['PYTHON_PATH'] = os.pathsep.join(",
    ('tests/test_no_network.py::test_a_process_that_a_test_starts_cannot_either',),
  ),
  # Many runs
  (
    'one try fewer',
    'pe_jax/sweep/pool.py',
    'self._again[name] > self.limits.again',
    'self._again[name] >= self.limits.again',
    ('tests/sweep/test_pool.py::test_each_ends_in_its_own_way_and_the_others_go_on',),
  ),
  (
    'taken back for ever',
    'pe_jax/sweep/pool.py',
    'self._taken[name] < TAKEN',
    'self._taken[name] >= 0',
    ('tests/sweep/test_pool.py::test_what_another_process_takes_each_time_is_left_to_it',),
  ),
  (
    'rows of an attempt kept',
    'pe_jax/once.py',
    "if row.get('label') != label]",
    "if row.get('label') != label + label]",
    ('tests/sweep/test_parts.py::test_rows_of_an_evaluation_stand_once_however_often_it_is_begun',),
  ),
  (
    'no leash',
    'pe_jax/sweep/leash.py',
    'prctl(PR_SET_PDEATHSIG, signal.SIGTERM)',
    'prctl(PR_SET_PDEATHSIG, 0)',
    ('tests/sweep/test_pool.py::test_kill_9_of_the_parent_stops_its_children',),
  ),
  (
    'changed file taken',
    'pe_jax/sweep/plan.py',
    """found += [f'{run.name}: {"; ".join(lines)}'] if lines else []""",
    """found += [f'{run.name}: {"; ".join(lines)}'] if not lines and lines else []""",
    ('tests/sweep/test_plan.py::test_a_changed_file_is_refused_with_the_runs_and_fields_that_differ',),
  ),
  # What users are told and shown
  (
    'heads that do not divide',
    'pe_jax/resolve.py',
    '    if m.embed_dim % m.num_heads:\n',
    '    if m.embed_dim < m.num_heads:\n',
    (f'{ANSWERED}[across fields: 3 heads of a width of 16]',),
  ),
  (
    'self-check that is content',
    'pe_jax/selfcheck/contract.py',
    '  return Row(check, not wrong, ',
    '  return Row(check, True, ',
    ('tests/test_selfcheck.py::test_what_does_not_hold_and_what_breaks_is_told_by_its_property',),
  ),
  ('two lines', 'pe_jax/cli.py', "  print(f'ERROR: {said}', file", "  print(f'ERROR:\\n{said}', file", (MISTAKES,)),
  (
    'no suggestion',
    'pe_jax/config.py',
    '  close = difflib.get_close_matches(',
    '  close = [] and difflib.get_close_matches(',
    ('tests/test_config.py::test_unknown_and_missing_fields_are_named',),
  ),
  (
    'empty ones not counted',
    'pe_jax/data/blocks.py',
    "{'empty': empty,",
    "{'empty': 0,",
    ('tests/data/test_pipeline.py::test_counts_say_what_was_left_out',),
  ),
  (
    'bad bytes replaced without a word',
    'pe_jax/data/documents.py',
    "    if errors == 'strict':\n",
    "    if errors == 'never':\n",
    ('tests/data/test_text_source.py::test_text_that_is_not_utf8_stops_or_is_replaced_and_counted',),
  ),
  (
    'half of the phase',
    'pe_jax/encodings/phases.py',
    'jax.lax.bitcast_convert_type(p * high + carry, jnp.int32)',
    'jax.lax.bitcast_convert_type(p * high, jnp.int32)',
    ('tests/encodings/test_values.py::test_phases_are_right_to_a_millionth_up_to_a_million',),
  ),
  (
    'every device by itself',
    'pe_jax/parallel.py',
    "    return jax.lax.psum(sums, 'devices')\n",
    '    return sums\n',
    ('tests/test_parallel.py::test_twenty_steps_have_the_same_losses_however_they_are_spread',),
  ),
  (
    'kernel that does not refuse',
    'pe_jax/attention.py',
    '  if why := kernels.refusal(name, enc, case):\n',
    '  if why := False:\n',
    ('tests/test_kernels.py::test_a_kernel_that_cannot_serve_refuses_before_anything_is_compiled',),
  ),
  (
    'whole rows of a long text',
    'pe_jax/attention.py',
    "  if path == 'dense':\n",
    "  if path in ('dense', 'blockwise'):\n",
    ('tests/test_attention.py::test_long_texts_never_need_an_array_of_queries_by_keys',),
  ),
  (
    'other targets compared',
    'pe_jax/report/protocols.py',
    '    if len(names) > 1\n',
    '    if len(names) > 9\n',
    ('tests/test_protocols.py::test_rows_of_other_targets_are_called_not_comparable',),
  ),
  (
    'one name in a row',
    'pe_jax/evaluate/__init__.py',
    "{'encoding': str(found.spec),",
    "{'encoding': str(spec),",
    ('tests/test_evaluation.py::test_a_map_takes_its_factor_from_the_length_and_the_row_has_both_names',),
  ),
  (
    'base not inherited',
    'pe_jax/evaluate/__init__.py',
    'encodings.parse(str(encodings.inherit(s, trained)))',
    'encodings.parse(str(s))',
    ('tests/test_evaluation.py::test_a_map_reads_the_base_that_was_trained',),
  ),
  (
    'remainders dropped',
    'pe_jax/data/packing.py',
    '  rest = np.flatnonzero(~full)\n',
    '  rest = np.flatnonzero(~full)[:0]\n  size = np.where(full, size, 0)\n',
    ('tests/data/test_pipeline.py::test_every_length_scores_the_same_targets',),
  ),
  (
    'trained on test samples',
    'pe_jax/tasks/batches.py',
    "self._role[length] = 'train' if samples.divided(self._task, length) else None",
    'self._role[length] = None',
    ('tests/tasks/test_task_runs.py::test_no_test_sample_can_have_been_trained_on',),
  ),
)
