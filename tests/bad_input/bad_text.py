"""Text that cannot be trained on: 22 cases."""

import functools
import json
import pathlib
import shutil
from unittest import mock

import bad_settings
import numpy as np
from case import Case

FINE = [json.dumps({'text': f'document number {n} is fine'}) for n in range(60)]


def text(what, says, write, code=3, **changes):
  """A case of source 'text' in whatever write(folder) makes and returns the path of."""

  def act(folder):
    bad_settings.train({'data.path': str(write(folder)), **changes}, folder)

  return Case(what, code, says, act)


def line(what, says, bad, **changes):
  """A case in which the 42nd line of a .jsonl file is bad."""

  def write(folder):
    lines = [fine.encode() for fine in FINE]
    lines[41] = bad
    (folder / 'a.jsonl').write_bytes(b'\n'.join(lines))
    return folder / 'a.jsonl'

  return text(what, rf'.*a\.jsonl:42: {says}', write, **changes)


def written(name, content):
  """A function that writes one file and returns its path."""

  def write(folder):
    (folder / name).write_bytes(content)
    return folder / name

  return write


def latin(folder):
  for n in range(60):
    (folder / f'{n:02}.txt').write_bytes(b'caf\xe9 number %d' % n)
  return folder


def tokens(what, says, ids):
  """A case of a tokenizer that gives such ids."""

  def act(folder):
    from pe_jax.data import tokenizer
    from pe_jax.data.pipeline import Batches

    del folder
    known = tokenizer.make('bytes')
    odd = tokenizer.Tokenizer('odd.model', 257, 256, known.byte_length_V, lambda text: np.asarray(ids, np.int32), known.decode)
    next(Batches([b'a'], odd, length=4, batch_size=1, seed=0))

  return Case(what, 3, says, act)


def changed_meanwhile(folder):
  """A line more, after the documents were found."""
  from pe_jax import data

  path = written('a.jsonl', '\n'.join(FINE).encode())(folder)
  documents = data.open_documents(bad_settings.config({'data.path': str(path)}).data, 'train')
  assert documents[0]
  path.write_text(FINE[0] + '\n' + path.read_text())
  documents[0]


def thread_ends(folder):
  """The thread that reads ahead ends without a batch and without an error."""
  from pe_jax.data import pipeline, tokenizer

  del folder
  batches = pipeline.Batches([b'abc'], tokenizer.make('bytes'), length=4, batch_size=1, seed=0)
  with mock.patch.object(pipeline, '_work', return_value=None), pipeline.prefetch(batches) as ahead:
    next(ahead)


@functools.cache
def prepared():
  """A dataset of TFDS in array_record, 60 documents to train on, in a folder of this process."""
  import tensorflow_datasets as tfds
  import tiny_runs

  root = tiny_runs.home() / 'prepared'
  with tfds.core.registered.skip_registration():

    class Some(tfds.core.GeneratorBasedBuilder):
      name = 'some'
      VERSION = tfds.core.Version('1.0.0')

      def _info(self):
        return tfds.core.DatasetInfo(
          builder=self, features=tfds.features.FeaturesDict({'text': tfds.features.Text()}), disable_shuffling=True
        )

      def _split_generators(self, dl_manager):
        return {role: self._generate_examples(role) for role in ('train', 'validation', 'test')}

      def _generate_examples(self, role):
        for n in range(60):
          yield n, {'text': f'{role} {n}: ' + ' '.join(map(str, range(n)))}

    Some(data_dir=str(root), file_format='array_record').download_and_prepare()
  return root


def record(what, says, damage):
  """A case of a dataset whose training shard is damaged: damage(home of the dataset, shard)."""

  def act(folder):
    shutil.copytree(prepared(), folder / 'data')
    home = folder / 'data' / 'some' / '1.0.0'
    (shard,) = home.glob('some-train.array_record-*')
    damage(home, shard)
    bad_settings.train({'data.source': 'tfds', 'data.name': 'some', 'data.data_dir': str(folder / 'data')}, folder)

  return Case(what, 3, says, act)


def cut(home, shard):
  shard.write_bytes(shard.read_bytes()[: shard.stat().st_size // 2])


def killed_writer(home, shard):
  """Records without the index that a writer adds when it is closed."""
  from array_record.python import array_record_module

  writer = array_record_module.ArrayRecordWriter(str(shard), 'group_size:1')
  for n in range(2000):
    writer.write(np.random.default_rng(n).bytes(100))
  writer.flush() if hasattr(writer, 'flush') else None
  found = shard.read_bytes()
  writer.close()
  shard.write_bytes(found)


def flipped(home, shard):
  """One bit of the first record, behind the file's own header."""
  content = bytearray(shard.read_bytes())
  content[content.index(b'train 0: ') + 2] ^= 1
  shard.write_bytes(bytes(content))


def foreign_class(home, shard):
  del shard
  path = pathlib.Path(home / 'features.json')
  path.write_text(path.read_text().replace('tensorflow_datasets.core.features.text_feature.Text', 'evil.Text'))


def cases():
  """All of them."""
  short = written('a.jsonl', '\n'.join(FINE).encode())
  unread = r'.*some/1\.0\.0: a document of train from 0 to 0 cannot be read'
  return [
    text('a path where nothing is', r'.*gone: there is no such file or folder', lambda folder: folder / 'gone'),
    text('a folder without text', r'.*: no \.txt or \.jsonl file among the 0 files', lambda folder: folder),
    text('documents without a letter', r'.*a\.jsonl: none of its 60 documents falls in', written('a.jsonl', b'{"text": ""}\n' * 60)),
    line('a line that is not JSON', 'not JSON', b'{"text": "b"'),
    line('a line of brackets, 100000 deep', 'not JSON', b'[' * 100_000),
    line('a line without the key', r"no key 'text' \(keys there: body; set data\.text_key\)", b'{"body": "b"}'),
    line('a number where text should be', "'text' is a int", b'{"text": 3}'),
    line('a line that is not UTF-8', r'byte \d+: not UTF-8', b'{"text": "bad \xff"}'),
    text('files that are not UTF-8', r'.*00\.txt: byte 3: not UTF-8', latin),
    tokens('a token above the vocabulary', 'odd.model: token 257 is outside its vocabulary of 257', [1, 257, 2]),
    tokens('a negative token', 'odd.model: token -7 is outside', [1, -7, 2]),
    tokens('a label of -1', 'odd.model: token -1 is outside', [1, 2, -1]),
    Case('a tokenizer that is none', 3, r'.*odd\.model: not a sentencepiece model', garbage),
    text('documents that are all too short', 'evaluation documents: 0 targets', short, **{'data.min_bytes': 10**6}),
    Case('a file that changes while it is read', 3, r'.*a\.jsonl: has changed since', changed_meanwhile),
    Case('a reading thread that dies', 3, 'training documents: the thread that reads them ended', thread_ends),
    record('a dataset that names a class of its own', r".*features\.json: names the class 'evil\.Text'", foreign_class),
    record('an array_record cut in half', unread, cut),
    record('an empty array_record', unread, lambda home, shard: shard.write_bytes(b'')),
    record('a text in the place of an array_record', unread, lambda home, shard: shard.write_text('x' * 5000)),
    record('an array_record whose writer was killed', unread, killed_writer),
    record('a bit flipped in an array_record', unread, flipped),
  ]


def garbage(folder):
  """Some bytes as a sentencepiece model."""
  (folder / 'odd.model').write_bytes(b'\x00garbage' * 20)
  bad_settings.train({'data.tokenizer': str(folder / 'odd.model')}, folder)
