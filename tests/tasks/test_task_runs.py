"""Tasks as data: training batches by seed, step and row, test sets that training cannot have seen, runs and their evaluation."""

import itertools
import json
import shutil

import jax
import numpy as np
import pytest
import tiny_runs as runs
from ml_collections import ConfigDict

import pe_jax
from pe_jax import data, evaluate, model, resolve, tasks, train
from pe_jax.data import tokenizer
from pe_jax.errors import ConfigError, DataError, NotFinite
from pe_jax.evaluate import lengths as three
from pe_jax.evaluate import task as protocol
from pe_jax.report import protocols, table
from pe_jax.statistics.reach import Reach
from pe_jax.tasks import batches, samples

pytestmark = pytest.mark.xdist_group('tasks')


@pytest.fixture(autouse=True, scope='module')
def quick():
  with runs.quick_compiles():
    yield


def config(name='copy(symbols=4)', longest=6, **changes):
  """A tiny config on a task, as written."""
  width = changes.pop('train_length', tasks.make(name).positions(longest))
  lengths = {'data__task_max_length': longest}
  return runs.config(data__source='task', data__name=name, train_length=width, **(lengths | changes))


def stream(name='copy(symbols=4)', processes=(0, 1), **changes):
  c = resolve.resolve(config(name, **changes))
  return batches.TaskBatches(tasks.make(name), c, *processes)


def lengths_of(batch):
  """Of copy: half of a row's tokens without BOS and the two marks."""
  return ((batch['doc'].sum(1) - 3) // 2).tolist()


def same(a, b):
  return sorted(a) == sorted(b) and all((a[k] == b[k]).all() and a[k].dtype == b[k].dtype for k in a)


def test_a_batch_is_a_function_of_seed_and_step_and_resumes_anywhere():
  straight = list(itertools.islice(stream(), 6))
  assert {k: (v.shape, v.dtype.name) for k, v in straight[0].items()} == {
    **{k: ((8, 15), 'int32') for k in ('tokens', 'targets', 'doc', 'pos')},
    'weight': ((8, 15), 'float32'),
    'row': ((8,), 'int32'),
  }
  for step in range(6):
    resumed = stream()
    resumed.set_state(json.loads(json.dumps({'step': step})))
    assert same(next(resumed), straight[step])
    assert resumed.state() == {'step': step + 1}
  assert not same(straight[0], straight[1])
  assert not same(straight[0], next(stream(seed=1)))
  halves = [next(stream(processes=(p, 2))) for p in range(2)]
  assert same({k: np.concatenate([h[k] for h in halves]) for k in halves[0]}, straight[0])
  with pytest.raises(DataError, match='not of a task'):
    stream().set_state({'epoch': 0, 'block': 0, 'row': 0})
  with pytest.raises(ConfigError, match='do not divide among 3 processes'):
    stream(processes=(0, 3))


def test_a_row_is_bos_and_one_sample_with_weight_on_the_answer_alone():
  task, seen = tasks.make('copy(symbols=4)'), 0
  for batch in itertools.islice(stream(), 10):
    for tokens, targets, weight, doc, pos in zip(*(batch[k] for k in ('tokens', 'targets', 'weight', 'doc', 'pos'))):
      n = doc.sum()
      assert tokens[0] == task.bos
      assert (tokens[1:n] == targets[: n - 1]).all()
      words = [task.words[i] for i in tokens[1:n]]
      half = (n - 3) // 2
      assert words == [*words[:half], '>', *words[:half], '.']
      assert weight.nonzero()[0].tolist() == list(range(half + 1, n - 1))
      assert (doc[:n] == 1).all()
      assert (doc[n:] == 0).all()
      assert pos.tolist() == [*range(n), *[0] * (len(pos) - n)]
      seen |= 1 << half
  assert seen == 0b1111110


def test_lengths_are_uniform_or_biased_to_long_ones():
  for sampling, want in (('uniform', [1 / 4] * 4), ('long', [1 / 16, 3 / 16, 5 / 16, 7 / 16])):
    found = stream(data__task_min_length=3, data__task_sampling=sampling, batch_size=64)
    lengths = [n for batch in itertools.islice(found, 40) for n in lengths_of(batch)]
    np.testing.assert_allclose(np.bincount(lengths, minlength=7)[3:] / len(lengths), want, atol=0.03)


def test_a_curriculum_grows_from_the_shortest_length_to_the_longest():
  growing = stream(data__task_curriculum=0.5, num_train_steps=40, data__task_min_length=2)
  assert [growing.lengths_at(step)[-1] for step in (0, 4, 5, 10, 15, 19, 20, 39)] == [2, 2, 3, 4, 5, 5, 6, 6]
  assert {growing.lengths_at(step)[0] for step in range(40)} == {2}
  assert max(lengths_of(next(growing))) == 2
  assert [n[-1] for n in map(stream().lengths_at, (0, 3))] == [6, 6]


def test_no_test_sample_can_have_been_trained_on():
  task = tasks.make('parity_check')
  test = samples.test_set(task, 'test', 8, 200, 8)
  strings = [np.asarray([*bits, 2, sum(bits) % 2], np.int32) for bits in itertools.product((0, 1), repeat=8)]
  held_out = {tokens.tobytes() for tokens, _ in test.samples}
  assert test.disjoint
  assert test.distinct == len(held_out) <= 256 * 0.2
  trained = set()
  for batch in itertools.islice(stream('parity_check', longest=8, data__task_min_length=8, batch_size=64), 60):
    trained |= {tokens[1:].tobytes() for tokens in batch['tokens']}
  assert not trained & held_out
  assert len(trained) == sum(samples.role_of(x) == 'train' for x in strings), 'all others'
  validation = samples.test_set(task, 'validation', 8, 50, 8)
  assert not {tokens.tobytes() for tokens, _ in validation.samples} & (held_out | trained)


def test_a_test_set_is_fixed_and_says_where_training_shares_it():
  task = tasks.make('parity_check')
  first, again, other = (samples.test_set(task, 'test', 30, n, 30) for n in (20, 20, 10))
  assert first.sha256 == again.sha256 != other.sha256
  assert all((a == b).all() for (a, _), (b, _) in zip(first.samples, other.samples)), 'more samples, and the same first ones'
  assert {len(tokens) for tokens, _ in first.samples} == {32}
  tiny = samples.test_set(task, 'test', 1, 20, 30)
  assert (tiny.disjoint, tiny.distinct) == (False, 2)
  assert not samples.test_set(tasks.make('copy'), 'test', 1, 1, 30).disjoint, '26 letters'
  assert samples.test_set(tasks.make('copy'), 'test', 2, 1, 30).disjoint
  longer = samples.test_set(task, 'test', 31, 20, 30)
  assert (longer.disjoint, longer.distinct) == (True, 20)
  with pytest.raises(ConfigError, match='has no samples of length 27'):
    samples.test_set(tasks.make('copy(draw="distinct")'), 'test', 27, 1, 9)


def test_validation_rows_have_as_many_of_each_length():
  c = resolve.resolve(config(eval_targets=200))
  rows = batches.validation_rows(tasks.make('copy(symbols=4)'), c)
  lengths = lengths_of({'doc': rows.doc_BT})
  assert sorted(set(lengths)) == [1, 2, 3, 4, 5, 6]
  assert set(np.bincount(lengths)[1:]) == {200 // sum(range(2, 8))}


def test_the_tokenizer_reads_and_writes_the_words_of_the_task():
  words = tokenizer.make('task:copy(symbols=3)')
  assert (words.vocab_size, words.bos) == (6, 5)
  assert words.encode(b'a c > a  c .').tolist() == [0, 2, 3, 0, 2, 4]
  assert words.decode([5, 0, 2, 3]) == 'a c >'
  with pytest.raises(DataError, match=r"'d' is no word of copy\(symbols=3\)"):
    words.encode(b'a d')


def test_a_resolved_config_has_the_words_of_the_task_and_resolves_to_itself():
  c = resolve.resolve(config('copy( draw="random", symbols=4)'))
  assert (c.data.name, c.data.tokenizer, c.model.vocab_size) == ('copy(symbols=4)', 'task:copy(symbols=4)', 7)
  assert c.data.packing == 'pad', 'one document a row, as attention is told'
  assert resolve.resolve(ConfigDict(c.to_dict())).to_json() == c.to_json()


def test_a_task_has_no_documents():
  with pytest.raises(ConfigError, match=r"^data.source: 'task' makes samples and has no documents"):
    data.open_documents(config().data, 'test')


@pytest.mark.parametrize(
  ('changes', 'match'),
  [
    ({'name': 'copi', 'train_length': 9}, r"^data.name: 'copi' is unknown \(did you mean 'copy'"),
    ({'name': '', 'train_length': 9}, r"^data.name: source 'task' needs one"),
    (
      {'train_length': 14},
      r'^train_length: 14 positions cannot hold copy\(symbols=4\) of length 6, which takes 15 \(set train_length=15, or lower',
    ),
    ({'data__tokenizer': 'some.model'}, r"^data.tokenizer: 'some.model', and a task brings its own words"),
    ({'data__task_min_length': 7}, r'^data.task_max_length: 6 leaves copy\(symbols=4\) no length from data.task_min_length=7 on'),
    ({'name': 'solve_equation', 'longest': 2}, r'^data.task_max_length: solve_equation has no samples of length 2'),
    ({'data__task_sampling': 'longest'}, r"^data.task_sampling: 'longest' is unknown"),
    ({'data__task_curriculum': 1.5}, r'^data.task_curriculum: 1.5 is a share of the steps and must be at most 1'),
    ({'data__task_max_length': 0}, r'^data.task_max_length: 0 must be at least 1'),
  ],
)
def test_settings_that_cannot_work_are_told_in_a_sentence(changes, match):
  c = runs.config(data__source='task', data__name=changes.pop('name', 'copy(symbols=4)'), data__task_max_length=changes.pop('longest', 6))
  c.train_length = 15
  for key, value in changes.items():
    c.update_from_flattened_dict({key.replace('__', '.'): value})
  with pytest.raises(ConfigError, match=match) as error:
    resolve.resolve(c)
  assert '\n' not in str(error.value)


def test_a_run_goes_on_where_it_was_and_is_tested_at_other_lengths(tmp_path):
  c = config('brackets(kinds=2)', num_train_steps=6, checkpoint_every_steps=3, data__task_curriculum=0.5, encoding='learned(max_length=41)')
  train.run(c, tmp_path / 'run')
  done = (tmp_path / 'run' / 'DONE').read_bytes(), (tmp_path / 'run' / 'metrics.jsonl').read_bytes()
  (tmp_path / 'run' / 'DONE').unlink()
  shutil.rmtree(tmp_path / 'run' / 'checkpoints' / '6')
  train.run(c, tmp_path / 'run')
  assert ((tmp_path / 'run' / 'DONE').read_bytes(), (tmp_path / 'run' / 'metrics.jsonl').read_bytes()) == done

  run = pe_jax.load(tmp_path / 'run')
  rows = run.evaluate([1, 19], samples=24)
  assert run.evaluate([1], samples=24) == rows[:1]
  assert [(r['protocol'], r['length'], r['row_length'], r['samples']) for r in rows] == [('task', n, 2 * n + 3, 24) for n in (1, 19)]
  for row in rows:
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    assert row['exact_match'] == row['generated_exact_match'], 'reading the right answer and decoding one agree'
    assert 0 <= row['exact_match_low'] <= row['exact_match'] <= row['exact_match_high'] <= 1
    assert row['exact_match'] <= row['format_compliance']
    assert row['chance_token_accuracy'] == 1 / 3
    assert row['nll'] > 0
    assert row['bits_per_byte'] is None
  assert [r['disjoint'] for r in rows] == [False, True]
  (lengths,) = three.of_rows(evaluate.subject(run.config, run.params, samples=24), rows)
  assert (lengths.acceptable, lengths.computable) == (Reach(19, 20), Reach(19))  # 2 x 19 + 3 of 41 positions
  assert (lengths.reliable.reference, lengths.reliable.lengths, lengths.reliable.metric) == (6, (19,), 'accuracy')
  assert 'groups of samples' in protocols.text(rows, [lengths])
  for row in rows:
    assert sum(row['by_unit']['right']) == pytest.approx(row['exact_match'] * 24)
    assert sum(row['by_unit']['trials']) == 24
  evaluate.write(tmp_path / 'run', rows)
  assert len((tmp_path / 'run' / 'eval' / 'task.jsonl').read_text().splitlines()) == 2
  printed = table.tasks(rows)
  assert 'trained with' in printed
  assert 'unsupported' in printed
  assert 'keep some from training: 1' in printed
  assert run.generate('( [ >', 3, temperature=0).text[0].startswith('( [ > ')
  for wrong, match in [
    ({'lengths': [4], 'protocols': ['prefix']}, r"'prefix' does not fit a run that was trained on a task \(take task\)"),
    ({'lengths': [20]}, r'has 41 positions and cannot serve length 43'),
    ({'lengths': [4], 'task': 'brackets(kinds=1)'}, r'has other words than brackets\(kinds=2\)'),
  ]:
    with pytest.raises(ConfigError, match=match):
      run.evaluate(**wrong)


def fresh(name, longest=6, **changes):
  """(resolved config, Subject) with fresh parameters."""
  c = resolve.resolve(config(name, longest=longest, **changes))
  enc = pe_jax.encodings.make(c.encoding, model.dims(c))
  params = jax.tree.map(lambda x: 3 * x if x.ndim > 1 else x, model.init(c, enc, jax.random.PRNGKey(0)))
  return c, evaluate.subject(c, params, samples=20)


def test_loss_and_accuracies_are_those_of_one_sample_after_the_other():
  c, s = fresh('recall(keys=8, values=4, queries=2)')
  (row,) = evaluate.evaluate(s, [5])
  enc, nll, right, exact = s.encoding('rope', 16), [], [], []
  apply = jax.jit(lambda ids, where: model.apply(c, enc, s.params, ids, where))
  for tokens, answer in samples.test_set(s.task, 'test', 5, 20, 6).samples:
    ids = np.append(s.task.bos, tokens)[None]
    where = pe_jax.encodings.base.Where.forward(np.arange(len(ids[0]))[None], np.ones_like(ids), True)
    logits = np.asarray(apply(ids, where), np.float64)[0, :-1][answer]
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    nll += (-logp[np.arange(2), tokens[answer]]).tolist()
    right += (logits.argmax(-1) == tokens[answer]).tolist()
    exact.append(all(right[-2:]))
  assert row['nll'] == pytest.approx(np.mean(nll), abs=1e-5)
  assert (row['token_accuracy'], row['exact_match'], row['targets']) == (np.mean(right), np.mean(exact), 40)
  assert row['chance_exact_match'] == 1 / 16


def test_nothing_is_generated_where_losses_are_no_numbers(monkeypatch):
  """It would end the evaluation before what is finite is kept."""
  _, s = fresh('brackets')
  plain, answer, kept = protocol.teacher_forced, protocol.generated, []

  def broken(config, enc, params, rows, advance):
    nll_BT, right_BT = plain(config, enc, params, rows, advance)
    return nll_BT + (np.nan if nll_BT.shape[1] > s.positions(2) else 0), right_BT

  def answered(config, enc, params, task, at_length):
    assert len(at_length[0][0]) <= s.positions(2), 'generated where losses are no numbers'
    return answer(config, enc, params, task, at_length)

  monkeypatch.setattr(protocol, 'teacher_forced', broken)
  monkeypatch.setattr(protocol, 'generated', answered)
  with pytest.raises(NotFinite, match=r'losses are nan at 6 under rope \(task\)'):
    evaluate.evaluate(s, [2, 6], keep=kept.append)
  assert [(row['length'], row['not_finite'], 'format_compliance' in row) for row in kept[0]] == [(2, [6], True)]


def test_a_markov_row_has_the_loss_above_the_optimum():
  _, s = fresh('markov(symbols=3)', longest=16)
  (row,) = evaluate.evaluate(s, [16])
  floor = [s.task.floor(tokens)[1:].mean() for tokens, _ in samples.test_set(s.task, 'test', 16, 20, 16).samples]
  assert row['optimal_nll'] == pytest.approx(np.mean(floor))
  assert row['nll_above_optimum'] == pytest.approx(row['nll'] - np.mean(floor), abs=1e-6)
  assert sum(b['targets'] for b in row['above_optimum_buckets']) == row['targets'] == 300
  mean = sum(b['nll'] * b['targets'] for b in row['above_optimum_buckets']) / 300
  assert mean == pytest.approx(row['nll_above_optimum'])
  assert 'above optimum' in table.tasks([row])


def test_another_task_in_the_same_words_can_be_tested():
  c, s = fresh('flip_flop')
  sparse = evaluate.subject(c, s.params, samples=20, task='flip_flop(ignore=.98)')
  rows = [evaluate.evaluate(one, [6])[0] for one in (s, sparse)]
  assert [r['task'] for r in rows] == ['flip_flop', 'flip_flop(ignore=0.98)']
  assert rows[0]['targets'] > rows[1]['targets'] >= 20


def test_accuracies_of_answers_that_are_known():
  task = tasks.make('copy(symbols=4)')
  right_BT = np.asarray([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 1]], bool)
  weight_BT = np.asarray([[0, 0, 1, 1, 1], [0, 1, 1, 0, 0], [0, 0, 1, 1, 0]], np.float32)
  found = protocol.accuracies(task, right_BT, weight_BT, 3)
  assert (found['samples'], found['exact_match'], found['token_accuracy']) == (3, 2 / 3, 5 / 7)
  assert found['correct_prefix'] == (3 + 2 + 0) / 3
  assert found['chance_exact_match'] == pytest.approx((5**-3 + 2 * 5**-2) / 3)
  assert (found['exact_match_low'], found['exact_match_high']) == pytest.approx((0.2077, 0.9385), abs=1e-4)  # Wilson for 2 of 3
  right_BT, weight_BT = np.tile(right_BT, (100, 1)), np.tile(weight_BT, (100, 1))
  again = protocol.accuracies(task, right_BT, weight_BT, 3)  # a hundred times the same three: as sure as of three
  assert (again['exact_match_low'], again['exact_match_high']) == pytest.approx((0.2077, 0.9385), abs=1e-4)
