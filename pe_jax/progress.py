"""Signs of life on stderr: a bar on a terminal, a line every ten seconds elsewhere, with the time that is left at the speed so far."""

import contextlib
import sys
import time

from pe_jax import process


def _silent():
  """Whether another process of the same run speaks for this one."""
  return process.joined() and sys.modules['jax'].process_index() > 0


class Bar:
  """Counts towards a total; `note` is shown behind the count."""

  def __init__(self, total, done=0, label='', unit='step'):
    self._total, self._done, self._label, self._unit = total, done, label, unit
    self._bar, self._last, self._counted = None, time.monotonic(), 0
    self._start = self._last
    if sys.stderr.isatty() and not _silent():
      from tqdm import tqdm

      self._bar = tqdm(total=total, initial=done, desc=label, unit=unit, dynamic_ncols=True)

  def advance(self, amount=1, note=''):
    """Counts `amount` more."""
    self._done += amount
    self._counted += amount
    if self._bar is not None:
      self._bar.set_postfix_str(note, refresh=False)
      self._bar.update(amount)
    elif time.monotonic() - self._last > 10 and not _silent():
      self._last = time.monotonic()
      said = f'{self._label} {self._done:.0f}/{self._total:.0f} {self._unit}s {note}'.rstrip()
      print(said + self._left(), file=sys.stderr, flush=True)

  def _left(self):
    """', 3 min left'; nothing before there is a speed. What was done before the bar began tells of none."""
    if not self._counted or self._done >= self._total:
      return ''
    return f', {clock((self._last - self._start) * (self._total - self._done) / self._counted)} left'

  def close(self):
    """Leaves the bar where it is."""
    if self._bar is not None:
      self._bar.close()


def clock(seconds):
  """'40 s', '3 min', '2.5 h'."""
  return f'{seconds:.0f} s' if seconds < 100 else f'{seconds / 60:.0f} min' if seconds < 6000 else f'{seconds / 3600:.1f} h'


@contextlib.contextmanager
def bar(total, done=0, label='', unit='step'):
  """`Bar` as a context."""
  shown = Bar(total, done, label, unit)
  try:
    yield shown
  finally:
    shown.close()


def say(text):
  """One line on stderr."""
  if not _silent():
    print(text, file=sys.stderr, flush=True)
