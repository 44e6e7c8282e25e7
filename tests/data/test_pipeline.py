"""The training stream is a function of where it is: resumable at every step, the same for any number of processes.

Evaluation rows are a fixed list with the same targets at every length.
"""

import json
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pe_jax.data import packing, tokenizer
from pe_jax.data.evaluation import evaluation_documents
from pe_jax.data.pipeline import Batches, evaluation_rows, prefetch
from pe_jax.errors import ConfigError, DataError

BYTES = tokenizer.make('bytes')
KEYS = ['doc', 'pos', 'row', 'targets', 'tokens', 'weight']


def texts(count, seed=0, longest=300):
  rng = np.random.default_rng(seed)
  return [rng.integers(97, 123, rng.integers(1, longest)).astype(np.uint8).tobytes() for _ in range(count)]


def numbered_batches(count=34, **kwargs):
  """A stream in which document i is the one byte i, a row each."""
  return Batches([bytes([i]) for i in range(count)], BYTES, length=1, packing='pad', **kwargs)


def same(a, b):
  return sorted(a) == sorted(b) == KEYS and all((a[k] == b[k]).all() and a[k].dtype == b[k].dtype for k in a)


def test_a_batch_has_its_shape_and_types():
  batch = next(Batches(texts(50), BYTES, length=32, batch_size=4, seed=0))
  assert {k: (v.shape, v.dtype.name) for k, v in batch.items()} == {
    **{k: ((4, 32), 'int32') for k in ('tokens', 'targets', 'doc', 'pos')},
    'weight': ((4, 32), 'float32'),
    'row': ((4,), 'int32'),
  }


@pytest.mark.parametrize('pack', ['concat', 'pad', 'windows'])
def test_the_state_resumes_bit_identically_at_every_step(pack):
  def make():
    return Batches(texts(23, longest=60), BYTES, length=16, batch_size=6, seed=3, packing=pack, block_documents=5)

  batches, states, straight = make(), [], []
  for _ in range(60):
    states.append(json.dumps(batches.state()))
    straight.append(next(batches))
  assert json.loads(states[-1])['epoch'] >= 1
  for k, state in enumerate(states):
    resumed = make()
    resumed.set_state(json.loads(state))
    assert json.dumps(resumed.state()) == state
    assert all(same(next(resumed), expected) for expected in straight[k : k + 4])


def test_P10_two_resumes_see_each_batch_once_and_in_order():
  straight = numbered_batches(12, batch_size=1, seed=5, block_documents=4)
  expected = [next(straight)['targets'].item() for _ in range(12)]
  seen, state = [], None
  for stop in (5, 3, 4):
    batches = numbered_batches(12, batch_size=1, seed=5, block_documents=4)
    if state:
      batches.set_state(json.loads(state))
    with prefetch(batches, size=3) as ahead:
      for (batch, after), _ in zip(ahead, range(stop)):
        seen.append(batch['targets'].item())
        state = json.dumps(after)
  assert seen == expected
  assert sorted(seen) == list(range(12))
  assert seen != sorted(seen), 'shuffled'


@pytest.mark.parametrize('processes', [2, 4])
def test_global_batches_do_not_depend_on_the_number_of_processes(processes):
  def make(**kwargs):
    return Batches(texts(20), BYTES, length=32, batch_size=8, seed=1, block_documents=3, **kwargs)

  alone = make()
  shares = [make(process_index=p, process_count=processes) for p in range(processes)]
  for _ in range(30):
    whole, parts = next(alone), [next(s) for s in shares]
    assert {len(p['tokens']) for p in parts} == {8 // processes}
    assert same(whole, {k: np.concatenate([p[k] for p in parts]) for k in whole})
    assert all(s.state() == alone.state() for s in shares)


def test_P40_four_hosts_share_34_records_without_loss_or_repeat():
  def first_epoch():
    hosts = [numbered_batches(batch_size=4, seed=9, process_index=p, process_count=4) for p in range(4)]
    return [host_batch['targets'].item() for _ in range(9) for host_batch in map(next, hosts)][:34]

  assert sorted(first_epoch()) == list(range(34))
  assert first_epoch() == first_epoch()


@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 30), batch=st.integers(1, 9), block=st.integers(1, 40), seed=st.integers(0, 2**40))
def test_an_epoch_gives_each_row_once_and_a_short_batch_is_completed_from_the_next(count, batch, block, seed):
  batches = numbered_batches(count, batch_size=batch, seed=seed, block_documents=block)
  stream = np.concatenate([next(batches)['targets'][:, 0] for _ in range(-(-3 * count // batch))])
  for epoch in range(3):
    assert sorted(stream[epoch * count : (epoch + 1) * count]) == list(range(count))


def test_epochs_seeds_and_blocks_have_their_own_order():
  def order(seed, epoch):
    batches = numbered_batches(batch_size=34, seed=seed, block_documents=17)
    batches.set_state({'epoch': epoch, 'block': 0, 'row': 0})
    return next(batches)['targets'][:, 0].tolist()

  orders = [order(seed, epoch) for seed in range(3) for epoch in range(3)]
  assert len({tuple(o) for o in orders}) == 9
  within = [[x % 17 for x in part] for o in orders for part in (o[:17], o[17:])]
  assert len({tuple(w) for w in within}) == 18


def test_the_order_is_pinned():
  # A saved state means the same rows in later versions only if this does not change.
  batches = numbered_batches(8, batch_size=8, seed=0, block_documents=4)
  assert next(batches)['targets'][:, 0].tolist() == [5, 4, 6, 7, 3, 1, 0, 2]


def test_counts_say_what_was_left_out():
  documents = [b'', b'ab', b'abcdef', b'', b'abcdefgh']
  batches = Batches(documents, BYTES, length=4, batch_size=4, seed=0, min_bytes=3)
  batch = next(batches)
  assert batches.counts == {'documents': 5, 'empty': 2, 'short': 1, 'no_target': 0, 'rows': 4, 'targets': 14}
  assert batch['weight'].sum() == 14


def test_P23_a_document_of_byte_zero_is_trained_on():
  batch = next(Batches([b'\0' * 6], BYTES, length=8, batch_size=1, seed=0))
  assert batch['weight'].tolist() == [[1, 1, 1, 1, 1, 1, 0, 0]]
  assert batch['doc'].tolist() == [[1, 1, 1, 1, 1, 1, 0, 0]]


def test_only_the_documents_of_one_block_are_read_at_a_time():
  class Listed(list):
    reads = []  # noqa: RUF012

    def __getitem__(self, i):
      self.reads.append(i)
      return super().__getitem__(i)

  documents = Listed(texts(40, longest=40))
  batches = Batches(documents, BYTES, length=16, batch_size=2, seed=0, block_documents=10)
  next(batches)
  assert len(documents.reads) == 10
  assert np.diff(documents.reads).tolist() == [1] * 9


@pytest.mark.parametrize('documents', [[b''], [b'ab', b'']])
def test_documents_without_a_row_are_an_error_and_not_an_endless_loop(documents):
  with pytest.raises(DataError, match=r'none of \d gives a target; .*lower data\.min_bytes'):
    next(Batches(documents, BYTES, length=4, batch_size=1, seed=0, min_bytes=3, block_documents=1))


def test_wrong_settings_are_sentences():
  with pytest.raises(DataError, match='there are 0'):
    Batches([], BYTES, length=4, batch_size=1, seed=0)
  with pytest.raises(ConfigError, match='6 rows do not divide among 4 processes'):
    Batches([b'a'], BYTES, length=4, batch_size=6, seed=0, process_count=4)
  with pytest.raises(ConfigError, match='0 documents are no block'):
    Batches([b'a'], BYTES, length=4, batch_size=1, seed=0, block_documents=0)
  with pytest.raises(ConfigError, match='-1 is negative'):
    Batches([b'a'], BYTES, length=4, batch_size=1, seed=-1)


def test_a_state_of_other_documents_is_refused():
  batches = Batches(texts(10), BYTES, length=16, batch_size=1, seed=0, block_documents=5)
  with pytest.raises(DataError, match='block 2 of 2 in epoch 0'):
    batches.set_state({'epoch': 0, 'block': 2, 'row': 0})
  with pytest.raises(DataError, match=r'row 9999 of \d+ in block 1'):
    batches.set_state({'epoch': 0, 'block': 1, 'row': 9999})


@pytest.mark.parametrize('token', [-1, 257])
def test_tokens_outside_the_vocabulary_are_refused(token):
  def encode(text):
    return np.array([1, token, 2], np.int32)

  odd = tokenizer.Tokenizer('odd', 257, 256, BYTES.byte_length_V, encode, BYTES.decode)
  with pytest.raises(DataError, match=f'odd: token {token} is outside its vocabulary of 257'):
    next(Batches([b'a'], odd, length=4, batch_size=1, seed=0))
  with pytest.raises(DataError, match=f'odd: token {token} is outside'):
    evaluation_rows([b'a'], odd, length=4)


def test_prefetch_gives_the_state_after_the_batch_it_gave():
  reference = numbered_batches(batch_size=3, seed=2)
  with prefetch(numbered_batches(batch_size=3, seed=2), size=4) as ahead:
    for _ in range(20):
      batch, state = next(ahead)
      assert same(batch, next(reference))
      assert state == reference.state()


def test_prefetch_raises_what_its_thread_raised_and_ends():
  class Failing:
    def __init__(self):
      self.left = 2

    def __next__(self):
      self.left -= 1
      if self.left < 0:
        raise DataError('the disk is gone')
      return self.left

    def state(self):
      return {'left': self.left}

  ahead = prefetch(Failing())
  assert [next(ahead), next(ahead)] == [(1, {'left': 1}), (0, {'left': 0})]
  for _ in range(2):
    with pytest.raises(DataError, match='the disk is gone'):
      next(ahead)
  ahead.close()


def test_prefetch_threads_end_when_closed_or_forgotten():
  before = threading.active_count()
  ahead = prefetch(numbered_batches(batch_size=3, seed=2))
  next(ahead)
  ahead.close()
  assert list(ahead) == []
  forgotten = prefetch(numbered_batches(batch_size=3, seed=2))
  next(forgotten)
  del forgotten
  deadline = time.time() + 5
  while threading.active_count() > before and time.time() < deadline:
    time.sleep(0.02)
  assert threading.active_count() == before


# Evaluation


def scored(rows):
  """(source, target) pairs of each document in order, which identify what was scored."""
  real = rows.weight_BT > 0
  pairs = np.stack([rows.source_BT[real], rows.targets_BT[real]], axis=1)
  return sorted(map(tuple, pairs.tolist()))


@pytest.mark.parametrize('bos', [256, None])
@pytest.mark.parametrize('max_targets', [0, 1, 1000, 1777])
def test_every_length_scores_the_same_targets(bos, max_targets):
  tok = tokenizer.Tokenizer('bytes', 257, bos, BYTES.byte_length_V, BYTES.encode, BYTES.decode)
  documents = texts(40)
  at = {n: evaluation_rows(documents, tok, length=n, max_targets=max_targets) for n in (64, 128, 256)}
  total = max_targets or sum(len(t) - (bos is None) for t in documents)
  for rows, info in at.values():
    assert rows.weight_BT.sum() == info['targets'] == info['bytes'] == total
    assert info['documents_sha256'] == at[64][1]['documents_sha256']
    assert scored(rows) == scored(at[64][0])


def test_evaluation_order_follows_content_and_not_storage():
  documents = texts(30)
  rows, info = evaluation_rows(documents, BYTES, length=64, max_targets=900)
  again, info_again = evaluation_rows(documents[::-1], BYTES, length=64, max_targets=900)
  assert info == info_again
  assert (rows.targets_BT == again.targets_BT).all()
  more, _ = evaluation_documents(documents, BYTES, max_targets=1500)
  fewer, _ = evaluation_documents(documents, BYTES, max_targets=900)
  assert all((a[: len(b)] == b).all() for a, b in zip(more, fewer))


def test_P12_a_long_document_is_scored_to_its_end_and_the_info_says_how():
  no_bos = tokenizer.Tokenizer('bytes', 257, None, BYTES.byte_length_V, BYTES.encode, BYTES.decode)
  _, info = evaluation_rows([b'x' * 1000], no_bos, length=512)
  assert info['targets'] == 999
  assert info['length'] == 512
  assert info['windows'] == {'count': 2, 'min': 487, 'mean': 499.5, 'max': 512}
  _, info = evaluation_rows([b'x' * 100], no_bos, length=512)
  assert info['windows']['max'] == 99, 'shorter than asked for, and said so'


def test_P31_a_second_evaluation_is_the_first_one():
  documents = texts(20)
  (rows, info), (again, info_again) = (evaluation_rows(documents, BYTES, length=64, max_targets=500) for _ in range(2))
  assert info == info_again
  assert info['targets'] == 500
  assert all((a == b).all() for a, b in zip(rows.as_dict().values(), again.as_dict().values()))


def test_P31_zero_targets_are_an_error():
  for documents in ([], [b''], [b'ab']):
    with pytest.raises(DataError, match=rf'0 targets in {len(documents)} documents'):
      evaluation_rows(documents, BYTES, length=64, min_bytes=3)


def test_evaluation_counts_what_it_leaves_out():
  no_bos = tokenizer.Tokenizer('bytes', 257, None, BYTES.byte_length_V, BYTES.encode, BYTES.decode)
  _, info = evaluation_rows([b'', b'a', b'bc', b'defg'], no_bos, length=8)
  assert info['dropped'] == {'empty': 1, 'short': 0, 'no_target': 1}
  assert (info['documents'], info['targets']) == (2, 4)


def test_evaluation_windows_look_like_training_rows():
  document = bytes(range(97, 97 + 24))
  rows, _ = evaluation_rows([document], BYTES, length=8)
  trained = packing.concat([BYTES.encode(document)], 8, BYTES.bos)
  assert (rows.tokens_BT == trained.tokens_BT).all()
