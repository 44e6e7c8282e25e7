"""What a protocol finds at one length, and the row that is written of it."""

import dataclasses
import hashlib
import math

import jax
import numpy as np

from pe_jax.config import config_hash


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
  """Attributes:
  length: in tokens.
  spec: the encoding at this length.
  nll_T: sum of -log p(target) at each position, float64.
  weight_T: number of targets at each position.
  targets: the `Targets` that were scored.
  convention: how they were, for the row.
  packed: whether a row of tokens held several windows.
  """

  length: int
  spec: object
  nll_T: np.ndarray
  weight_T: np.ndarray
  targets: 'Targets'
  convention: dict
  packed: bool = False


@dataclasses.dataclass(frozen=True)
class Targets:
  """Which targets were scored, and how many bytes of text they are (0: a task's, which are no bytes)."""

  fingerprint: str
  bytes: int


def targets(subject, rows):
  """The Targets of rows."""
  size_V = subject.tokenizer.byte_length_V
  return Targets(fingerprint(rows), 0 if subject.task else int(size_V[rows.targets_BT[rows.weight_BT > 0]].sum(dtype=np.int64)))


def fingerprint(rows):
  """A hash of the targets with weight, each with the document it is from; the same however they are laid in rows."""
  scored = rows.weight_BT > 0
  pairs = (rows.source_BT[scored].astype(np.int64) << 32) | rows.targets_BT[scored]
  return hashlib.sha256(np.sort(pairs).astype('<i8').tobytes()).hexdigest()[:16]


def row(subject, measured):
  """Losses, counts and the conditions under which they were measured."""
  config = subject.config
  nll_T, weight_T = measured.nll_T, measured.weight_T
  count = int(weight_T.sum())
  nll = float(nll_T.sum() / count)
  info = {'documents': 0, 'documents_sha256': ''} | subject.info  # a task has other samples at each length, and says so itself
  return (
    {
      'train_length': config.train_length,
      'nll': nll,
      'ppl': math.exp(min(nll, 700.0)),
      'bits_per_byte': float(nll_T.sum()) / math.log(2) / measured.targets.bytes if measured.targets.bytes else None,
      'targets': count,
      'context_mean': float((np.arange(1, len(nll_T) + 1) * weight_T).sum() / count),  # tokens fed before a target, BOS among them
      'targets_sha256': measured.targets.fingerprint,
      'packed': measured.packed,
      'documents': info['documents'],
      'documents_sha256': info['documents_sha256'],
      'position_buckets': buckets(nll_T, weight_T, max(1, config.train_length // 8)),
    }
    | conditions(subject)
    | measured.convention
  )


def conditions(subject):
  """Of the run and the machine, for every row."""
  config = subject.config
  return {
    'bos': subject.tokenizer.bos is not None,
    'backend': jax.default_backend(),
    'device_kind': jax.devices()[0].device_kind,
    'device_count': jax.device_count(),
    'config_hash': config_hash(config),
    'seed': config.seed,
  }


def buckets(nll_T, weight_T, width):
  """Mean loss in buckets of positions [start, end)."""
  starts = np.arange(0, len(nll_T), width)
  nll, weight = np.add.reduceat(nll_T, starts), np.add.reduceat(weight_T, starts)
  ends = np.minimum(starts + width, len(nll_T))
  rows = zip(starts.tolist(), ends.tolist(), nll.tolist(), weight.tolist(), strict=True)
  return [{'start': a, 'end': b, 'nll': n / w, 'targets': int(w)} for a, b, n, w in rows if w]
