"""A case of bad input, and what the program answers to it."""

import dataclasses
import pathlib
import re
from collections.abc import Callable

from pe_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Case:
  """Attributes:
  what: the input, in words.
  code: the exit code.
  says: what the sentence begins with, a regular expression; the name of a field or a file.
  act: does it, given an empty folder; a run would be in its 'run'.
  command: instead, arguments of train.py, in a process of its own; {folder} and {home} are filled in.
  early: whether it is answered without jax.
  """

  what: str
  code: int
  says: str
  act: Callable[[pathlib.Path], object] | None = None
  command: tuple[str, ...] = ()
  early: bool = False


def outcome(case, folder):
  """(exit code, sentence) of a case without a command; (0, …) if nothing is refused."""
  folder.mkdir(parents=True, exist_ok=True)
  try:
    case.act(folder)
  except UserError as error:
    return error.exit_code, str(error)
  return 0, 'not refused'


def commands(cases, folder, home):
  """The same of cases with a command, from one process that has imported everything and forks for each."""
  import tiny_runs

  names = {'folder': str(folder), 'home': str(home)}
  given = [['train.py', *(arg.format(**names) for arg in case.command), f'--workdir={folder}/run'] for case in cases]
  answers = tiny_runs.served([{'argv': argv} for argv in given])
  return [(code, out + re.sub(r'^ERROR: |\n$', '', err)) for code, out, err, _ in answers]


def fault(case, answer, folder):
  """What is wrong with an answer, '' if it is right."""
  code, sentence = answer
  if code != case.code or not re.match(case.says, sentence):
    return f'{case.what}: code {code}, {sentence!r} (wanted {case.code}, {case.says!r})'
  if '\n' in sentence:
    return f'{case.what}: more than one line: {sentence!r}'
  return f'{case.what}: a workdir was made' if (folder / 'run').exists() else ''
