"""Batches: the infinite, resumable stream of training rows.

Documents are taken in blocks of consecutive ones, so that storage is read in sequence whatever it is. An epoch visits
the blocks in a random order, and the rows that a block packs into come in a random order. Both orders are made from
(seed, epoch, block) alone: the stream is a pure function of where it is, the same for any number of processes, and
where it is is three numbers. A batch that an epoch cannot fill is completed from the next, so no row is lost and none
comes twice in an epoch.

A thread makes the next batches while the device works on this one. Each comes with the state right after it, so a
checkpoint resumes behind what was trained on, not behind what was read ahead.
"""

import queue
import threading
import weakref

import numpy as np

from pe_jax.data import packing as packings
from pe_jax.data.blocks import encode_all, long_enough, read_block
from pe_jax.data.evaluation import evaluation_rows
from pe_jax.errors import ConfigError, DataError

__all__ = ['Batches', 'Prefetch', 'evaluation_rows', 'prefetch']


class Batches:
  """Iterator of {'tokens', 'targets', 'weight', 'doc', 'pos'}, each [batch_size / process_count, length], and 'row',
  int32, the index of each row in the global batch. Process p gets its contiguous slice of every global batch.

  `state()` is {'epoch', 'block', 'row'}: the index in the epoch's order of blocks and the rows of that block already
  given. `counts` is over the blocks that this iterator has packed: documents read and dropped, rows, targets.
  """

  def __init__(
    self,
    documents,
    tokenizer,
    *,
    length,
    batch_size,
    seed,
    packing='concat',
    block_documents=1024,
    min_bytes=0,
    process_index=0,
    process_count=1,
  ):
    if batch_size < 1 or batch_size % process_count:
      raise ConfigError(f'batch_size: {batch_size} rows do not divide among {process_count} processes (take a multiple)')
    if block_documents < 1:
      raise ConfigError(f'data.block_documents: {block_documents} documents are no block (take at least 1)')
    if seed < 0:
      raise ConfigError(f'seed: {seed} is negative (take 0 or more)')
    if not len(documents):
      raise DataError('training documents: there are 0 (give another source or split)')
    self._documents, self._tokenizer = documents, tokenizer
    self._pack = packings.by_name(packing)
    self._length, self._batch_size, self._seed = length, batch_size, seed
    self._block_documents, self._min_bytes = block_documents, min_bytes
    self._num_blocks = -(-len(documents) // block_documents)
    local = batch_size // process_count
    self._mine = slice(process_index * local, (process_index + 1) * local)
    self._epoch = self._block = self._row = 0
    self._held = None, None
    self.counts = dict.fromkeys(['documents', 'empty', 'short', 'no_target', 'rows', 'targets'], 0)

  def __iter__(self):
    return self

  def __next__(self):
    parts, have, barren = [], 0, 0
    while have < self._batch_size:
      rows = self._rows()
      end = min(len(rows), self._row + self._batch_size - have)
      if end > self._row:
        inside = np.arange(have, have + end - self._row)
        mine = (inside >= self._mine.start) & (inside < self._mine.stop)
        parts.append(rows.take(self._row + np.flatnonzero(mine)).as_dict())
      barren = 0 if len(rows) else barren + 1
      if barren >= self._num_blocks:
        raise DataError(
          f'training documents: none of {len(self._documents)} gives a target; read, empty and short ones: {self.counts} '
          '(lower data.min_bytes, or give other text)'
        )
      have, self._row = have + end - self._row, end
      if self._row == len(rows):
        self._advance()
    batch = {k: np.concatenate([p[k] for p in parts]) for k in ('tokens', 'targets', 'weight', 'doc', 'pos')}
    return batch | {'row': np.arange(self._mine.start, self._mine.stop, dtype=np.int32)}

  def state(self):
    return {'epoch': self._epoch, 'block': self._block, 'row': self._row}

  def set_state(self, state):
    epoch, block, row = (int(state[k]) for k in ('epoch', 'block', 'row'))
    if epoch < 0 or row < 0 or not 0 <= block < self._num_blocks:
      raise DataError(f'data state: block {block} of {self._num_blocks} in epoch {epoch} (the documents or data.block_documents changed)')
    self._epoch, self._block, self._row = epoch, block, row
    if row > len(self._rows()):
      raise DataError(f'data state: row {row} of {len(self._rows())} in block {block} (the documents, the length or the packing changed)')

  def _advance(self):
    self._row, self._block = 0, self._block + 1
    if self._block == self._num_blocks:
      self._epoch, self._block = self._epoch + 1, 0

  def _rows(self):
    """The shuffled rows of the current block, which alone is held."""
    where = self._epoch, self._block
    if self._held[0] != where:
      self._held = None, None
      # Block b is numbered b + 1: 0 seeds the order of the blocks.
      block = int(_order(self._num_blocks, self._seed, self._epoch, 0)[self._block])
      rows = self._packed(block)
      self._held = where, rows.take(_order(len(rows), self._seed, self._epoch, block + 1))
    return self._held[1]

  def _packed(self, block):
    start = block * self._block_documents
    texts = read_block(self._documents, start, min(start + self._block_documents, len(self._documents)))
    kept, dropped = long_enough(texts, self._min_bytes)
    rows = self._pack(encode_all(kept, self._tokenizer), self._length, self._tokenizer.bos)
    seen = {'documents': len(texts), 'rows': len(rows), 'targets': int(rows.weight_BT.sum(dtype=np.int64))}
    for counts in (dropped, rows.dropped, seen):
      for k, n in counts.items():
        self.counts[k] += n
    return rows


def _order(n, *key):
  """A permutation of n that depends on the key alone. Raw bits, since numpy keeps those the same from version to
  version, and not its shuffles.
  """
  return np.argsort(np.random.PCG64(key).random_raw(n), kind='stable')


def prefetch(batches, size=2):
  """Iterator of (batch, state after the batch) with up to `size` batches ready. What the thread raises is raised here.
  `close()` ends it.
  """
  return Prefetch(batches, size)


class Prefetch:
  def __init__(self, batches, size=2):
    self._ready = queue.Queue(maxsize=max(1, size))
    self._stop = threading.Event()
    self._error = None
    # The thread must not hold this object, or one that is merely forgotten would never end.
    self._thread = threading.Thread(target=_work, args=(batches, self._ready, self._stop), daemon=True)
    self._finalizer = weakref.finalize(self, self._stop.set)
    self._thread.start()

  def __iter__(self):
    return self

  def __next__(self):
    while not self._stop.is_set():
      try:
        batch, state, self._error = self._ready.get(timeout=0.1)
      except queue.Empty:
        if not self._thread.is_alive() and self._ready.empty():
          raise DataError('training documents: the thread that reads them ended without a word (start again)') from None
        continue
      if self._error is None:
        return batch, state
      self._stop.set()
    raise self._error or StopIteration

  def close(self):
    self._stop.set()
    self._thread.join()

  def __enter__(self):
    return self

  def __exit__(self, *_):
    self.close()


def _work(batches, ready, stop):
  while not stop.is_set():
    try:
      item = next(batches), batches.state(), None
    except BaseException as e:
      item = None, None, e
    while not stop.is_set():
      try:
        ready.put(item, timeout=0.1)
        break
      except queue.Full:
        pass
    if item[2] is not None:
      return
