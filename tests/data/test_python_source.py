"""The default text: built once, without TensorFlow, by however many processes start at once."""

import json
import pathlib
import subprocess
import sys

import pytest

from pe_jax import config
from pe_jax.data import documents
from pe_jax.data.sources import python_source
from pe_jax.errors import DataError

# Two processes meet at a barrier, and a slow reading of the sources keeps the first in the build when the second comes.
SCRIPT = """
import json, os, pathlib, sys, time
import tensorflow_datasets
from pe_jax import config
from pe_jax.data.sources import python_source
data = config.default().data
data.data_dir = sys.argv[1]
sources = python_source.sources
python_source.sources = lambda stdlib: (time.sleep(0.4), sources(stdlib))[1]
here = pathlib.Path(sys.argv[1])
(here / f'{os.getpid()}.here').touch()
deadline = time.time() + 20
while len(list(here.glob('*.here'))) < 2 and time.time() < deadline:
  time.sleep(0.01)
docs = python_source.documents(data, 'train', stdlib=sys.argv[2])
print(json.dumps([docs.record, 'tensorflow' in sys.modules, 'jax' in sys.modules]))
"""


@pytest.fixture(scope='module')
def stdlib(tmp_path_factory):
  root = tmp_path_factory.mktemp('stdlib')
  for i in range(60):
    write(root / f'm{i}.py', f'x = {i}\n'.encode())
  write(root / 'pkg' / 'latin.py', b'# -*- coding: latin-1 -*-\ns = "\xe4"\r\n')
  write(root / 'pkg' / 'broken.py', b's = "\xe4"\n')
  write(root / 'pkg' / 'strange.py', b'# -*- coding: no-such-coding -*-\n')
  for left_out in ('site-packages/a.py', 'test/b.py', 'pkg/tests/c.py', 'idlelib/idle_test/d.py', 'pkg/readme.txt'):
    write(root / left_out, b'left out')
  return root


def write(path, content):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_bytes(content)


def settings(data_dir):
  data = config.default().data
  data.data_dir = str(data_dir)
  return data


def start(data_dir, stdlib):
  command = [sys.executable, '-W', 'error', '-c', SCRIPT, str(data_dir), str(stdlib)]
  return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_build_once_without_tensorflow_and_read_the_same(tmp_path, stdlib):
  processes = [start(tmp_path, stdlib) for _ in range(2)]
  outputs = [p.communicate(timeout=60) for p in processes]
  assert [p.returncode for p in processes] == [0, 0], outputs
  (record, *imported), second = (json.loads(out) for out, _ in outputs)
  assert [record, *imported] == second
  assert imported == [False, False]
  assert sum('(once)' in err for _, err in outputs) == 1
  assert record['documents'] > 40

  # In this process: what the others built is read, and every split has its files.
  split = {role: python_source.documents(settings(tmp_path), role, stdlib=stdlib) for role in documents.ROLES}
  assert split['train'].record == record
  names = sorted(name for d in split.values() for name in d.record['files'])
  assert names == sorted([*(f'm{i}.py' for i in range(60)), 'pkg/latin.py'])
  assert {d.record['skipped_files'] for d in split.values()} == {2}
  few = settings(tmp_path)
  few.train_split = 'train[:5]'
  assert list(python_source.documents(few, 'train', stdlib=stdlib)) == list(split['train'])[:5]
  assert python_source.documents(few, 'validation', stdlib=stdlib).record == split['validation'].record
  contents = {bytes(text) for d in split.values() for text in d}
  assert '# -*- coding: latin-1 -*-\ns = "ä"\n'.encode() in contents
  assert len(contents) == 61


def test_building_twice_in_a_process_registers_nothing(tmp_path, stdlib):
  from tensorflow_datasets.core import registered

  first = python_source.documents(settings(tmp_path / 'a'), 'train', stdlib=stdlib)
  second = python_source.documents(settings(tmp_path / 'b'), 'train', stdlib=stdlib)
  assert list(first) == list(second)
  assert first.record == second.record
  assert 'python_source' not in registered._DATASET_REGISTRY


def test_the_record_follows_the_content(tmp_path, stdlib):
  other = tmp_path / 'stdlib'
  for path in stdlib.glob('m*.py'):
    write(other / path.name, path.read_bytes())
  a = python_source.documents(settings(tmp_path / 'a'), 'train', stdlib=other).record
  write(other / 'm0.py', b'x = 1000\n')
  b = python_source.documents(settings(tmp_path / 'b'), 'train', stdlib=other).record
  assert a['sha256'] != b['sha256']


def test_a_folder_without_sources_or_a_split_without_documents_is_a_sentence(tmp_path):
  (tmp_path / 'empty').mkdir()
  with pytest.raises(DataError, match=r'empty: no \*\.py sources of a standard library'):
    python_source.documents(settings(tmp_path / 'data'), 'train', stdlib=tmp_path / 'empty')
  write(tmp_path / 'one' / 'a.py', b'x = 1\n')
  home = documents.role_of(b'x = 1\n')
  other = next(r for r in documents.ROLES if r != home)
  with pytest.raises(DataError, match=f'none of its 1 documents falls in {other}'):
    python_source.documents(settings(tmp_path / 'data'), other, stdlib=tmp_path / 'one')


def test_a_data_folder_that_cannot_be_written_is_a_sentence(tmp_path, stdlib):
  (tmp_path / 'file').write_text('not a folder')
  with pytest.raises(DataError, match=r'file: cannot be written, .*set data\.data_dir or PE_JAX_DATA'):
    python_source.documents(settings(tmp_path / 'file'), 'train', stdlib=stdlib)


def test_the_real_standard_library_has_long_documents():
  import sysconfig

  by_role, skipped = python_source.sources(pathlib.Path(sysconfig.get_paths()['stdlib']) / 'asyncio')
  assert skipped == 0
  assert max(len(c) for named in by_role.values() for c in named.values()) > 32_000
