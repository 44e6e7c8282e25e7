"""Any prepared TensorFlow Datasets dataset, read without TensorFlow: C4, PG-19, LM1B and the rest by `data.name`.

The dataset is opened by its directory, `data_dir/name/[config/]version`, where dataset_info.json and features.json say
all that is needed, so no dataset code is imported. array_record goes through TFDS's own reader; parquet and TFRecord
shards are read here, each when its first document is asked for. Split names may be slices such as 'train[:90%]'. The
newest version is taken unless the name ends in ':1.2.3'.
"""

import bisect
import itertools
import json
import re

from pe_jax import names
from pe_jax.config import did_you_mean
from pe_jax.data import folder
from pe_jax.data.documents import Documents, utf8
from pe_jax.data.tfrecord import TFRecordShard
from pe_jax.errors import ConfigError, DataError, UserError


def documents(data, role):
  if not data.name:
    raise ConfigError("data.name: source 'tfds' needs one (for example 'lm1b', 'pg19' or 'c4/en')")
  builder = open_builder(data.name, folder.data_dir(data))
  field = f'{role}_split'
  record = {'source': 'tfds', 'name': builder.info.full_name, 'split': data[field]}
  record['file_format'] = builder.info.file_format.value
  return open_split(builder, data[field], f'data.{field}', data.text_key, data.unicode_errors, record)


def open_split(builder, split, field, text_key, unicode_errors, record):
  """Documents of one split of a prepared dataset; `field` names what the user would change."""
  info = builder.info
  features = list(info.features)
  if text_key not in features:
    raise ConfigError(
      f"data.text_key: {info.full_name} has no feature '{text_key}'{did_you_mean(text_key, features)} (features: {', '.join(features)})"
    )
  read_raw, count = _reader(builder, split, field)
  if not count:
    raise DataError(f"{field}: '{split}' of {info.full_name} has 0 documents (take another split or slice)")
  replaced = set()

  def values(indices):
    try:
      found = [info.features.deserialize_example_np(raw)[text_key] for raw in read_raw(indices)]
      if any(value is None for value in found):  # what array_record gives of a file that ends early
        raise ValueError('a record is empty')
      return found
    except UserError:
      raise
    except Exception as error:  # array_record, pyarrow and protobuf each have errors of their own
      said = ' '.join(str(error).split())[:200]
      raise DataError(
        f'{builder.data_path}: a document of {split} from {indices[0]} to {indices[-1]} cannot be read, {type(error).__name__}: {said} '
        '(copy or prepare this dataset again)'
      ) from error

  def read(indices):
    texts = []
    for i, value in zip(indices, values(indices)):
      text, changed = utf8(value, unicode_errors, lambda at, i=i: f'{info.full_name} {split}: document {i}, byte {at}')
      if changed:
        replaced.add(i)
        record['replaced_documents'] = len(replaced)
      texts.append(text)
    return texts

  record |= {'documents': count, 'replaced_documents': 0}
  return Documents(read, count, record)


def open_builder(name, data_dir):
  """The TFDS builder of a prepared dataset, made from its directory."""
  import tensorflow_datasets as tfds

  path = find(name, data_dir)
  check_features(path)
  try:
    return tfds.builder_from_directory(str(path))
  except Exception as error:  # no features.json: prepared by a TFDS before 4.0; or files that are not what they should be
    try:
      import tensorflow_datasets.text

      return tfds.builder(f'{name.partition(":")[0]}:{path.name}', data_dir=data_dir)
    except Exception:
      raise DataError(f'{path}: cannot be opened, {error} (prepare it again with TFDS 4 or newer)') from None


def check_features(path):
  """Refuses a features.json that names a class outside TFDS: whatever module it names, TFDS imports."""
  file = path / 'features.json'
  if not file.exists():
    return

  def named(tree):
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree if isinstance(tree, list) else ()):
      if key in ('pythonClassName', 'python_class_name', 'type') and isinstance(value, str):
        yield value
      yield from named(value)

  try:
    foreign = [name for name in named(json.loads(file.read_bytes())) if '.' in name and not name.startswith('tensorflow_datasets.core.')]
  except (ValueError, RecursionError) as error:
    raise DataError(f'{file}: not JSON, {" ".join(str(error).split())} (prepare this dataset again)') from None
  if foreign:
    raise DataError(f"{file}: names the class '{foreign[0]}', which is not one of TFDS (only its own features are read)")


def find(name, data_dir):
  """The directory of the newest (or named) prepared version of a dataset."""
  name, colon, version = name.partition(':')
  for part in [*name.split('/'), *([version] if colon else [])]:
    names.check(part, 'data.name')
  root = _existing(data_dir)
  base = root / name
  versions = sorted(
    (p for p in _folders(base) if re.fullmatch(r'\d+\.\d+\.\d+', p.name) and (p / 'dataset_info.json').exists()),
    key=lambda p: [int(part) for part in p.name.split('.')],
  )
  if version:
    versions = [p for p in versions if p.name == version]
  if versions:
    return versions[-1]
  parent = base if base.exists() else base.parent if base.parent.exists() else root
  there = sorted(p.name for p in _folders(parent) if not p.name.startswith('.') and p.name != 'downloads')
  raise DataError(
    f'{base / (version or "<version>")}: no prepared dataset (folders in {parent}: {", ".join(there) or "none"}; '
    'prepare it with TFDS, or set data.name and data.data_dir)'
  )


def _existing(data_dir):
  import importlib.util

  from etils import epath

  if data_dir.startswith('gs://') and importlib.util.find_spec('gcsfs') is None:
    raise ConfigError(f'data.data_dir: {data_dir} needs the gcsfs package (pip install pe_jax[gcs])')
  # Looked at first: the array_record reader waits for minutes on a bucket it may not read.
  path = epath.Path(data_dir)
  if not path.exists():
    raise DataError(f'{data_dir}: there is no such folder (set data.data_dir or PE_JAX_DATA to where datasets are)')
  return path


def _folders(path):
  return [p for p in path.iterdir() if p.is_dir()] if path.exists() else []


def _reader(builder, split, field):
  """(function from increasing indices to serialized examples, number of examples) of a split or slice of one."""
  import tensorflow_datasets as tfds
  from tensorflow_datasets.core import decode

  info = builder.info
  try:
    instructions = info.splits[split].file_instructions
  except (ValueError, KeyError, AssertionError) as e:
    known = ', '.join(info.splits) or 'none'
    raise ConfigError(f"{field}: {info.full_name} has no split '{split}' (splits: {known}; {str(e).splitlines()[0]})") from None
  formats = tfds.core.FileFormat
  shards = {formats.TFRECORD: TFRecordShard, formats.PARQUET: ParquetShard}
  if info.file_format in shards:
    return sharded(instructions, shards[info.file_format])
  if info.file_format != formats.ARRAY_RECORD:
    raise DataError(f'{builder.data_path}: prepared as {info.file_format.value}, which is not read here (prepare it as array_record)')
  if not instructions:
    return None, 0
  source = builder.as_data_source(split, deserialize_method=decode.DeserializeMethod.RAW_BYTES)
  return lambda indices: source.__getitems__(list(indices)), len(source)


def sharded(instructions, shard):
  """(function from increasing indices to records, number of records) over TFDS file instructions, each `take` records
  from `skip` on.
  """
  opened = [shard(i.filename, i.examples_in_shard) for i in instructions]
  ends = list(itertools.accumulate(i.take if i.take >= 0 else i.examples_in_shard - i.skip for i in instructions))

  def read(indices):
    records = []
    for k, group in itertools.groupby(indices, lambda i: bisect.bisect_right(ends, i)):
      first = instructions[k].skip - (ends[k - 1] if k else 0)
      records += opened[k].read([i + first for i in group])
    return records

  return read, ends[-1] if ends else 0


class ParquetShard:
  """A shard whose only column holds serialized examples. TFDS's own reader leaves out the bounds of a slice."""

  def __init__(self, path, examples=None):
    self.path = path
    del examples

  def read(self, indices):
    import pyarrow.parquet

    # Row groups are found by the footer, so that one block does not read the whole shard.
    file, begin, records = pyarrow.parquet.ParquetFile(str(self.path)), 0, {}
    wanted = list(indices)
    for g in range(file.num_row_groups):
      rows = file.metadata.row_group(g).num_rows
      inside = [i for i in wanted if begin <= i < begin + rows]
      if inside:
        column = file.read_row_group(g, columns=[file.schema_arrow.names[0]]).column(0)
        records |= {i: column[i - begin].as_py() for i in inside}
      begin += rows
    return [records[i] for i in wanted]
