"""What is measured, in the order in which it is worth most, and what of it fits into the time.

A job is a document of a kind, a length and a reading. First one document of each kind up to twice the training length, shorter lengths
before longer ones, then the longest lengths on the first, then more documents. A job is begun if it fits by the speed so far, so that a
slower machine measures less and not longer.
"""

import dataclasses
import itertools

READINGS = {
  'raw': 'rope', 'yarn': 'yarn(factor=4)', 'ntk': 'ntk(factor=4)', 'dynamic_ntk': 'dynamic_ntk',
  'self_extend': 'self_extend(group=4, window=1024)',
}  # fmt: skip
LENGTHS = (2048, 8192, 16_384, 32_768)
DOCUMENTS = 4  # of a kind, at most
SPAN, BLOCKS = 512, 8  # targets at the end of a text, and the equal parts of them that intervals are made of
DIGITS = 5  # of the key that is planted


@dataclasses.dataclass(frozen=True)
class Job:
  """A document of a kind at a length under a reading."""

  kind: str
  document: int
  length: int
  reading: str

  @property
  def key(self):
    """What its row is found by."""
    return self.kind, self.document, self.length, self.reading


def jobs(kinds, lengths, readings, train, documents=DOCUMENTS):
  """All Jobs, the most telling first."""
  near, far = [n for n in sorted(lengths) if n <= 2 * train], [n for n in sorted(lengths) if n > 2 * train]

  def of(kinds, document, lengths):
    return [Job(kind, document, length, reading) for length, kind, reading in itertools.product(lengths, kinds, readings)]

  found = of(kinds, 0, near) + of(kinds[:1], 0, far)
  for document in range(1, documents):
    found += of(kinds, document, near)
    found += of(kinds[1:], 0, far) if document == 1 else []
  found += [job for document in range(documents) for job in of(kinds, document, far)]
  return list(dict.fromkeys(found))


class Clock:
  """Seconds that a job will take, by those that were done: `work` is GFLOP, and each program has a speed of its own."""

  def __init__(self):
    self._seconds, self._work = {}, {}

  def done(self, program, work, seconds):
    """Learns from a job."""
    self._seconds[program] = self._seconds.get(program, 0.0) + seconds
    self._work[program] = self._work.get(program, 0.0) + work

  def takes(self, program, work):
    """None before anything was done. What was not tried yet takes twice as long as the others did."""
    if not self._work:
      return None
    known, slower = ([program], 1) if program in self._work else (list(self._work), 2)
    return slower * work * sum(self._seconds[name] for name in known) / sum(self._work[name] for name in known)
