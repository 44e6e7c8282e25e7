"""Logs of a run: metrics.jsonl and batches.jsonl (no times, byte-identical after any interruption), timing.jsonl and TensorBoard.

One JSON object a line. A row is written only when the step it speaks of is done; at a resume, rows past the restored step and a torn
last line are dropped, for the steps that come again write them again.
"""

import json
import pathlib

from pe_jax import workdir as workdir_lib


def read(path):
  """The rows of a .jsonl file; a torn last line is left out."""
  path = pathlib.Path(path)
  if not path.exists():
    return []
  lines = path.read_text().split('\n')
  return [json.loads(line) for line in lines[:-1] if line]


def append(path, rows):
  """Adds rows at the end, in one write."""
  path = pathlib.Path(path)
  text = ''.join(json.dumps(row, allow_nan=False) + '\n' for row in rows)
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
  """The open logs of one training run."""

  def __init__(self, workdir, restored_step, tensorboard=True):
    self._folder = pathlib.Path(workdir)
    self._rewind(restored_step)
    self._board = None
    if tensorboard:
      from tensorboardX import SummaryWriter

      self._board = SummaryWriter(str(self._folder / 'tensorboard'), purge_step=restored_step + 1, flush_secs=10)

  def _rewind(self, step):
    for name in ('metrics.jsonl', 'batches.jsonl'):
      path = self._folder / name
      if path.exists() or name == 'metrics.jsonl':
        kept = [json.dumps(row) + '\n' for row in read(path) if row['step'] <= step]
        workdir_lib.write(path, ''.join(kept))

  def metrics(self, row):
    """A row of training or validation numbers."""
    append(self._folder / 'metrics.jsonl', [row])
    if self._board:
      for name, value in row.items():
        if name != 'step':
          self._board.add_scalar(name, value, row['step'])

  def batch(self, row):
    """The hash of a batch that was trained on (config.log_batches)."""
    append(self._folder / 'batches.jsonl', [row])

  def timing(self, row):
    """A row of speeds."""
    append(self._folder / 'timing.jsonl', [row])

  def close(self):
    """Flushes TensorBoard."""
    if self._board:
      self._board.close()
