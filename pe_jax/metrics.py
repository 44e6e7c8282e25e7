"""Logs of a run: metrics.jsonl and batches.jsonl (no times, byte-identical after any interruption), timing.jsonl and TensorBoard.

One JSON object a line. A row is written only when the step it speaks of is done; at a resume, rows past the restored step and a torn
last line are dropped, for the steps that come again write them again. In a bucket, where nothing can be appended, rows are written with the
checkpoint that they lead to. Whoever is told by the folder's token (owner.py) that another process writes there leaves all of it as it is.
"""

import json

from pe_jax import boards, remote
from pe_jax import workdir as workdir_lib


def read(path):
  """The rows of a .jsonl file; a torn last line is left out."""
  path = remote.path(path)
  if not path.exists():
    return []
  lines = path.read_text().split('\n')
  return [json.loads(line) for line in lines[:-1] if line]


def append(path, rows):
  """Adds rows at the end, in one write; in a bucket the whole file is written again."""
  path = remote.path(path)
  text = ''.join(json.dumps(row, allow_nan=False) + '\n' for row in rows)
  if remote.is_remote(path):
    workdir_lib.write(path, (path.read_text() if path.exists() else '') + text)
    return
  with workdir_lib.writing(path):
    drop_torn_line(path)
    with path.open('a') as file:
      file.write(text)


def drop_torn_line(path):
  """Cuts what a killed writer left after the last complete line."""
  if path.exists():
    data = path.read_bytes()
    if data and not data.endswith(b'\n'):
      with path.open('r+b') as file:
        file.truncate(data.rfind(b'\n') + 1)


class Log:
  """The open logs of one training run.

  `holds` tells whether the folder is still this run's, and is asked before each write. Once it is not, nothing more is written; the next
  save ends the run.
  """

  def __init__(self, workdir, restored_step, config, holds=lambda: True):
    self._folder, self._holds, self._lost = remote.path(workdir), holds, False
    self._waiting = {}  # in a bucket: rows of each file that the next flush writes
    if self.mine():
      self._rewind(restored_step)
    self._boards = boards.make(config, self._folder, restored_step) if self.mine() else []

  def _rewind(self, step):
    for name in ('metrics.jsonl', 'batches.jsonl'):
      path = self._folder / name
      if path.exists() or name == 'metrics.jsonl':
        kept = [json.dumps(row) + '\n' for row in read(path) if row['step'] <= step]
        workdir_lib.write(path, ''.join(kept))

  def mine(self):
    """Whether the folder may still be written to."""
    self._lost = self._lost or not self._holds()
    return not self._lost

  def metrics(self, row):
    """A row of training or validation numbers."""
    self._add('metrics.jsonl', row)
    for board in self._boards if not self._lost else ():
      board.add(row)

  def batch(self, row):
    """The hash of a batch that was trained on (config.log_batches)."""
    self._add('batches.jsonl', row)

  def timing(self, row):
    """A row of speeds."""
    self._add('timing.jsonl', row)

  def _add(self, name, row):
    if remote.is_remote(self._folder):
      self._waiting.setdefault(name, []).append(row)
    elif self.mine():
      append(self._folder / name, [row])

  def flush(self):
    """Writes what waits for a checkpoint."""
    for name, rows in self._waiting.items() if self._waiting and self.mine() else ():
      append(self._folder / name, rows)
    self._waiting = {}

  def close(self):
    """Writes what waits, and ends the boards."""
    self.flush()
    for board in self._boards:
      board.close()


class NoLog:
  """The logs of a process that writes none."""

  def metrics(self, row):
    """Nothing."""

  batch = timing = metrics

  def mine(self):
    """Never."""
    return False

  def flush(self):
    """Nothing."""

  close = flush
