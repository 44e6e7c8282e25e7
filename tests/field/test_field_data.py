"""Field cases: from text to targets to one number, and how often each target counts."""

import dataclasses
import json
import math
import types

import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from pe_jax import evaluate, loss, probes
from pe_jax.data import packing, tokenizer
from pe_jax.data.evaluation import evaluation_rows
from pe_jax.data.pipeline import Batches
from pe_jax.errors import DataError
from pe_jax.evaluate import result, score
from pe_jax.probes import haystack, needle

BYTES = tokenizer.make('bytes')
WITHOUT_BOS = dataclasses.replace(BYTES, bos=None)


def document(size, first=0):
  return np.arange(first, first + size, dtype=np.int32)


def mean(rows, nll_R, batch_size):
  """The mean loss that evaluation gives where every target of row r costs nll_R[r]."""

  def scored(params, batch):
    del params
    nll_B = np.asarray(nll_R)[np.minimum(batch['row'], len(nll_R) - 1)]
    return (batch['weight'].sum(1) * nll_B).sum(), batch['weight'].sum()

  nll, weight = score.sums(scored, None, rows, batch_size)
  return nll / weight


@pytest.mark.parametrize('batch_size', [1, 2, 3, 8])
def test_p06_a_perplexity_is_of_targets_and_not_of_windows(batch_size):
  """Windows of 9, 5 and 5 targets at 3, 2 and 2 nats: 47/19 and a perplexity of 11.8661, whatever the batch."""
  rows = packing.pad([document(9), document(5), document(5)], 9, 256)
  found = mean(rows, [3, 2, 2], batch_size)
  assert (found, math.exp(found)) == (pytest.approx(47 / 19), pytest.approx(11.8661, rel=1e-5))
  assert math.exp(mean(packing.pad([document(4), document(4)], 4, 256), [2, 4], batch_size)) == pytest.approx(20.0855, rel=1e-5)


@pytest.mark.parametrize('batch_size', [1, 5, 16, 34, 64])
def test_p07_the_last_batch_counts_by_its_targets(batch_size):
  """34 rows of one target, 2 nats on 32 of them and 8 on the last two: 80/34 at every batch size.

  More: tests/data/test_packing.py::test_P07_the_last_batch_weighs_by_its_targets
  """
  assert mean(packing.pad([document(1)] * 34, 1, 256), [2] * 32 + [8] * 2, batch_size) == pytest.approx(80 / 34)


def stream():
  """A batch n of the one number n."""
  return Batches([bytes([n]) for n in range(12)], BYTES, length=1, batch_size=1, seed=3, packing='pad', block_documents=4)


def test_p10_a_stream_goes_on_behind_what_was_trained_on_also_the_second_time():
  """Twelve numbered batches, stopped after 5 and after 3 more: each once, in the order of a run that was never stopped.

  More: tests/data/test_pipeline.py::test_P10_two_resumes_see_each_batch_once_and_in_order
  """
  straight, seen, state = stream(), [], None
  for count in (5, 3, 4):
    batches = stream()
    if state:
      batches.set_state(json.loads(state))
    seen += [int(next(batches)['targets'][0, 0]) for _ in range(count)]
    state = json.dumps(batches.state())
  assert seen == [int(next(straight)['targets'][0, 0]) for _ in range(12)]
  assert sorted(seen) == list(range(12))
  assert seen != sorted(seen)


def test_p12_a_long_document_is_scored_to_its_end_and_the_row_says_how_long_its_windows_were():
  """1000 tokens at length 512: 1000 targets with a BOS, 999 without one, in windows of 512 and 488, which the result says.

  More: tests/data/test_pipeline.py::test_P12_a_long_document_is_scored_to_its_end_and_the_info_says_how
  """
  _, info = evaluation_rows([b'x' * 1000], BYTES, length=512)
  assert info['targets'] == 1000
  assert info['windows'] == {'count': 2, 'min': 488, 'mean': 500.0, 'max': 512}
  rows, info = evaluation_rows([b'x' * 1000], WITHOUT_BOS, length=512)
  assert (info['targets'], int(rows.weight_BT.sum())) == (999, 999)


def test_p13_longer_windows_gain_nothing_for_a_model_that_looks_back_63_tokens():
  """It costs 1/64 on every target with 63 tokens before it, at every length; the mean of non-overlapping windows falls all the same.

  More: tests/test_protocols.py::test_the_accounting_line_finds_no_benefit_in_a_model_that_never_looks_back_further
  """
  text, whole, deep, targets = [document(700)], [], [], set()
  for length in (64, 128, 256, 512):
    rows = packing.windows(text, length, None)
    whole.append((rows.weight_BT / (1 + np.minimum(rows.pos_BT + 1, 63))).sum() / rows.weight_BT.sum())
    rows = packing.sliding(text, length, 1, None)
    rows = dataclasses.replace(rows, weight_BT=rows.weight_BT * (rows.pos_BT >= 62))
    deep.append((rows.weight_BT / (1 + np.minimum(rows.pos_BT + 1, 63))).sum() / rows.weight_BT.sum())
    targets.add(result.fingerprint(rows))
  assert deep == [1 / 64] * 4
  assert len(targets) == 1
  assert (np.diff(whole) < -1e-3).all()


@pytest.mark.parametrize(('bos', 'targets', 'first'), [(256, 20, 1), (None, 19, 0)])
def test_p14_every_window_begins_with_one_bos_iff_training_rows_did(bos, targets, first):
  """20 tokens in windows of 10: 20 targets with a BOS and 19 without, the BOS never among them, the first token at position 1 or 0.

  More: tests/data/test_packing.py::test_P14_one_bos_a_window_iff_training_rows_have_one
  """
  for pack in (packing.windows, packing.pad, packing.concat):
    rows = pack([document(20)], 10, bos)
    assert rows.weight_BT.sum() == targets
    assert (rows.tokens_BT == 256).sum(1).tolist() == [int(bos is not None)] * 2
    assert not (rows.targets_BT[rows.weight_BT > 0] == 256).any()
    assert rows.pos_BT[0][rows.tokens_BT[0] == 0][0] == first


def test_p22_no_target_crosses_a_document():
  """Documents of 3 and 2 tokens: 2 + 1 targets, and with a BOS all 5; each is the token after its input in its own document.

  More: tests/data/test_packing.py::test_P22_no_target_crosses_a_document
  """
  both = [document(3), document(2, 50)]
  rows = packing.concat(both, 8, None)
  pairs = zip(rows.tokens_BT[rows.weight_BT > 0], rows.targets_BT[rows.weight_BT > 0])
  assert list(pairs) == [(0, 1), (1, 2), (50, 51)]
  assert packing.concat(both, 8, 256).weight_BT.sum() == 5


def test_p24_documents_end_where_the_packer_says():
  """'ab' and 'cd' without any mark between them are two documents; a document that holds the id of a BOS inside is one.

  More: tests/data/test_packing.py::test_P24_documents_end_where_the_packer_says_and_not_at_an_id
  """
  rows = packing.concat([BYTES.encode(b'ab'), BYTES.encode(b'cd')], 4, 256)
  assert rows.doc_BT.tolist() == [[1, 1, 2, 2]]
  rows = packing.concat([np.asarray([7, 256, 0, 8], np.int32)], 4, 256)
  assert rows.doc_BT.tolist() == [[1, 1, 1, 1]]


def test_p25_labels_are_shifted_once():
  """A table that always says 'one more' costs nothing on 0, 1, 2 … 19: 19 targets near 0 nats, and a fortune on unshifted labels."""
  rows = packing.windows([document(20)], 19, None)
  logits_BTV = 60.0 * jnp.eye(20)[(rows.tokens_BT + 1) % 20]
  assert rows.weight_BT.sum() == 19
  assert float(loss.nll(logits_BTV, rows.targets_BT).max()) < 1e-6
  assert float(loss.nll(logits_BTV, rows.tokens_BT).min()) > 50


@pytest.mark.parametrize('batch_size', [1, 2, 3])
def test_p26_micro_batches_are_added_before_there_is_one_division(batch_size):
  """10 targets at 1 nat and 100 at 2 make 210/110, in one batch or in two, and a row without targets changes nothing.

  More: tests/test_parallel.py::test_p26_ten_targets_of_loss_1_and_a_hundred_of_2_are_210_over_110,
  tests/test_parallel.py::test_the_gradient_of_micro_batches_is_that_of_the_joined_batch_and_an_empty_one_changes_nothing
  """
  rows = packing.pad([document(10), document(100), document(5)], 100, 256)
  rows.weight_BT[2] = 0
  assert mean(rows, [1, 2, 77], batch_size) == pytest.approx(210 / 110)


def test_p31_a_second_evaluation_is_the_first_one():
  """Evaluated twice: the same rows with the same targets, and never none of them, which is an error.

  More: tests/test_evaluation.py::test_evaluating_twice_gives_the_same_rows
  """
  subject = tiny.subject('nope', documents=3)
  first, second = (evaluate.evaluate(subject, [16], ['nope']) for _ in range(2))
  assert first == second
  assert first[0]['targets'] == 192
  with pytest.raises(DataError, match='0 targets in 2 documents'):
    evaluation_rows([b'', b''], BYTES, length=16)


def test_p40_hosts_share_the_records_without_loss_or_repeat():
  """34 numbered records, 4 hosts: disjoint shares whose union is every global batch, in the order of one host.

  More: tests/data/test_pipeline.py::test_P40_four_hosts_share_34_records_without_loss_or_repeat
  """

  def host(index, count):
    batches = Batches(
      [bytes([n]) for n in range(34)], BYTES, length=1, batch_size=4, seed=1, packing='pad', process_index=index, process_count=count
    )
    return [next(batches)['targets'][:, 0].tolist() for _ in range(8)]

  shares = [host(index, 4) for index in range(4)]
  together = [[n for share in shares for n in share[step]] for step in range(8)]
  assert together == host(0, 1)
  assert len({n for batch in together for n in batch}) == 32


def test_p48_a_needle_is_in_every_prompt_of_exactly_the_length_and_wording_cannot_be_scored():
  """Five digits at depths 0, 1/2 and 1 of 256 tokens; the answer is the likeliest of ten candidates, token by token, and chance is stated.

  More: tests/test_probes.py::test_a_haystack_has_exactly_the_length_and_its_value_at_the_distance
  """
  text = np.frombuffer(b'a tree stood near the old river and nobody who planted it was there. ' * 20, np.uint8).astype(np.int32)
  subject = types.SimpleNamespace(task=None, tokenizer=BYTES, documents=[text], info={})
  words = haystack.words(subject, probes.Options(digits=5))
  stack = haystack.make(words, 'single', 256, np.random.default_rng(0))
  value = BYTES.decode(words.answers_VS[stack.value])
  for depth in (0.0, 0.5, 1.0):
    tokens, _ = stack.text(depth)
    assert len(tokens) + len(value) - 1 == 256
    assert f'={value};' in BYTES.decode(tokens)
  assert stack.right_V.mean() == 0.1
  log_p_BV = np.full((1, 10), -50.0)  # a model that would rather say 'The key is' than any of the ten
  for likeliest in range(10):
    log_p_BV[:] = -50
    log_p_BV[0, likeliest] = -49
    assert needle.judged(log_p_BV, stack.right_V[None])[0].tolist() == [likeliest == stack.value]
