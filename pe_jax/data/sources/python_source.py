"""The sources of the Python standard library: text that is always there, some 650 files and 12 MB, 100 of them over 32
kB.

Built once per Python version as a TFDS dataset (array_record) in the data folder, then read like any other. Tests and
installed packages are left out; a file that cannot be decoded is skipped and counted. The text differs between Python
versions, so file names and their hash go into the run's record.
"""

import contextlib
import io
import pathlib
import platform
import sys
import sysconfig
import tokenize

from pe_jax.data import folder
from pe_jax.data.documents import ROLES, fingerprint, role_of
from pe_jax.data.sources import tfds as tfds_source
from pe_jax.errors import DataError

LEFT_OUT = {'site-packages', 'dist-packages', 'test', 'tests', 'idle_test', '__pycache__'}


def documents(data, role, stdlib=None):
  """`stdlib` is the folder of sources, by default that of the running Python."""
  root = folder.data_dir(data)
  # A bucket has no lock, and the dataset is a few seconds' work on any machine.
  root = folder.cache_dir() if '://' in root else root
  builder = build(root, stdlib or sysconfig.get_paths()['stdlib'])
  info = builder.info
  if role not in info.splits:
    total = sum(s.num_examples for s in info.splits.values())
    raise DataError(
      f'{builder.data_path}: none of its {total} documents falls in {role}, since splits go by a hash of the content '
      '(use a full standard library, or another source)'
    )
  field = f'{role}_split'
  record = {'source': 'python_source', 'name': info.full_name, 'split': data[field]}
  texts = tfds_source.open_split(builder, data[field], f'data.{field}', 'text', 'strict', record)
  paths = tfds_source.open_split(builder, data[field], f'data.{field}', 'path', 'strict', {})
  named = sorted(zip([p.decode() for p in paths], list(texts)))
  record |= {'bytes': sum(len(content) for _, content in named), 'files': [name for name, _ in named]}
  record |= {'sha256': fingerprint(named), 'skipped_files': (info.metadata or {}).get('skipped_files', 0)}
  return texts


def build(root, stdlib):
  """The builder of the dataset under `root`, prepared if it was not there; processes that start at once build once."""
  import tensorflow_datasets as tfds

  root = pathlib.Path(root)
  config = f'cpython-{platform.python_version()}'
  home = root / 'python_source' / config / '1.0.0'
  if not (home / 'dataset_info.json').exists():
    try:
      (root / 'python_source').mkdir(parents=True, exist_ok=True)
      with _lock(root / 'python_source' / f'{config}.lock'):
        if not (home / 'dataset_info.json').exists():
          _prepare(root, config, stdlib)
    except OSError as e:
      raise DataError(f'{root}: cannot be written, {e.strerror} (set data.data_dir or PE_JAX_DATA)') from None
  return tfds.builder_from_directory(str(home))


def sources(stdlib):
  """({role: {path: bytes}}, number of files that could not be decoded) of the *.py files of a folder."""
  stdlib, by_role, skipped = pathlib.Path(stdlib), {}, 0
  for path in sorted(stdlib.rglob('*.py')):
    name = path.relative_to(stdlib)
    if LEFT_OUT.intersection(name.parts[:-1]):
      continue
    try:
      with tokenize.open(path) as f:  # follows the file's own coding line, PEP 263
        content = f.read().encode()
    except (SyntaxError, UnicodeError):
      skipped += 1
      continue
    by_role.setdefault(role_of(content), {})[name.as_posix()] = content
  if not by_role:
    raise DataError(f"{stdlib}: no *.py sources of a standard library (take data.source='text' or 'tfds')")
  return by_role, skipped


def _prepare(root, config, stdlib):
  import tensorflow_datasets as tfds

  by_role, skipped = sources(stdlib)
  # Not registered: a name can be registered once a process, and nobody looks this one up.
  with tfds.core.registered.skip_registration():

    class PythonSource(tfds.core.GeneratorBasedBuilder):
      """The *.py files of the Python standard library."""

      name = 'python_source'
      VERSION = tfds.core.Version('1.0.0')
      BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=config)]  # noqa: RUF012
      code_path = None  # else TFDS looks for checksums of downloads, through a package that it does not declare

      def _info(self):
        text = tfds.features.Text
        return tfds.core.DatasetInfo(
          builder=self,
          description=f'The *.py files of the standard library of {config}, without its tests.',
          features=tfds.features.FeaturesDict({'text': text(), 'path': text()}),
          metadata=tfds.core.MetadataDict(skipped_files=skipped),
        )

      def _split_generators(self, dl_manager):
        del dl_manager
        return {role: self._generate_examples(by_role[role]) for role in ROLES if role in by_role}

      def _generate_examples(self, named):
        for name, content in named.items():
          yield name, {'text': content, 'path': name}

  count = sum(map(len, by_role.values()))
  print(f'python_source: {count} files of {config} into {root} (once)', file=sys.stderr)
  builder = PythonSource(data_dir=str(root), config=config, file_format='array_record')
  with contextlib.redirect_stdout(io.StringIO()):  # it speaks of a download, which there is not
    builder.download_and_prepare()


@contextlib.contextmanager
def _lock(path):
  import fcntl

  with path.open('w') as f:
    fcntl.flock(f, fcntl.LOCK_EX)
    yield
