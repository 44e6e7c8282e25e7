"""Seeds are one line; what is ranked, by what, and what is kept from a rank."""

import ml_collections
import numpy as np
import pytest
import written_runs as written

from pe_jax import evaluate
from pe_jax.evaluate import lengths as three
from pe_jax.report import charts, ranking, readings, results, seeds
from pe_jax.statistics import lengths as statistics


def entries(folder, **how):
  return ranking.of_readings(readings.of_runs(results.scan(folder)), **how)


def of(folder, protocol='context', **how):
  return {e.reading.label: e for e in entries(folder, **how) if e.protocol == protocol}


def test_runs_that_differ_in_the_seed_alone_are_one_reading(tmp_path):
  for seed in (0, 1, 2):
    written.run(tmp_path / f'rope_{seed}', written.config(seed=seed, log_every_steps=seed + 1))
  written.run(tmp_path / 'slow', written.config(**{'optim.learning_rate': 0.0001}))
  written.run(tmp_path / 'alibi', written.config('alibi'))
  found = readings.of_runs(results.scan(tmp_path))
  assert [(r.label, r.seeds) for r in found] == [
    ('alibi', [0]),
    ('rope, learning_rate=0.0001', [0]),
    ('rope, learning_rate=0.001', [0, 1, 2]),
  ]


def test_other_encodings_and_training_lengths_are_readings_of_their_own(tmp_path):
  written.run(tmp_path / 'a', written.config(), [written.row('sliding', 'yarn', 64, 2.0, trained='rope')])
  assert [r.label for r in readings.of_runs(results.scan(tmp_path))] == ['rope', 'rope read as yarn']
  written.run(tmp_path / 'b', written.config(train_length=128))
  assert [r.label for r in readings.of_runs(results.scan(tmp_path))] == ['rope, L=64', 'rope read as yarn, L=64', 'rope, L=128']


def test_the_rank_goes_by_the_mean_change_at_the_longest_length(tmp_path):
  written.sweep(tmp_path, ['rope', 'alibi', 'nope'], seeds=(0, 1), rise=0.1)
  found = of(tmp_path)
  assert {label: e.rank for label, e in found.items()} == {'rope': 1, 'alibi': 2, 'nope': 3}
  assert {label: round(e.change, 9) for label, e in found.items()} == {'rope': 0.0, 'alibi': 0.3, 'nope': 0.6}
  assert {e.length for e in found.values()} == {256}
  assert found['alibi'].inside == pytest.approx(1.505)
  assert found['alibi'].inside_of == 'context at 64'
  assert found['alibi'].value == pytest.approx(1.805)
  assert found['alibi'].low < 0.3 < found['alibi'].high
  assert found['alibi'].interval == '95 %, seeds and documents'
  nonoverlapping = of(tmp_path, 'nonoverlapping')['nope']
  assert nonoverlapping.change == pytest.approx(0.6)
  assert (nonoverlapping.inside, nonoverlapping.inside_of) == (pytest.approx(1.605), 'nonoverlapping at 64')


def test_one_seed_has_the_interval_of_its_row(tmp_path):
  written.sweep(tmp_path, ['alibi'], seeds=(3,))
  (entry,) = of(tmp_path).values()
  assert (entry.low, entry.high) == (pytest.approx(-0.02), pytest.approx(0.02))
  assert entry.interval == '95 %, documents'


def test_the_three_lengths_of_one_seed_are_those_that_eval_prints(tmp_path):
  written.sweep(tmp_path, ['nope', 'alibi', 'learned(max_length=300)'], seeds=(0,), rise=0.03)
  for reading in readings.of_runs(results.scan(tmp_path)):
    for bar in (None, 1.4, 1.6):
      (run,) = reading.runs
      subject = evaluate.Subject(ml_collections.ConfigDict(run.config), {}, None, [], {})
      (wanted,) = three.of_rows(subject, [dict(row, protocol=row['measure']) for row in run.rows], 0, 0.05, bar)
      found = seeds.three_lengths(reading, 0.05, bar)
      assert found.reliable == wanted.reliable
      assert (found.acceptable, found.computable) == (wanted.acceptable, wanted.computable)
      assert (found.reliable.reach is None) == (bar == 1.4)


def test_a_length_at_which_losses_are_no_numbers_ends_what_is_reliable_and_computable(tmp_path):
  """At 256; what was measured beyond it counts for nothing."""
  rows = written.context('nope', dict.fromkeys((64, 91, 128, 512), 1.5))
  written.run(tmp_path / 'a', written.config('nope'), [row | {'not_finite': [256]} for row in rows])
  (reading,) = readings.of_runs(results.scan(tmp_path))
  (run,) = reading.runs
  subject = evaluate.Subject(ml_collections.ConfigDict(run.config), {}, None, [], {})
  (printed,) = three.of_rows(subject, [dict(row, protocol=row['measure']) for row in run.rows])
  found = seeds.three_lengths(reading)
  for lengths in (printed, found):
    assert (lengths.reliable.lengths, lengths.reliable.reach, lengths.computable) == ((91, 128), *2 * [statistics.Reach(128, 256)])
  (entry,) = entries(tmp_path)
  assert (entry.rank, entry.faults) == (None, ('losses are no numbers at 256',))


def test_the_lengths_of_several_seeds_are_of_all_their_documents(tmp_path):
  written.sweep(tmp_path, ['nope', 'alibi'], seeds=(0, 1, 2), rise=0.03)
  alibi = readings.of_runs(results.scan(tmp_path))[0]
  found = seeds.three_lengths(alibi).reliable
  assert (found.runs, found.documents) == (3, written.UNITS)
  sums = np.asarray([[[written.TARGETS * (0.03 * k + 0.01 * (u - 5.5)) for u in range(12)]] * 3 for k in (1, 2, 3)])
  wanted = statistics.of_losses([91, 128, 256], sums, np.full((3, 12), written.TARGETS), 64, 'same targets, last 32')
  np.testing.assert_allclose(found.estimates, wanted.estimates, atol=1e-9)
  np.testing.assert_allclose(found.bounds, wanted.bounds, atol=1e-9)
  assert found.reach == wanted.reach == statistics.Reach(91, 128)


def test_the_lengths_of_a_task_are_those_of_exact_matches_on_all_seeds(tmp_path):
  of_task = {'data.source': 'task', 'data.name': 'copy', 'data.task_max_length': 16}
  for seed in (0, 1):
    rows = []
    for length, right in ((8, 20), (16, 20), (20, 19), (24, 2 + seed)):
      counts = {'unit': 'group', 'right': [right] * 25, 'trials': [20] * 25}
      match = {'exact_match': right / 20, 'exact_match_low': 0.0, 'exact_match_high': 1.0, 'chance_exact_match': 0.0}
      rows.append(written.row('task', 'rope', length, 0.1, seed=seed, task='copy', by_unit=counts, **match))
    written.run(tmp_path / str(seed), written.config(seed=seed, **of_task), rows)
  (found,) = of(tmp_path, 'task').values()
  r = found.lengths.reliable
  assert (r.reference, r.lengths, r.reach, r.runs) == (16, (20, 24), statistics.Reach(20, 24), 2)
  assert r.estimates == (pytest.approx(0.95), pytest.approx(0.125))
  assert (found.lengths.acceptable, found.lengths.computable) == (statistics.Reach(), statistics.Reach(24))


def test_one_sample_says_nothing_of_how_sure_its_match_is(tmp_path):
  of_task = {'data.source': 'task', 'data.name': 'copy', 'data.task_max_length': 16}
  rows = []
  for length in (16, 24):
    match = {'exact_match': 1.0, 'exact_match_low': 0.0, 'exact_match_high': 1.0, 'chance_exact_match': 0.0}
    rows.append(written.row('task', 'rope', length, 0.1, task='copy', by_unit={'unit': 'group', 'right': [1], 'trials': [1]}, **match))
  written.run(tmp_path / 'a', written.config(**of_task), rows)
  (found,) = of(tmp_path, 'task').values()
  assert found.lengths is None


def test_what_scored_other_targets_than_most_has_no_rank(tmp_path):
  for name, targets in (('rope', 't'), ('alibi', 't'), ('nope', 'other')):
    written.run(tmp_path / name, written.config(name), [written.row('sliding', name, n, 2.0, targets=targets) for n in (64, 128)])
  found = of(tmp_path, 'sliding')
  assert {label: e.rank is None for label, e in found.items()} == {'rope': False, 'alibi': False, 'nope': True}
  assert found['nope'].faults == ('not comparable: other targets than the others were scored at 64, 128',)


def test_of_two_that_scored_different_targets_neither_has_a_rank(tmp_path):
  for name in ('rope', 'alibi'):
    written.run(tmp_path / name, written.config(name), [written.row('sliding', name, n, 2.0, targets=name) for n in (64, 128)])
  assert [e.rank for e in entries(tmp_path)] == [None, None]
  assert all('not comparable' in e.faults[0] for e in entries(tmp_path))


def test_lengths_that_scored_different_targets_are_not_put_together(tmp_path):
  rows = written.context('rope', {64: 1.5, 91: 1.5, 128: 1.5}) + written.context('rope', {64: 1.6, 256: 1.7}, targets='fewer')
  written.run(tmp_path / 'a', written.config(), rows)
  (reading,) = readings.of_runs(results.scan(tmp_path))
  assert seeds.three_lengths(reading).reliable.lengths == (256,)
  assert seeds.paired(reading, [91, 256]) is None


def test_a_missing_length_is_told_and_the_longest_is_needed_for_a_rank(tmp_path):
  for name, lengths in (('rope', (64, 128, 256)), ('alibi', (64, 256)), ('nope', (64, 128))):
    written.run(tmp_path / name, written.config(name), [written.row('sliding', name, n, 2.0) for n in lengths])
  found = of(tmp_path, 'sliding')
  assert (found['alibi'].rank is None, found['alibi'].notes) == (False, ('missing lengths: 128',))
  assert (found['nope'].rank, found['nope'].faults) == (None, ('missing lengths: 256',))


def test_below_the_bar_there_is_no_rank(tmp_path):
  written.sweep(tmp_path, ['rope'], seeds=(0, 1))
  written.run(tmp_path / 'bad', written.config('nope'), written.context('nope', {64: 2.5, 91: 2.49, 128: 2.48, 256: 2.47}))
  found = of(tmp_path, bar=1.7)
  assert found['rope'].rank == 1
  assert found['nope'].faults == ('in-distribution gate failed: loss 2.500 (context at 64), above the bar of 1.7',)
  assert found['nope'].lengths.reliable.reach is None
  assert of(tmp_path)['nope'].rank == 1  # without a bar the worse model looks more robust


def test_a_seed_that_failed_is_told(tmp_path):
  written.sweep(tmp_path, ['rope'], seeds=(0, 1))
  written.run(tmp_path / 'x', written.config(seed=2), steps=300, done=False, log='ERROR: no\n')
  assert of(tmp_path)['rope'].notes == ('2 of 3 seeds measured (x failed)',)


def task(length, exact, **more):
  found = {'exact_match': exact, 'exact_match_low': exact - 0.01, 'exact_match_high': exact + 0.01, 'chance_exact_match': 0.01}
  return written.row('task', 'rope', length, 0.1, samples=500, task='copy', **found, **more)


def test_tasks_are_ranked_by_exact_matches_and_must_be_learnt_first(tmp_path):
  trained = {'data.task_max_length': 16, 'data.source': 'task', 'data.name': 'copy'}
  for name, inside, beyond in (('rope', 0.99, 0.3), ('alibi', 0.9, 0.5), ('nope', 0.4, 0.4)):
    rows = [task(n, x) | {'asked_encoding': name, 'trained_encoding': name} for n, x in ((16, inside), (32, beyond))]
    written.run(tmp_path / name, written.config(name, **trained), rows)
  found = of(tmp_path, 'task')
  assert {label: e.rank for label, e in found.items()} == {'alibi': 1, 'rope': 2, 'nope': None}
  assert found['nope'].faults == ('in-distribution gate failed: exact match up to 16 0.400, below 0.8',)


OF_TASK = {'data.task_max_length': 16, 'data.source': 'task', 'data.name': 'copy'}


def test_a_task_of_which_no_trained_length_was_tested_has_no_rank(tmp_path):
  written.run(tmp_path / 'a', written.config(**OF_TASK), [task(20, 0.9), task(24, 0.8)])
  (found,) = of(tmp_path, 'task').values()
  assert (found.rank, found.faults) == (None, ('in-distribution gate failed: no length that training reached was tested',))


def test_the_training_length_of_a_task_is_not_the_longest_that_was_tested(tmp_path):
  groups = {'by_unit': {'unit': 'group', 'right': [20] * 25, 'trials': [20] * 25}}
  written.run(tmp_path / 'a', written.config(**OF_TASK), [task(8, 1.0, **groups), task(20, 1.0, **groups)])
  (found,) = of(tmp_path, 'task').values()
  assert (found.lengths.reliable.reference, found.lengths.reliable.lengths) == (16, (20,))
  assert found.lengths.reliable.protocol == 'copy, exact match as a share of that at 8'


def test_other_tasks_texts_and_splits_are_readings_of_their_own(tmp_path):
  rows = [task(16, 0.99), task(32, 0.9), task(16, 0.98, **{'split': 'validation'}), task(16, 0.5) | {'task': 'copy(symbols=3)'}]
  written.run(tmp_path / 'a' / 'copy', written.config(**OF_TASK), rows)
  made = readings.of_runs(results.scan(tmp_path / 'a'))
  assert [(r.label, sorted(r.at('task'))) for r in made] == [
    ('rope', [16, 32]),
    ('rope, on validation', [16]),
    ('rope, tested on copy(symbols=3)', [16]),
  ]
  assert len(next(c for c in charts.of_readings(made) if c.name == 'training_loss').curves) == 1
  texts = [written.row('sliding', 'rope', n, 2.0 + n / 1000, split=f'text:{name}', targets=name) for name in 'ab' for n in (64, 128)]
  written.run(tmp_path / 'b' / 'run', written.config(), texts)
  found = of(tmp_path / 'b', 'sliding')
  assert {label: (e.rank, e.faults) for label, e in found.items()} == {'rope, on text:a': (1, ()), 'rope, on text:b': (1, ())}


def test_runs_on_different_tasks_are_ranked_apart_whatever_their_targets(tmp_path):
  for name in ('copy', 'reverse'):
    for encoding, exact in (('rope', 0.9), ('alibi', 0.95)):
      rows = [task(n, exact) | {'task': name, 'asked_encoding': encoding, 'trained_encoding': encoding} for n in (16, 32)]
      written.run(tmp_path / f'{name}_{encoding}', written.config(encoding, **OF_TASK | {'data.name': name}), rows)
  found = of(tmp_path, 'task')
  assert {label: e.rank for label, e in found.items()} == {
    'alibi, name=copy': 1, 'rope, name=copy': 2, 'alibi, name=reverse': 1, 'rope, name=reverse': 2
  }  # fmt: skip


def test_windows_that_went_on_by_other_strides_are_not_compared(tmp_path):
  for name, stride in (('rope', 16), ('alibi', 16), ('nope', 1)):
    rows = [written.row('sliding', name, n, 2.0, stride=stride * n // 64 if stride > 1 else 1) for n in (64, 128)]
    written.run(tmp_path / name, written.config(name), rows)
  found = of(tmp_path, 'sliding')
  assert {label: e.rank is None for label, e in found.items()} == {'rope': False, 'alibi': False, 'nope': True}
  assert found['nope'].faults == ('not comparable: windows went on by other strides than the others at 64, 128',)
  written.jsonl(tmp_path / 'rope' / 'eval' / 'sliding.jsonl', [written.row('sliding', 'rope', 128, 1.9, stride=1)])
  (run,) = (run for run in results.scan(tmp_path) if run.name == 'rope')
  assert 'sliding: strides 16 at 64, 1 at 128, which are not to be put on one curve' in run.warnings


def test_runs_that_began_from_seeds_of_one_run_are_seeds_of_one_another(tmp_path):
  for seed in (0, 1):
    written.run(tmp_path / f'rope-{seed}', written.config(seed=seed))
    written.run(tmp_path / f'long-{seed}', written.config('alibi', seed=seed))
    for source in ('rope', 'long'):
      where = str(tmp_path / f'{source}-{seed}')
      written.run(tmp_path / f'tuned {source}-{seed}', written.config('linear', seed=seed, init_from=where))
  gone = written.config('linear', seed=2, init_from='/nowhere/rope-2')
  written.run(tmp_path / 'gone', gone)
  found = {r.label: r.seeds for r in readings.of_runs(results.scan(tmp_path)) if r.trained == 'linear'}
  assert sorted(found.values()) == [[0, 1], [0, 1], [2]]
  assert sum(label.startswith('linear, init_from=rope ') for label in found) == 1


def test_seeds_make_a_band_from_the_least_to_the_largest(tmp_path):
  written.sweep(tmp_path, ['alibi'], seeds=(0, 1, 2))
  made = {chart.name: chart for chart in charts.of_readings(readings.of_runs(results.scan(tmp_path)))}
  assert set(made) == {
    'context_difference', 'context_shuffled_far', 'position_prefix', 'position_nonoverlapping', 'length_nonoverlapping', 'length_prefix',
    'training_loss', 'training_validation_loss',
  }  # fmt: skip
  (curve,) = made['length_nonoverlapping'].curves
  assert curve.x == [64, 91, 128, 256]
  np.testing.assert_allclose([curve.low[0], curve.y[0], curve.high[0]], [1.6, 1.61, 1.62])
  (position,) = made['position_prefix'].curves
  assert position.x[0] == 4  # the middle of the first eight positions
  np.testing.assert_allclose(np.diff(position.y)[np.searchsorted(position.x, 64) - 1], 0.5)  # buckets are not joined across L
  assert charts.thinned([(n, float(n)) for n in range(1, 9)], most=4) == [(2, 1.5), (4, 3.5), (6, 5.5), (8, 7.5)]
