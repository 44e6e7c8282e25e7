"""What a run and scripts/again.sh tell each other: whether this is a start after another, and what has been saved since the first.

again.sh counts the starts that saved nothing new, so that a fault that comes each time does not start a machine's run for ever. It cannot
look into a bucket, nor know the folders of several seeds, so it names a file (PE_JAX_SAVED) that gets a line for each checkpoint.
"""

import contextlib
import os


def is_again():
  """Whether the command was started before, and again.sh has started it again."""
  return bool(os.environ.get('PE_JAX_AGAIN'))


def tell(folder, step):
  """A line for a checkpoint of that step, if somebody wants to know; what cannot be told is no trouble of the run."""
  if path := os.environ.get('PE_JAX_SAVED'):
    with contextlib.suppress(OSError), open(path, 'a') as file:
      file.write(f'{folder} {step}\n')
