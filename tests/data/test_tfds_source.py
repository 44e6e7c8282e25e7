"""Prepared datasets with their real names, configs, versions and features, in each file format, read without TensorFlow.

The shards' content is local; everything else is what TFDS would have written.
"""

import json
import pathlib
import shutil
import struct

import numpy as np
import pytest

from pe_jax import config
from pe_jax.data import open_documents
from pe_jax.data import prepared as known
from pe_jax.data.sources import tfds as tfds_source
from pe_jax.data.tfrecord import TFRecordShard
from pe_jax.errors import ConfigError, DataError

DATASETS = {
  'lm1b': ('1.1.0', 'text', [], ('train', 'test')),
  'pg19': ('0.1.1', 'book_text', ['book_id', 'book_link', 'book_title', 'publication_date'], ('train', 'validation', 'test')),
  'c4/en': ('3.1.0', 'text', ['content-length', 'content-type', 'timestamp', 'url'], ('train', 'validation')),
}
COUNT = {'train': 100, 'validation': 10, 'test': 10}


def prepare(root, name, file_format):
  """Writes a prepared dataset with TFDS; TFRecord shards by hand from the array_record ones, two a split."""
  import tensorflow_datasets as tfds

  version, key, others, splits = DATASETS[name]
  base, _, config_name = name.partition('/')
  text = tfds.features.Text

  with tfds.core.registered.skip_registration():

    class Prepared(tfds.core.GeneratorBasedBuilder):
      name = base
      VERSION = tfds.core.Version(version)

      def _info(self):
        features = tfds.features.FeaturesDict({key: text()} | {k: np.int32 if k == 'book_id' else text() for k in others})
        return tfds.core.DatasetInfo(builder=self, features=features, disable_shuffling=True)

      def _split_generators(self, dl_manager):
        return {s: self._generate_examples(s) for s in splits}

      def _generate_examples(self, split):
        for i in range(COUNT[split]):
          yield i, {key: content(name, split, i), **{k: i if k == 'book_id' else 'x' for k in others}}

  builder_config = tfds.core.BuilderConfig(name=config_name) if config_name else None
  first = 'array_record' if file_format == 'tfrecord' else file_format
  builder = Prepared(data_dir=str(root), config=builder_config, file_format=first)
  builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=2))
  home = pathlib.Path(builder.data_dir)
  if file_format == 'tfrecord':
    to_tfrecord(builder, home)
  return home


def to_tfrecord(builder, home):
  from tensorflow_datasets.core import decode

  info = json.loads((home / 'dataset_info.json').read_text())
  for split in info['splits']:
    source = builder.as_data_source(split['name'], deserialize_method=decode.DeserializeMethod.RAW_BYTES)
    lengths = [int(n) for n in split['shardLengths']]
    records = iter([source[i] for i in range(len(source))])
    for k, length in enumerate(lengths):
      name = f'{info["name"]}-{split["name"]}.tfrecord-{k:05d}-of-{len(lengths):05d}'
      (home / name).write_bytes(b''.join(frame(next(records)) for _ in range(length)))
  for path in home.glob('*.array_record-*'):
    path.unlink()
  (home / 'dataset_info.json').write_text(json.dumps(info | {'fileFormat': 'tfrecord'}))


def frame(record):
  length = struct.pack('<Q', len(record))
  return length + masked_crc32c(length) + record + masked_crc32c(record)


def masked_crc32c(data):
  crc = 0xFFFFFFFF
  for byte in data:
    crc ^= byte
    for _ in range(8):
      crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
  crc ^= 0xFFFFFFFF
  return struct.pack('<I', ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def content(name, split, i):
  return f'{name} {split} {i}: ä ' + 'word ' * (i % 7)


@pytest.fixture(scope='module')
def prepared(tmp_path_factory):
  roots = {f: tmp_path_factory.mktemp(f) for f in ('array_record', 'tfrecord', 'parquet')}
  for file_format, root in roots.items():
    for name in DATASETS if file_format != 'parquet' else ['lm1b']:
      prepare(root, name, file_format)
  return roots


def settings(root, name, **kwargs):
  data = config.default().data
  data.update(source='tfds', name=name, data_dir=str(root), **kwargs)
  if name.split(':')[0] in DATASETS:
    data.text_key = kwargs.get('text_key', DATASETS[name.split(':')[0]][1])
  return data


def expected(name, split, indices):
  return [content(name, split, i).encode() for i in indices]


@pytest.mark.parametrize(
  ('file_format', 'name'),
  [(f, n) for f in ('array_record', 'tfrecord') for n in DATASETS] + [('parquet', 'lm1b')],
)
def test_documents_come_as_they_were_written(prepared, file_format, name):
  for split in DATASETS[name][3]:
    docs = open_documents(settings(prepared[file_format], name), split)
    assert len(docs) == COUNT[split]
    assert list(docs) == expected(name, split, range(COUNT[split]))
    assert docs.block(45, 55) == expected(name, split, range(45, 55))[: max(0, COUNT[split] - 45)]
    assert docs.record['name'] == f'{name}/{DATASETS[name][0]}'
    assert docs.record['file_format'] == file_format
    json.dumps(docs.record)


@pytest.mark.parametrize('file_format', ['array_record', 'tfrecord', 'parquet'])
@pytest.mark.parametrize(
  ('split', 'indices'),
  [('train[:90%]', range(90)), ('train[90%:]', range(90, 100)), ('train[45:55]', range(45, 55)), ('train[7:8]', [7])],
)
def test_a_slice_of_a_split_is_that_slice(prepared, file_format, split, indices):
  docs = open_documents(settings(prepared[file_format], 'lm1b', validation_split=split), 'validation')
  assert list(docs) == expected('lm1b', 'train', indices)
  assert docs[0] == docs.block(0, 1)[0]


def test_tensorflow_is_never_imported(prepared):
  import subprocess
  import sys

  script = (
    'import sys\nfrom pe_jax import config, data\nc = config.default().data\nc.update(source="tfds", name="lm1b")\n'
    'for c.data_dir in sys.argv[1:]:\n  data.open_documents(c, "train")[99]\n'
    'print(*{"tensorflow", "jax", "array_record", "pyarrow.parquet"}.intersection(sys.modules))'
  )
  command = [sys.executable, '-W', 'error', '-c', script, *map(str, prepared.values())]
  done = subprocess.run(command, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  assert set(done.stdout.split()) == {'array_record', 'pyarrow.parquet'}


def test_the_newest_or_the_named_version_is_taken(prepared, tmp_path):
  shutil.copytree(prepared['tfrecord'] / 'lm1b', tmp_path / 'lm1b')
  for version in ('1.0.9', '1.10.0'):
    shutil.copytree(tmp_path / 'lm1b' / '1.1.0', tmp_path / 'lm1b' / version)
  (tmp_path / 'lm1b' / '2.0.0.incomplete').mkdir()
  assert tfds_source.find('lm1b', str(tmp_path)).name == '1.10.0'
  assert tfds_source.find('lm1b:1.0.9', str(tmp_path)).name == '1.0.9'
  with pytest.raises(DataError, match=r'3\.0\.0: no prepared dataset \(folders in .*: 1\.0\.9, 1\.1\.0, 1\.10\.0'):
    tfds_source.find('lm1b:3.0.0', str(tmp_path))


def test_a_dataset_that_is_not_there_says_what_is(prepared, tmp_path):
  root = prepared['array_record']
  with pytest.raises(DataError, match=r'gone: there is no such folder \(set data\.data_dir or PE_JAX_DATA'):
    open_documents(settings(tmp_path / 'gone', 'lm1b'), 'train')
  with pytest.raises(DataError, match=r'lm2b/<version>: no prepared dataset \(folders in .*: c4, lm1b, pg19; prepare'):
    open_documents(settings(root, 'lm2b'), 'train')
  with pytest.raises(DataError, match=r'c4/<version>: no prepared dataset \(folders in .*c4: en;'):
    open_documents(settings(root, 'c4'), 'train')
  with pytest.raises(ConfigError, match=r"data\.name: source 'tfds' needs one"):
    open_documents(settings(root, ''), 'train')


@pytest.mark.parametrize('name', sorted(known.KNOWN))
def test_what_configs_say_of_a_dataset_is_what_it_has(prepared, name):
  data = config.default().data
  data.update(known.fields(name, str(prepared['array_record'])))
  texts = {split: list(open_documents(data, split)) for split in ('train', 'validation', 'test')}
  assert min(map(len, texts.values())) > 0
  assert not {*texts['validation']} & {*texts['test']}


def test_a_wrong_feature_or_split_is_a_config_error_that_lists_them(prepared):
  root = prepared['array_record']
  with pytest.raises(ConfigError, match=r"data\.text_key: pg19/0\.1\.1 has no feature 'text' .*book_text"):
    open_documents(settings(root, 'pg19', text_key='text'), 'train')
  with pytest.raises(ConfigError, match=r"data\.test_split: c4/en/3\.1\.0 has no split 'test' \(splits: train, validation"):
    open_documents(settings(root, 'c4/en'), 'test')
  with pytest.raises(DataError, match=r"data\.train_split: 'train\[:0\]' of lm1b/1\.1\.0 has 0 documents"):
    open_documents(settings(root, 'lm1b', train_split='train[:0]'), 'train')


def test_a_bucket_without_gcsfs_names_the_extra(monkeypatch):
  import importlib.util

  monkeypatch.setattr(importlib.util, 'find_spec', lambda name, package=None: None)
  with pytest.raises(ConfigError, match=r"gs://bucket/data needs the gcsfs package \(pip install -e '\.\[gcs\]'\)"):
    open_documents(settings('gs://bucket/data', 'c4/en'), 'train')


@pytest.mark.parametrize('name', ['lm1b', 'c4/en'])
def test_without_a_features_file_the_features_come_from_the_datasets_code(prepared, tmp_path, name):
  base = name.partition('/')[0]
  shutil.copytree(prepared['tfrecord'] / base, tmp_path / base)
  (tmp_path / name / DATASETS[name][0] / 'features.json').unlink()
  assert open_documents(settings(tmp_path, name), 'train')[60] == expected(name, 'train', [60])[0]
  (tmp_path / base).rename(tmp_path / 'unknown')
  renamed = name.replace(base, 'unknown')
  with pytest.raises(DataError, match=r'unknown.*: cannot be opened, .*prepare it again'):
    open_documents(settings(tmp_path, renamed), 'train')


def test_a_truncated_or_missing_shard_is_named(prepared, tmp_path):
  shutil.copytree(prepared['tfrecord'] / 'lm1b', tmp_path / 'lm1b')
  shard = tmp_path / 'lm1b' / '1.1.0' / 'lm1b-train.tfrecord-00001-of-00002'
  whole = shard.read_bytes()
  first = len(frame(b'')) + struct.unpack('<Q', whole[:8])[0]
  docs = open_documents(settings(tmp_path, 'lm1b'), 'train')
  assert docs[0] == expected('lm1b', 'train', [0])[0]
  shard.write_bytes(whole[: first + 5])
  with pytest.raises(DataError, match=rf'00001-of-00002: record 1 at byte {first} goes past the end of the file at byte {first + 5}'):
    docs[99]
  shard.write_bytes(whole[:-1])
  with pytest.raises(DataError, match=rf'goes past the end of the file at byte {len(whole) - 1}'):
    docs[99]
  shard.write_bytes(whole[:first])
  with pytest.raises(DataError, match=rf'ends at byte {first} after 1 records where the dataset lists 50'):
    docs[99]
  shard.unlink()
  with pytest.raises(DataError, match='00001-of-00002: this shard is missing'):
    docs[99]


def test_records_are_found_in_any_order(tmp_path):
  records = [bytes([i]) * (i * 37 % 50) for i in range(40)]
  (tmp_path / 'shard').write_bytes(b''.join(map(frame, records)))
  shard = TFRecordShard(str(tmp_path / 'shard'), 40)
  assert shard.read([39, 0, 7, 7]) == [records[i] for i in (39, 0, 7, 7)]
  assert TFRecordShard(str(tmp_path / 'shard')).read(range(40)) == records


def test_the_frame_of_this_test_is_the_published_one():
  # RFC 3720, B.4: crc32c of 32 zero bytes is aa 36 91 8a.
  assert masked_crc32c(bytes(32)) == struct.pack('<I', ((0x8A9136AA >> 15 | 0x8A9136AA << 17) + 0xA282EAD8) & 0xFFFFFFFF)
