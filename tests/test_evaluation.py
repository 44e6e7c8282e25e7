"""Evaluation: every target once at every length, the same numbers however it is computed, and rows that say what was measured."""

import dataclasses
import json
import math

import jax
import numpy as np
import pytest
import tiny_runs as runs

import pe_jax
from pe_jax import encodings, evaluate, flops, model, resolve
from pe_jax.errors import ConfigError, NotFinite
from pe_jax.evaluate import prefix, result, score
from pe_jax.report import protocols

pytestmark = pytest.mark.xdist_group('evaluation')  # what is made once in a process is used by all of the file


@pytest.fixture(autouse=True, scope='module')
def quick():
  with runs.quick_compiles():
    yield


def subject(encoding='rope', sharp=3.0, **changes):
  """A Subject with fresh parameters, large enough that positions matter, on the run's validation text."""
  config = resolve.resolve(runs.config(encoding=encoding, **changes))
  params = model.init(config, encodings.make(encoding, model.dims(config)), jax.random.PRNGKey(0))
  return evaluate.subject(config, jax.tree.map(lambda x: sharp * x if x.ndim > 1 else x, params), 'validation')


def nll(rows):
  return {(r['encoding'], r['length']): r['nll'] for r in rows}


def test_evaluating_twice_gives_the_same_rows():
  run = pe_jax.load(runs.trained('rope'))
  first, second = (run.evaluate([16, 32], protocols=['nonoverlapping', 'prefix'], split='validation') for _ in range(2))
  assert first == second
  assert all(r['targets'] > 0 for r in first)
  assert len(first) == 4


def test_every_target_is_scored_once_at_every_length():
  s = subject()
  want = sum(len(d) for d in s.documents)  # with a BOS every token is a target
  for row in evaluate.evaluate(s, [1, 7, 40, 500]):
    assert row['targets'] == want == s.info['targets']
    assert row['documents'] == len(s.documents)
    assert sum(b['targets'] for b in row['position_buckets']) == want
    mean = sum(b['nll'] * b['targets'] for b in row['position_buckets']) / want
    assert mean == pytest.approx(row['nll'], abs=1e-9)


def test_the_loss_does_not_depend_on_the_batch(monkeypatch):
  s = subject()
  want = evaluate.evaluate(s, [16])[0]
  for tokens in (1, 16 * 24, 16 * 1000):  # 8 rows a batch; 24, with a short last one; all in one
    monkeypatch.setattr(score, 'TOKENS_A_BATCH', tokens)
    got = evaluate.evaluate(s, [16])[0]
    assert got['targets'] == want['targets']
    assert got['nll'] == pytest.approx(want['nll'], abs=2e-6)


def test_one_device_and_eight_agree(monkeypatch):
  s = subject()
  want = evaluate.evaluate(s, [16, 48])
  one = jax.devices()[:1]
  monkeypatch.setattr(jax, 'devices', lambda *_: one)
  monkeypatch.setattr(jax, 'device_count', lambda: 1)
  got = evaluate.evaluate(s, [16, 48])
  assert [r['device_count'] for r in got] == [1, 1]
  assert [r['device_count'] for r in want] == [8, 8]
  for a, b in zip(got, want):
    assert a['nll'] == pytest.approx(b['nll'], abs=1e-5)


def test_a_row_is_strict_json_and_says_what_was_measured(tmp_path):
  run = pe_jax.load(runs.trained('rope'))
  rows = run.evaluate([16], ['nope'], protocols=['nonoverlapping', 'prefix'], split='validation')
  evaluate.write(tmp_path, rows)
  evaluate.write(tmp_path, rows)
  for protocol in ('nonoverlapping', 'prefix'):
    lines = (tmp_path / 'eval' / f'{protocol}.jsonl').read_text().splitlines()
    assert len(lines) == 2
    row = json.loads(lines[0], parse_constant=pytest.fail)
    wanted = 'encoding trained_encoding length train_length protocol nll ppl bits_per_byte targets documents position_buckets backend'
    assert not set(f'{wanted} device_kind device_count config_hash step split documents_sha256'.split()) - set(row)
    assert (row['encoding'], row['trained_encoding'], row['protocol'], row['length'], row['train_length']) == (
      'nope',
      'rope',
      protocol,
      16,
      16,
    )
    assert row['ppl'] == pytest.approx(math.exp(row['nll']))
    assert row['bits_per_byte'] == pytest.approx(row['nll'] / math.log(2))  # a token is a byte


def test_a_map_takes_its_factor_from_the_length_and_the_row_has_both_names():
  rows = evaluate.evaluate(subject('yarn'), [16, 32, 64])
  assert [(r['encoding'], r['asked_encoding'], r['trained_encoding']) for r in rows] == [
    ('yarn(factor=1)', 'yarn', 'yarn'),
    ('yarn(factor=2)', 'yarn', 'yarn'),
    ('yarn(factor=4)', 'yarn', 'yarn'),
  ]
  rope = evaluate.evaluate(subject('rope'), [16])
  assert rows[0]['nll'] == rope[0]['nll']  # factor 1 is RoPE bit for bit


def test_a_map_reads_the_base_that_was_trained():
  s = subject('rope(base=500)')
  rows = nll(evaluate.evaluate(s, [32], ['yarn(factor=2)', 'rope', 'rope(base=10000)', 'nope']))
  assert set(rows) == {(e, 32) for e in ('yarn(factor=2, base=500)', 'rope(base=500)', 'rope', 'nope')}
  assert len(set(rows.values())) == 4


def test_a_map_stands_where_rope_stood_and_a_row_names_what_a_reading_leaves_out():
  s = subject('layers(rope(base=500), nope)', model__num_layers=2)
  rows = evaluate.evaluate(s, [32], ['rope', 'yarn(factor=2)', 'layers(rope)', 'alibi'])
  assert [(row['encoding'], row['left_out']) for row in rows] == [
    ('layers(rope(base=500), nope)', ''),
    ('layers(yarn(factor=2, base=500), nope)', ''),
    ('layers(rope(base=500))', 'nope'),
    ('alibi', 'nope, rope(base=500)'),
  ]
  assert len({row['nll'] for row in rows}) == 4


@pytest.mark.parametrize('encoding', ['rope', 'alibi', 'sinusoidal'])
def test_one_pass_over_the_longest_prefix_is_all_the_shorter_ones(encoding, monkeypatch):
  s, lengths = subject(encoding), [8, 16, 24, 48]
  passes = []
  monkeypatch.setattr(score, 'by_position', counted(score.by_position, passes))
  together = evaluate.evaluate(s, lengths, wanted=['prefix'])
  assert passes == [48]
  one_by_one = [r for n in lengths for r in separately(s, n, 48)]
  for row, (values, weights) in zip(together, one_by_one):
    assert row['targets'] == weights.sum() == row['length'] * row['windows']
    assert row['nll'] == pytest.approx(values.sum() / weights.sum(), abs=2e-6)


@pytest.mark.parametrize('encoding', ['dynamic_ntk', 'yarn', "learned(overflow='interpolate')", 'randomized(rope, range=64)'])
def test_what_depends_on_the_length_is_run_once_a_length(encoding, monkeypatch):
  s, passes = subject(encoding), []
  monkeypatch.setattr(score, 'by_position', counted(score.by_position, passes))
  together = evaluate.evaluate(s, [24, 48, 32], wanted=['prefix'])
  assert passes == [48, 32, 24]
  for row, n in zip(together, [24, 32, 48]):
    ((values, weights),) = separately(s, n, 48)
    assert row['nll'] == pytest.approx(values.sum() / weights.sum(), abs=2e-6)


def counted(function, passes):
  def call(config, enc, params, rows, *more):
    passes.append(rows.tokens_BT.shape[1])
    return function(config, enc, params, rows, *more)

  return call


def separately(s, length, longest):
  """[(sum of losses, targets)] by position of the first `length` tokens of the longest windows, as documents of their own."""
  rows = evaluate.data.packing.windows(s.documents, longest, s.tokenizer.bos)
  rows = prefix.cut(rows.take(np.flatnonzero((rows.weight_BT.sum(1) == longest) & (rows.doc_BT.max(1) == 1))), length)
  spec = s.at_length(encodings.parse(s.config.encoding), length)
  enc = encodings.make(spec, model.dims(s.config), length)
  return [score.by_position(s.config, enc, s.params, rows, lambda tokens: None)]


def test_all_prefixes_come_from_the_same_windows():
  rows = evaluate.evaluate(subject(), [16, 48], wanted=['prefix'])
  assert len({r['windows'] for r in rows}) == 1
  assert rows[0]['targets'] * 3 == rows[1]['targets']


def test_progress_is_told_the_work_of_every_token():
  s, seen = subject(), []
  rows = evaluate.data.packing.windows(s.documents, 16, s.tokenizer.bos)
  s.by_position('rope', 16, rows, seen.append)
  assert sum(seen) >= rows.tokens_BT.size * flops.forward(s.config, 16) / 1e9


def test_a_loss_that_is_not_finite_is_a_sentence():
  s = subject()
  broken = evaluate.Subject(s.config, jax.tree.map(lambda x: x * np.nan, s.params), s.tokenizer, s.documents, s.info)
  with pytest.raises(NotFinite, match=r'^lengths: losses are nan at 16 under rope \(nonoverlapping\) \(leave out'):
    evaluate.evaluate(broken, [16])


def test_what_is_finite_is_kept_whatever_is_not(monkeypatch):
  plain, kept = evaluate.Subject.by_position, []

  def broken(self, spec, length, rows, advance):
    nll_T, weight_T = plain(self, spec, length, rows, advance)
    return nll_T + np.where((length == 48) & ('yarn' in str(spec)), np.inf, 0), weight_T

  monkeypatch.setattr(evaluate.Subject, 'by_position', broken)
  with pytest.raises(NotFinite, match=r'losses are inf at 48 under yarn \(nonoverlapping\)'):
    evaluate.evaluate(subject(), [16, 48], ['yarn', 'rope'], keep=kept.append)
  assert [[(r['asked_encoding'], r['length']) for r in rows] for rows in kept] == [[('rope', 16), ('rope', 48)], [('yarn', 16)]]


def test_what_is_asked_twice_is_measured_once():
  rows = evaluate.evaluate(subject(), [32, 16, 32], ['yarn', 'rope', 'yarn', 'rope(base=10000)'])
  assert [(r['asked_encoding'], r['length']) for r in rows] == [('yarn', 16), ('rope', 16), ('yarn', 32), ('rope', 32)]


def test_documents_that_are_too_short_for_the_accounting_are_evaluated_all_the_same():
  s = subject()
  short = dataclasses.replace(s, documents=[d[:9] for d in s.documents])
  rows = evaluate.evaluate(short, [16, 32], wanted=['nonoverlapping'])
  assert ['accounting' in r for r in rows] == [False, False]
  assert 'no accounting, since no document is long enough to say what 12 tokens of context are worth' in protocols.text(rows)


def test_how_much_text_stands_before_a_target_is_told():
  s = subject()
  plain, slid = (evaluate.evaluate(s, [8], wanted=[name], options=evaluate.Options(stride=2))[0] for name in ('nonoverlapping', 'sliding'))
  rows = evaluate.data.packing.sliding(s.documents, 8, 2, s.tokenizer.bos)
  assert slid['context_mean'] == pytest.approx((rows.pos_BT + 1)[rows.weight_BT > 0].mean())
  assert plain['context_mean'] < slid['context_mean'] <= 8
  assert f'sliding {slid["context_mean"]:.4g} at 8 (stride 2)' in protocols.text([plain, slid])


@pytest.mark.parametrize(
  ('lengths', 'specs', 'wanted', 'match'),
  [
    ([], None, ['prefix'], 'must be one or more'),
    ([0], None, ['prefix'], 'each at least 1'),
    ([16], ['learned(max_length=8)'], ['prefix'], 'has 8 positions and cannot serve length 16'),
    ([17], ['learned'], ['prefix'], 'has 16 positions and cannot serve length 17'),
    (
      [16],
      ['rope', 't5'],
      ['prefix'],
      r"'t5' reads the learned parameter \['table'\] of shape \(32, 2\), and the checkpoint does not have it",
    ),
    ([16], ['ropes'], ['prefix'], r"did you mean 'rope'"),
    ([16], None, ['slide'], 'there are context, nonoverlapping, sliding, buckets, prefix'),
  ],
)
def test_what_cannot_be_measured_is_refused_first(lengths, specs, wanted, match, monkeypatch):
  monkeypatch.setattr(score, 'by_position', lambda *_: pytest.fail('computed'))
  with pytest.raises(ConfigError, match=match):
    evaluate.evaluate(subject(), lengths, specs, wanted)


def test_buckets_are_means_of_positions():
  rows = result.buckets(np.arange(5.0), np.asarray([1.0, 1, 2, 1, 0]), 2)
  assert rows[0] == {'start': 0, 'end': 2, 'nll': 0.5, 'targets': 2}
  assert rows[1] == {'start': 2, 'end': 4, 'nll': 5 / 3, 'targets': 3}
  assert len(rows) == 2  # nobody stood at position 4
