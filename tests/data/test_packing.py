"""What packing must keep: each content token a target once, no target from another document, padding known from document ids alone."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pe_jax.data import packing
from pe_jax.errors import ConfigError

PACKINGS = [packing.concat, packing.pad, packing.windows]
BOS = 100_000


def numbered(lengths):
  """Documents whose tokens are all different, so that a target tells where it comes from."""
  ends = np.cumsum([0, *lengths])
  return [np.arange(a, b, dtype=np.int32) for a, b in itertools.pairwise(ends)]


def pieces(rows):
  """(source, inputs, targets, positions) of each piece, found by a loop over document ids."""
  for r in range(len(rows)):
    for d in range(1, rows.doc_BT[r].max(initial=0) + 1):
      at = np.flatnonzero(rows.doc_BT[r] == d)
      assert len(at), 'document ids leave none out'
      assert (np.diff(at) == 1).all(), 'a piece is contiguous'
      (source,) = set(rows.source_BT[r, at].tolist())
      yield source, rows.tokens_BT[r, at], rows.targets_BT[r, at], rows.pos_BT[r, at]


@pytest.mark.parametrize('pack', PACKINGS)
@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(0, 40), max_size=12), length=st.integers(1, 17), bos=st.sampled_from([None, BOS]))
def test_every_content_token_is_a_target_once_and_predicted_by_its_own_document(pack, lengths, length, bos):
  documents = numbered(lengths)
  rows = pack(documents, length, bos)
  seen = []
  for source, inputs, targets, pos in pieces(rows):
    text = documents[source].tolist()
    seen += targets.tolist()
    at = text.index(targets[0])
    assert targets.tolist() == text[at : at + len(targets)]
    if bos is None:
      assert inputs.tolist() == text[at - 1 : at - 1 + len(targets)]
      assert at > 0
    else:
      assert inputs.tolist() == [bos, *text[at : at + len(targets) - 1]]
    assert pos.tolist() == list(range(len(targets)))
  skip = 1 if bos is None else 0
  assert sorted(seen) == [t for d in documents for t in d[skip:].tolist()]

  padding = rows.doc_BT == 0
  assert (rows.weight_BT == ~padding).all()
  assert not any(a[padding].any() for a in (rows.tokens_BT, rows.targets_BT, rows.pos_BT))
  assert (rows.source_BT[padding] == -1).all()
  # Padding comes only at the end of a row, and no row is all padding.
  assert (np.diff(padding.astype(int), axis=1) >= 0).all()
  assert not padding.all(axis=1).any()
  assert rows.dropped == {'empty': lengths.count(0), 'no_target': lengths.count(1) if bos is None else 0}


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(0, 40), max_size=12), length=st.integers(1, 17))
def test_concat_wastes_less_than_a_row(lengths, length):
  rows = packing.concat(numbered(lengths), length, BOS)
  assert len(rows) == -(-sum(lengths) // length)
  assert (rows.doc_BT[:-1] > 0).all()


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(0, 40), max_size=12), length=st.integers(1, 17))
def test_windows_are_full_ones_alone_and_then_whole_remainders(lengths, length):
  rows = packing.windows(numbered(lengths), length, BOS)
  full = sum(n // length for n in lengths)
  assert (rows.doc_BT[:full] == 1).all()
  rest = [n % length for n in lengths if n % length]
  assert sorted(rows.piece_lengths()[full:].tolist()) == sorted(rest)
  # First fit: of two rows one is more than half full.
  used = np.sort((rows.doc_BT[full:] > 0).sum(axis=1))
  assert (used[1:] * 2 > length).all()


def test_first_fit_agrees_with_the_loop_over_rows():
  size = np.random.default_rng(0).integers(1, 9, 200)
  free, expected = [], []
  for s in size:
    r = next((r for r, f in enumerate(free) if f >= s), len(free))
    free += [10] * (r == len(free))
    expected.append((r, 10 - free[r]))
    free[r] -= s
  row, column = packing.first_fit(size, 10)
  assert list(zip(row.tolist(), column.tolist())) == expected


def test_concat_written_out_by_hand():
  rows = packing.concat([np.array([1, 2, 3, 4, 5]), np.array([6, 7])], 4, 9)
  assert rows.tokens_BT.tolist() == [[9, 1, 2, 3], [9, 9, 6, 0]]
  assert rows.targets_BT.tolist() == [[1, 2, 3, 4], [5, 6, 7, 0]]
  assert rows.doc_BT.tolist() == [[1, 1, 1, 1], [1, 2, 2, 0]]
  assert rows.pos_BT.tolist() == [[0, 1, 2, 3], [0, 0, 1, 0]]
  assert rows.source_BT.tolist() == [[0, 0, 0, 0], [0, 1, 1, -1]]
  assert rows.weight_BT.tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
  dtypes = {k: a.dtype for k, a in rows.as_dict().items()}
  assert dtypes.pop('weight') == np.float32
  assert set(dtypes.values()) == {np.dtype(np.int32)}


def test_P07_the_last_batch_weighs_by_its_targets():
  # 34 rows of one target, loss 2 on 32 of them and 8 on the last two.
  rows = packing.pad([np.array([2])] * 32 + [np.array([8])] * 2, 1, 9)
  for size in (1, 5, 16, 34, 64):
    batches = list(rows.batches(size))
    assert {len(b) for b in batches} == {size}
    loss = sum((b.targets_BT * b.weight_BT).sum() for b in batches)
    scored = sum(b.weight_BT.sum() for b in batches)
    assert scored == 34
    assert loss / scored == pytest.approx(80 / 34)
    assert all((b.source_BT[b.doc_BT == 0] == -1).all() for b in batches)


@pytest.mark.parametrize(('bos', 'targets', 'first_position'), [(256, 20, 1), (None, 19, 0)])
def test_P14_one_bos_a_window_iff_training_rows_have_one(bos, targets, first_position):
  document = np.arange(1, 21, dtype=np.int32)
  train, windows = packing.concat([document], 10, bos), packing.windows([document], 10, bos)
  assert (train.tokens_BT == windows.tokens_BT).all()
  assert windows.weight_BT.sum() == targets
  assert 256 not in windows.targets_BT
  assert (windows.tokens_BT == 256).sum(axis=1).tolist() == [bos is not None] * 2
  assert np.flatnonzero(windows.tokens_BT[0] == 1)[0] == first_position


def test_P22_no_target_crosses_a_document():
  # Documents of 3 and 2 tokens: 1->2, 2->3 and 4->5, and not 3->4.
  rows = packing.concat([np.array([1, 2, 3]), np.array([4, 5])], 8, None)
  real = rows.weight_BT > 0
  assert list(zip(rows.tokens_BT[real].tolist(), rows.targets_BT[real].tolist())) == [(1, 2), (2, 3), (4, 5)]


def test_P23_a_token_with_the_id_of_padding_is_trained_on():
  rows = packing.concat([np.zeros(5, np.int32)], 8, 256)
  assert rows.weight_BT.tolist() == [[1, 1, 1, 1, 1, 0, 0, 0]]
  assert rows.doc_BT.tolist() == [[1, 1, 1, 1, 1, 0, 0, 0]]
  assert rows.tokens_BT[0, :5].tolist() == [256, 0, 0, 0, 0]


def test_P24_documents_end_where_the_packer_says_and_not_at_an_id():
  ab_cd = packing.concat([np.array([97, 98]), np.array([99, 100])], 8, None)
  assert ab_cd.doc_BT[0].max() == 2
  with_bos_inside = packing.concat([np.array([97, 256, 98])], 8, 256)
  assert with_bos_inside.doc_BT[0].tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
  assert with_bos_inside.pos_BT[0, :3].tolist() == [0, 1, 2]


def test_take_keeps_rows_whole():
  rows = packing.concat(numbered([7, 9, 4]), 5, BOS)
  taken = rows.take(np.array([2, 0]))
  assert len(taken) == 2
  for name, array in taken.as_dict().items():
    assert (array == rows.as_dict()[name][[2, 0]]).all()


@pytest.mark.parametrize('pack', PACKINGS)
def test_no_documents_are_no_rows(pack):
  assert pack([], 8, 256).tokens_BT.shape == (0, 8)
  assert pack([np.zeros(0, np.int32)], 8, 256).tokens_BT.shape == (0, 8)


def test_unknown_packing_and_length_zero_are_refused():
  with pytest.raises(ConfigError, match=r"data\.packing: 'conct' is unknown \(did you mean 'concat'\?\)"):
    packing.by_name('conct')
  with pytest.raises(ConfigError, match='0 positions cannot hold a target'):
    packing.concat(numbered([3]), 0, None)
