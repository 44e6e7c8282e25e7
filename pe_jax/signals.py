"""SIGTERM and SIGINT while a run starts and trains: noted and nothing else, until somebody asks for them.

Once a run has begun its loop asks, saves at the end of the step and ends with 75. Before that there is nothing to save: what is being read
ends where it is, also with 75, for the same command is the way on. It stays cheap to import: it is there before jax is.
"""

import contextlib
import signal

from pe_jax.errors import Preempted


@contextlib.contextmanager
def noted(caught=None):
  """A list of the names of the signals that come, as they come; the one that is given, where somebody listens already."""
  if caught is not None:
    yield caught
    return
  caught = []
  with _handled(lambda number, frame: caught.append(signal.Signals(number).name)):
    yield caught


@contextlib.contextmanager
def at_once(caught, workdir):
  """Work by which nothing is lost: the first signal ends it where it is, with Preempted; one that gets lost in it, at its end.

  `caught`: the list of `noted`.
  """

  def end(number, frame):
    del frame
    caught.append(signal.Signals(number).name)
    if len(caught) == 1:
      before_begun(caught, workdir)

  before_begun(caught, workdir)
  try:
    with _handled(end):
      yield
  except Exception:  # whatever became of it on its way
    before_begun(caught, workdir)
    raise
  before_begun(caught, workdir)


def before_begun(caught, workdir):
  """Raises Preempted if a signal has come already."""
  if caught:
    raise Preempted(f'{workdir}: stopped by {caught[0]} before anything was begun (the same command starts it)')


@contextlib.contextmanager
def _handled(handler):
  """Both signals go to the handler."""
  before = {number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGINT)}
  try:
    yield
  finally:
    for number, handler_before in before.items():
      signal.signal(number, handler_before)
