"""The two bodies of text as files, fetched once."""

import json
import tempfile

from classics import austen, shakespeare
from pe_jax import progress, workdir

MODULES = {'austen': austen, 'shakespeare': shakespeare}


def fetched(name, folder):
  """The path of `name`.jsonl in the folder, a line for each chapter or scene; fetched if it is not there."""
  path = folder / f'{name}.jsonl'
  if not path.exists():
    progress.say(f'{name}: fetching')
    with tempfile.TemporaryDirectory() as place:
      documents = MODULES[name].documents(place)
    rows = [{'title': title, 'part': part, 'text': text} for title, part, text in documents]
    with workdir.writing(path):
      workdir.write(path, ''.join(json.dumps(row, ensure_ascii=False) + '\n' for row in rows))
  return path
