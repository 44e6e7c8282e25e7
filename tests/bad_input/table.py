"""140 cases of bad input: what each is answered with, its exit code and its sentence.

python tests/bad_input/table.py             the table; exits with 1 if an answer is wrong
python tests/bad_input/table.py --early     of those that are answered without jax, as JSON
"""

import json
import pathlib
import sys
import tempfile

import bad_paths
import bad_settings
import bad_text
import case as one

HERE = pathlib.Path(__file__).resolve().parent
GROUPS = {
  'numbers': bad_settings.fields(),
  'across fields': bad_settings.across(),
  'names': bad_settings.names(),
  'data': bad_text.cases(),
  'paths and formats': bad_paths.cases(),
}


def answers(folder):
  """[(group, case, (code, sentence), what is wrong with it)] of all."""
  import tiny_runs

  bad_paths.write(tiny_runs.home())
  rows = []
  for group, cases in GROUPS.items():
    commands = [c for c in cases if c.command]
    answered = dict(zip(map(id, commands), one.commands(commands, folder, tiny_runs.home()) if commands else ()))
    for n, c in enumerate(cases):
      place = folder if c.command else folder / group / str(n)
      answer = answered[id(c)] if c.command else one.outcome(c, place)
      rows.append((group, c, answer, one.fault(c, answer, place)))
  return rows


def main():
  """Prints the table."""
  sys.path.insert(0, str(HERE.parent))
  with tempfile.TemporaryDirectory() as name:
    if '--early' in sys.argv:
      early = [c for cases in GROUPS.values() for c in cases if c.early]
      found = [one.outcome(c, pathlib.Path(name) / str(n)) for n, c in enumerate(early)]
      print(json.dumps({'answers': found, 'jax': 'jax' in sys.modules}))
      return
    __import__('conftest')  # eight virtual devices, as under pytest
    rows = answers(pathlib.Path(name))
    for group, c, (code, sentence), wrong in rows:
      print(f'{group:18} {c.what:56.56} {code}  {sentence.replace(name, "")[:160]}{" <- WRONG" if wrong else ""}')
  wrong = [said for *_, said in rows if said]
  print(f'{len(rows)} cases, {len(rows) - len(wrong)} answered as they should be')
  sys.exit(1 if wrong else 0)


if __name__ == '__main__':
  main()
