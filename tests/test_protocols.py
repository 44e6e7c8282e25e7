"""The protocols on a text of twenty tokens, against what comes out by hand, and on a model against each other."""

import dataclasses
import json
import math

import jax
import numpy as np
import pytest
import tiny_runs as runs

from pe_jax import encodings, evaluate
from pe_jax.data import packing
from pe_jax.errors import ConfigError, DataError
from pe_jax.evaluate import buckets, context, nonoverlapping, prefix, sliding
from pe_jax.evaluate import lengths as three
from pe_jax.report import protocols as report

pytestmark = pytest.mark.xdist_group('evaluation')
BOS = 256
OF_TEXT = ['context', 'nonoverlapping', 'sliding', 'buckets', 'prefix']
TEXT = np.arange(100, 120, dtype=np.int32)
OTHER = np.arange(200, 220, dtype=np.int32)


@dataclasses.dataclass(frozen=True)
class Tokenizer:
  bos: int | None = BOS
  byte_length_V: np.ndarray = dataclasses.field(default_factory=lambda: np.append(np.ones(BOS, np.int32), 0))


@dataclasses.dataclass(frozen=True)
class ByHand(evaluate.Subject):
  """A subject whose model costs `nats(tokens before the target in its window, positions)`, so that every number can be told beforehand."""

  nats: object = None

  def at_length(self, spec, length):
    return spec

  def length_dependent(self, spec, length):
    return False

  def scored(self, spec, length, rows, advance):
    yield rows, self.nats(rows.tokens_BT, rows.pos_BT) * rows.weight_BT.astype(np.float64)

  def by_position(self, spec, length, rows, advance):
    nll_BT = self.nats(rows.tokens_BT, rows.pos_BT) * rows.weight_BT
    return tuple(np.bincount(rows.pos_BT.ravel(), x.ravel(), length) for x in (nll_BT, rows.weight_BT))


def by_hand(nats=lambda tokens, pos: 1.0 / (1 + pos), documents=(TEXT,), train=4, bos=BOS):
  config = runs.config(train_length=train)
  info = {'targets': sum(len(d) for d in documents), 'bytes': sum(len(d) for d in documents), 'documents': len(documents)}
  return ByHand(config, {}, Tokenizer(bos), list(documents), info | {'documents_sha256': ''}, nats=nats)


def found(module, subject, lengths, **options):
  return list(module.measure(subject, 'x', lengths, evaluate.Options(**options), lambda tokens: None))


def loss(measured):
  return measured.nll_T.sum() / measured.weight_T.sum()


def test_non_overlapping_windows_of_twenty_tokens():
  """Windows of 8, 8 and 4: the positions 0 .. 7 are seen 3, 3, 3, 3, 2, 2, 2, 2 times."""
  (m,) = found(nonoverlapping, by_hand(), [8])
  assert m.weight_T.tolist() == [3, 3, 3, 3, 2, 2, 2, 2]
  assert loss(m) == pytest.approx((3 * (1 + 1 / 2 + 1 / 3 + 1 / 4) + 2 * (1 / 5 + 1 / 6 + 1 / 7 + 1 / 8)) / 20)


def test_sliding_windows_of_twenty_tokens():
  """Windows of 8 that go on by 3 start at 0, 3, 6, 9 and 12; they score targets 0-7, 8-10, 11-13, 14-16 and 17-19."""
  rows = packing.sliding([TEXT], 8, 3, BOS)
  scored = [row[weight > 0].tolist() for row, weight in zip(rows.targets_BT, rows.weight_BT)]
  assert scored == [[*range(100, 108)], [108, 109, 110], [111, 112, 113], [114, 115, 116], [117, 118, 119]]
  assert rows.tokens_BT[1].tolist() == [BOS, *range(103, 110)]
  (m,) = found(sliding, by_hand(), [8], stride=3)
  assert m.weight_T.tolist() == [1, 1, 1, 1, 1, 5, 5, 5]
  assert loss(m) == pytest.approx((sum(1 / n for n in (1, 2, 3, 4, 5)) + 5 * (1 / 6 + 1 / 7 + 1 / 8)) / 20)
  assert (m.convention['stride'], m.convention['windows']) == (3, 5)


def test_a_stride_of_one_gives_every_later_target_the_whole_window_and_of_the_window_none_overlaps():
  (one,), (whole,), (plain,) = (found(*args, **o) for *args, o in _three_strides())
  assert one.weight_T.tolist() == [1, 1, 1, 1, 1, 1, 1, 13]
  assert (loss(whole), whole.weight_T.tolist()) == (loss(plain), plain.weight_T.tolist())
  assert one.targets == whole.targets == plain.targets


def _three_strides():
  subject = by_hand()
  return (sliding, subject, [8], {'stride': 1}), (sliding, subject, [8], {'stride': 8}), (nonoverlapping, subject, [8], {})


@pytest.mark.parametrize(('size', 'stride'), [(1, 1), (5, 2), (8, 8), (19, 7), (20, 3), (40, 9)])
@pytest.mark.parametrize('bos', [BOS, None])
def test_sliding_windows_score_every_target_once_with_enough_context(size, stride, bos):
  documents = [np.arange(n, dtype=np.int32) + 100 * k for k, n in enumerate((20, 1, 0, 2, 9))]
  rows = packing.sliding(documents, size, min(stride, size), bos)
  scored = np.sort(rows.targets_BT[rows.weight_BT > 0])
  assert scored.tolist() == sorted(t for d in documents for t in d[(bos is None) :])
  first = np.asarray([k for k in range(len(rows)) if k == 0 or rows.source_BT[k, 0] != rows.source_BT[k - 1, 0]])
  later = np.delete(np.arange(len(rows)), first)
  assert not (rows.weight_BT[later] * (rows.pos_BT[later] < size - stride)).any()


def test_position_buckets_of_twenty_tokens():
  """Trained at 8: [0, 2), [2, 4), [4, 6), the reference [6, 8), then [8, 16) and [16, 20). Each target costs its position."""
  subject = by_hand(lambda tokens, pos: pos.astype(float), [TEXT, OTHER], train=8)
  (m,) = found(buckets, subject, [8, 20])
  got = m.convention['buckets']
  assert [(b['start'], b['end']) for b in got] == [(0, 2), (2, 4), (4, 6), (6, 8), (8, 16), (16, 20)]
  assert [b['nll'] for b in got] == [0.5, 2.5, 4.5, 6.5, 11.5, 17.5]
  assert [b.get('difference') for b in got] == [-6, -4, -2, None, 5, 11]
  assert [(b['low'], b['high']) for b in got if 'low' in b] == [(-6, -6), (-4, -4), (-2, -2), (5, 5), (11, 11)]  # documents agree
  assert [b['targets'] for b in got] == [4, 4, 4, 4, 16, 8]
  assert buckets.edges(4, 3) == [(0, 1), (1, 2), (2, 3)]


def test_the_same_targets_with_growing_context_by_hand():
  """Trained at 4: the last two targets of 16, 18 and 20 tokens, with 4, 8 and 16 of them fed. A target costs 1 / (1 + position)."""
  subject = by_hand()
  measured = found(context, subject, [8, 16], span=2)
  assert [m.length for m in measured] == [4, 8, 16]
  spans = context.choose(subject, 16, 2)
  assert (spans.source_N.tolist(), spans.end_N.tolist()) == ([0, 0, 0], [16, 18, 20])
  rows = spans.rows(subject, 4)
  assert rows.tokens_BT.tolist() == [[BOS, 112, 113, 114], [BOS, 114, 115, 116], [BOS, 116, 117, 118]]
  assert rows.targets_BT[rows.weight_BT > 0].tolist() == [114, 115, 116, 117, 118, 119]
  want = {n: (1 / (n - 1) + 1 / n) / 2 for n in (4, 8, 16)}
  for m in measured:
    assert loss(m) == pytest.approx(want[m.length])
    assert m.convention['difference']['mean'] == pytest.approx(want[m.length] - want[4])
  assert len({m.targets for m in measured}) == 1  # the same targets at every length
  assert 'shuffled_far' not in measured[0].convention


def test_far_text_is_shuffled_or_replaced_and_near_text_stays():
  subject = by_hand(documents=[TEXT, OTHER])
  spans = context.choose(subject, 16, 2)
  rows, rng = spans.rows(subject, 16), np.random.default_rng(0)
  other = context.shuffled(subject, rows, spans, 12, rng)
  assert np.array_equal(other.tokens_BT[:, 12:], rows.tokens_BT[:, 12:])
  assert (other.tokens_BT[:, 0] == BOS).all()
  assert np.array_equal(np.sort(other.tokens_BT[:, 1:12]), np.sort(rows.tokens_BT[:, 1:12]))
  assert not np.array_equal(other.tokens_BT[:, 1:12], rows.tokens_BT[:, 1:12])
  other = context.replaced(subject, rows, spans, 12, rng)
  assert np.array_equal(other.tokens_BT[:, 12:], rows.tokens_BT[:, 12:])
  for n, source in enumerate(spans.source_N):
    assert set(other.tokens_BT[n, 1:12]) <= set((OTHER, TEXT)[source])
  assert np.array_equal(other.targets_BT, rows.targets_BT)


def test_far_text_of_a_single_document_is_replaced_by_what_the_row_has_nothing_of():
  text = np.arange(40, dtype=np.int32)
  subject = by_hand(documents=[text])
  spans = context.choose(subject, 16, 2)
  for n in range(20):
    rows = spans.rows(subject, 16)
    other = context.replaced(subject, rows, spans, 12, np.random.default_rng(n))
    for row, was, targets in zip(other.tokens_BT, rows.tokens_BT, rows.targets_BT, strict=True):
      assert np.array_equal(row[12:], was[12:])
      assert not set(row[1:12]) & {*was[1:].tolist(), *targets.tolist()}
      assert np.array_equal(np.diff(row[1:12]), np.ones(10))
  # Of 20 tokens 16 are in every row, and no eleven are left in a piece.
  short = by_hand()
  rows = context.choose(short, 16, 2).rows(short, 16)
  assert context.replaced(short, rows, context.choose(short, 16, 2), 12, np.random.default_rng(0)) is None
  assert 'replaced_far' not in found(context, short, [16], span=2)[-1].convention


def test_bits_are_counted_on_the_bytes_of_the_targets_that_were_scored():
  """Of 20 tokens the last four are three bytes each: spans of 2 targets at the end are of other size than the whole text."""
  size_V = np.append(np.ones(BOS, np.int32), 0)
  size_V[116:120] = 3
  subject = dataclasses.replace(by_hand(lambda t, p: 1.0 + 0 * p), tokenizer=Tokenizer(byte_length_V=size_V))
  for module, scored in ((context, 2 + 2 * 3 + 2 * 3), (nonoverlapping, 16 + 4 * 3), (sliding, 16 + 4 * 3), (prefix, 16)):
    measured = found(module, subject, [16], span=2)[-1]
    got = evaluate.result.row(subject, measured)['bits_per_byte']
    assert got == pytest.approx(measured.weight_T.sum() / np.log(2) / scored)


def test_arms_tell_a_model_that_uses_far_text_from_one_that_does_not():
  """One costs less the more of its far tokens are its document's, the other looks at near text alone."""
  documents = [TEXT, OTHER]

  def far_counts(tokens, pos):
    own = np.where(tokens[:, -1:] < 200, (tokens < 200), (tokens >= 200) & (tokens < 256))
    return np.broadcast_to(1.0 - 0.01 * own.sum(1, keepdims=True), tokens.shape)

  uses, not_ = (found(context, by_hand(f, documents), [16], span=2)[-1].convention for f in (far_counts, lambda t, p: 1.0 + 0 * p))
  assert uses['difference']['mean'] == pytest.approx(-0.12)
  assert uses['shuffled_far']['mean'] == pytest.approx(-0.12)  # order does not matter to it
  assert uses['replaced_far']['mean'] == pytest.approx(-0.01)  # one far token is next to the near text and is not replaced
  assert [not_[name]['mean'] for name in ('difference', 'shuffled_far', 'replaced_far')] == [0, 0, 0]


def test_the_accounting_line_finds_no_benefit_in_a_model_that_never_looks_back_further():
  """Field case P13. From position 3 on every target costs the same, so that all of the gain is bookkeeping."""
  documents = [np.arange(32, dtype=np.int32)]
  m4, m16 = found(nonoverlapping, by_hand(lambda t, pos: 1.0 / (1 + np.minimum(pos, 3)), documents), [16, 4])
  assert loss(m16) < loss(m4) - 0.1
  assert m16.convention['accounting']['residual'] == pytest.approx(0, abs=1e-12)
  assert 'accounting' not in m4.convention
  (alone,) = found(nonoverlapping, by_hand(documents=documents), [16])
  assert 'accounting' not in alone.convention  # the loss at the training length was not asked for


def test_prefixes_of_twenty_tokens():
  m8, m4 = found(prefix, by_hand(), [4, 8])
  assert (m8.length, m4.length, m8.weight_T.tolist()) == (8, 4, [2] * 8)
  assert loss(m4) == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
  assert m4.targets != m8.targets


@pytest.fixture(scope='module')
def rows():
  with runs.quick_compiles():
    yield _all_protocols()


def _all_protocols():
  import pe_jax

  run = pe_jax.load(runs.trained('rope'))
  return run, run.evaluate([16, 32, 64], ['rope', 'yarn'], OF_TEXT, 'validation', options=evaluate.Options(spans=12))


def test_every_protocol_runs_on_a_model_and_rows_are_strict_json(rows):
  _run, found = rows
  assert {r['protocol'] for r in found} == set(OF_TEXT)
  for row in found:
    json.loads(json.dumps(row, allow_nan=False), parse_constant=pytest.fail)
  by = {(r['protocol'], r['asked_encoding'], r['length']): r for r in found}
  # At the training length YaRN's factor is 1 and the two are one model.
  assert by['context', 'yarn', 16]['nll'] == by['context', 'rope', 16]['nll']
  for protocol, _, length in by:
    if protocol != 'buckets':
      assert by[protocol, 'rope', length]['targets_sha256'] == by[protocol, 'yarn', length]['targets_sha256']
  assert len({by['context', 'rope', n]['targets_sha256'] for n in (16, 32, 64)}) == 1
  assert by['nonoverlapping', 'rope', 64]['targets_sha256'] == by['sliding', 'rope', 16]['targets_sha256']
  text = report.text(found)
  for wanted in ('same targets: 12 spans of 8 tokens', 'crop', 'accounting, non-overlapping', 'nats by position'):
    assert wanted in text
  assert 'not comparable' not in text


def test_rows_of_other_targets_are_called_not_comparable(rows):
  changed = [dict(r) for r in rows[1]]
  changed[0]['targets_sha256'] = 'other'
  assert 'not comparable: context at 16' in report.text(changed)


def test_the_three_lengths_of_a_checkpoint(rows):
  run, found = rows
  subject = evaluate.subject(run.config, run.params, 'validation')
  for lengths in three.of_rows(subject, found):
    assert lengths.acceptable.text() == 'any'
    assert lengths.computable.text(16) == '>= 64 (4 L)'
    assert lengths.reliable.lengths == (32, 64)
  need = [three.memory(subject, encodings.parse('rope'), n) for n in (64, 128)]
  assert 0 < need[0] < need[1]
  assert three.computable(subject, 'rope', [16, 64], budget=need[1]).passed >= 128
  assert three.computable(subject, 'rope', [16, 64], budget=need[0]).text() == '64'
  assert three.computable(subject, 'rope', [16, 64], budget=need[0] - 1).text() == '16'
  assert three.computable(subject, 'rope', [16, 64], budget=1).text() == '< 16'
  (gated,) = three.of_rows(subject, [r for r in found if r['asked_encoding'] == 'rope'], bar=0.1)
  assert gated.reliable.reach is None


@pytest.mark.parametrize(('said', 'needs'), [('RESOURCE_EXHAUSTED: Ran out of memory on HBM', math.inf), ('INTERNAL: a fault', None)])
def test_a_program_that_the_compiler_refuses_for_its_size_needs_more_than_there_is(rows, monkeypatch, said, needs):
  """As a TPU's does, where a CPU's says how much it would take."""

  def refused(*args):
    raise jax.errors.JaxRuntimeError(said)

  subject = evaluate.subject(rows[0].config, rows[0].params, 'validation')
  monkeypatch.setattr(three.loss, 'each', refused)
  if needs:
    assert three.memory(subject, encodings.parse('rope'), 64) == needs
  else:
    with pytest.raises(jax.errors.JaxRuntimeError, match=said):
      three.memory(subject, encodings.parse('rope'), 64)


def test_spans_are_the_units_where_all_are_of_one_document_and_a_single_one_gives_no_interval():
  one, two = by_hand(), by_hand(documents=[TEXT, OTHER])
  rows = [dict(m.convention, length=m.length) for m in found(context, one, [16], span=2)]
  assert rows[1]['by_unit']['unit'] == 'span'
  assert len(rows[1]['by_unit']['nll']) == 3
  assert {'low', 'high'} < rows[1]['difference'].keys()
  assert found(context, two, [16], span=2)[1].convention['by_unit']['unit'] == 'document'
  alone = [m.convention for m in found(context, one, [20], span=2)]
  assert [c['by_unit']['targets'] for c in alone] == [[2], [2]]
  assert alone[1]['difference'].keys() == {'mean'}
  named = {'protocol': 'context', 'asked_encoding': 'rope'}
  lengths = (4, 20)
  assert three.of_rows(one, [c | named | {'length': n} for c, n in zip(alone, lengths)]) == []  # and no error


def test_a_bar_counts_what_protocols_read():
  """With stride 4 of 8 every token but the first window's is read twice; context reads its spans, three times beyond training."""
  assert sliding.tokens(by_hand(), [8], evaluate.Options(stride=4)) == {8: 40}
  assert context.tokens(by_hand(), [16], evaluate.Options(span=2)) == {4: 3 * 4, 16: 3 * 3 * 16}
  assert context.tokens(by_hand(), [16], evaluate.Options(span=2, arms=False)) == {4: 3 * 4, 16: 3 * 16}


@pytest.mark.parametrize(
  ('lengths', 'options', 'protocol', 'error', 'match'),
  [
    ([16], {'stride': 17}, 'sliding', ConfigError, 'stride: 17 exceeds the window of 16'),
    ([16, 32], {'span': 17}, 'context', ConfigError, 'span: 17 targets do not fit 16 tokens'),
    ([16], {'spans': -1}, 'context', ConfigError, 'spans: -1 must be at least 0'),
    ([10**6], {}, 'context', DataError, 'no document has 1000000 targets'),
    ([10**6], {}, 'buckets', DataError, 'no document has 1000000 targets'),
  ],
)
def test_what_does_not_fit_is_a_sentence(rows, lengths, options, protocol, error, match):
  run, _ = rows
  with pytest.raises(error, match=match):
    run.evaluate(lengths, None, [protocol], 'validation', options=evaluate.Options(**options))
