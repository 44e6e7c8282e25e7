"""The rows: for each job the loss of the last targets of a text, block by block, and of a key that was planted in it.

Every length ends with the same targets, read at positions 0 .. n - 1, whatever the reading, so that differences are paired. A finished job
is a line of rows.jsonl and is not done again; readings that are the same numbers at a length, as dynamic NTK is RoPE up to the training
length, are computed once.
"""

import contextlib
import dataclasses
import hashlib
import time

import jax
import numpy as np
from benchmarks.worker import RESET, peak

from pe_jax import evaluate, flops, metrics, progress
from pe_jax.errors import DataError
from pe_jax.evaluate import context, memory, planted, score
from real_weights import plan


@dataclasses.dataclass(frozen=True, eq=False)
class Text:
  """The documents of a kind that are long enough: of each one text that ends in its middle, and a key to plant."""

  subject: evaluate.Subject
  spans: context.Spans
  needles: planted.Needles

  @classmethod
  def of(cls, run, path, longest, programs):
    """`longest`: tokens a document must have."""
    subject = evaluate.subject(run.config, run.params, text=str(path))
    source = [n for n, d in enumerate(subject.documents) if len(d) > longest][: plan.DOCUMENTS]
    if not source:
      raise DataError(f'{path}: no document has more than {longest} tokens (ask for shorter --lengths)')
    subject = dataclasses.replace(subject, documents=[subject.documents[n] for n in source], programs=programs)
    end_N = np.asarray([longest + (len(d) - 1 - longest) // 2 for d in subject.documents])
    spans = context.Spans(np.arange(len(source)), end_N, min(plan.SPAN, longest // 4))
    options = evaluate.Options(needle=plan.DIGITS)
    return cls(subject, spans, planted.Needles.of(subject, options, len(source), spans.size))

  def row(self, document, length):
    """Rows of the one text."""
    rows = self.spans.rows(self.subject, length, self.needles.tail)
    return self.needles.planted(rows, length).take([document])

  def reading(self, spec, length):
    """(Spec at the length, its program, what tells readings apart that compute something else)."""
    _, (spec,) = evaluate.asked(self.subject, [spec])
    spec = self.subject.at_length(spec, length)
    enc = self.subject.encoding(spec, length)
    numbers = enc.numbers(np.asarray([length])) if enc.numbers else {}
    program = repr(score.program(enc, length))
    told = program.encode() + b''.join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(numbers))
    return spec, program, hashlib.sha256(told).hexdigest()

  def measured(self, document, length, spec):
    """{nll of each block, -log p of the key, seconds, whether it was compiled for this, peak memory}."""
    before, start = len(self.subject.programs), time.perf_counter()
    _forget_peak()
    ((_, nll_BT),) = self.subject.scored(spec, length, self.row(document, length), lambda work: None)
    end = length - self.needles.tail
    nll = nll_BT[0, end - self.spans.size : end].reshape(plan.BLOCKS, -1).sum(1)
    return {
      'nll': nll.tolist(),
      'block': self.spans.size // plan.BLOCKS,
      'key': float(nll_BT[0, length - self.needles.answer :].sum()),
      'seconds': time.perf_counter() - start,
      'compiled': len(self.subject.programs) > before,
      'peak_gb': peak() * 1024 / 1e9,
    }


def kept_rows(path, settings):
  """{job: row} of what was measured before under the same settings."""
  return {tuple(row['job']): row for row in metrics.read(path) if row['settings'] == settings}


def rows(texts, jobs, readings, path, settings, deadline):
  """The rows of all jobs that were done before or fit into the time, each also appended to `path`; (rows, jobs that were left out).

  Args:
    texts: {kind: Text}.
    jobs: as from `plan.jobs`.
    readings: {name: encoding}.
    path: of the .jsonl file.
    settings: what rows must agree in to stand beside each other; others in the file are passed over.
    deadline: of time.monotonic(), after which nothing ends; None: all is done.
  """
  kept = kept_rows(path, settings)
  clock, left, found = plan.Clock(), [], []
  for row in kept.values():
    _learn(clock, row)
  for number, job in enumerate(jobs, 1):
    text = texts[job.kind]
    if job.document >= len(text.spans.end_N):
      continue
    if job.key not in kept:
      row = _row(text, job, readings[job.reading], kept, clock, settings, deadline)
      if row is None:
        left.append(job)
        continue
      metrics.append(path, [row])
      kept[job.key] = row
      _learn(clock, row)
      spent = f', {row["seconds"]:.0f} s' if row['seconds'] else ''
      remains = '' if deadline is None else f'; {progress.clock(max(0.0, deadline - time.monotonic()))} of the time left'
      mean = sum(row['nll']) / (len(row['nll']) * row['block'])
      progress.say(f'{number}/{len(jobs)} {job.kind} {job.document} at {job.length}, {row["encoding"]}: {mean:.3f} nats{spent}{remains}')
    found.append(kept[job.key])
  return found, left


def _row(text, job, encoding, kept, clock, settings, deadline):
  """The row of a job; None where it does not fit into the time."""
  spec, program, digest = text.reading(encoding, job.length)
  work = job.length * flops.forward(text.subject.config, job.length) / 1e9
  named = {'job': job.key, 'settings': settings, 'encoding': str(spec), 'program': program, 'digest': digest, 'work': work}
  same = next((row for key, row in kept.items() if key[:3] == job.key[:3] and row['digest'] == digest), None)
  if same:
    return {**same, **named, 'seconds': None}
  takes = clock.takes(program, work)
  if deadline is not None and takes is not None and time.monotonic() + takes > deadline:
    return None
  return named | text.measured(job.document, job.length, spec)


def _learn(clock, row):
  if row['seconds'] and not row['compiled']:
    clock.done(row['program'], row['work'], row['seconds'])


def _forget_peak():
  """The peak begins anew at what is resident now, without what malloc keeps of earlier lengths, where the system can do that."""
  memory.give_back()
  with contextlib.suppress(OSError):
    RESET.write_text('5')
