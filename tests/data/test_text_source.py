"""The text source and the registry of sources: splits by content, sentences for every mistake."""

import hashlib
import itertools
import json

import pytest

from pe_jax import config
from pe_jax.data import documents, folder, open_documents, sources
from pe_jax.errors import ConfigError, DataError


def settings(path='', **kwargs):
  data = config.default().data
  data.update(source='text', path=str(path))
  data.update(kwargs)
  return data


def jsonl(path, texts, key='text'):
  path.write_text(''.join(json.dumps({key: t}) + '\n' for t in texts))
  return path


def test_sources_are_files_and_unknown_ones_are_refused():
  assert sources.names() == ['python_source', 'task', 'text', 'tfds']
  with pytest.raises(ConfigError, match=r"data\.source: 'txt' is unknown \(did you mean 'text'\?\)"):
    open_documents(settings(source='txt'), 'train')
  with pytest.raises(ConfigError, match=r"split 'valid' is unknown \(did you mean 'validation'\?\)"):
    open_documents(settings(), 'valid')


def test_every_document_is_in_one_split_and_equal_ones_in_the_same(tmp_path):
  texts = [f'document {i % 300} ä' for i in range(400)]
  jsonl(tmp_path / 'a.jsonl', texts[:250])
  (tmp_path / 'below').mkdir()
  jsonl(tmp_path / 'below' / 'b.jsonl', texts[250:])
  (tmp_path / 'c.txt').write_bytes(b'one file,\r\none document')
  split = {role: open_documents(settings(tmp_path), role) for role in documents.ROLES}
  read = {role: [bytes(d) for d in docs] for role, docs in split.items()}
  assert sorted(itertools.chain(*read.values())) == sorted([t.encode() for t in texts] + [b'one file,\r\none document'])
  assert sum(len(set(r)) for r in read.values()) == 301
  assert 0.85 < len(read['train']) / 401 < 0.95
  for role, docs in split.items():
    assert docs.record['files'] == ['a.jsonl', 'below/b.jsonl', 'c.txt']
    assert docs.record['documents'] == len(docs) == len(read[role])
    assert docs.record['bytes'] == sum(map(len, read[role]))
    assert docs.block(1, 3) == read[role][1:3]
    assert docs[-1] == read[role][-1]
    json.dumps(docs.record)
  assert len({d.record['sha256'] for d in split.values()}) == 1
  (tmp_path / 'c.txt').rename(tmp_path / 'd.txt')
  assert open_documents(settings(tmp_path), 'train').record['sha256'] != split['train'].record['sha256']


def test_the_share_is_of_the_content_hash():
  for k in range(50):
    content = str(k).encode()
    share = int(hashlib.sha256(content).hexdigest(), 16) % 100
    assert documents.role_of(content) == ('train' if share < 90 else 'validation' if share < 95 else 'test')


def test_missing_and_empty_places_say_what_was_looked_for(tmp_path):
  with pytest.raises(ConfigError, match=r"data\.path: source 'text' needs one"):
    open_documents(settings(), 'train')
  with pytest.raises(DataError, match='gone: there is no such file or folder'):
    open_documents(settings(tmp_path / 'gone'), 'train')
  (tmp_path / 'notes.md').write_text('x')
  with pytest.raises(DataError, match=r'no \.txt or \.jsonl file among the 1 files there'):
    open_documents(settings(tmp_path), 'train')
  with pytest.raises(DataError, match=r"notes\.md: its suffix '\.md' is not \.txt or \.jsonl"):
    open_documents(settings(tmp_path / 'notes.md'), 'train')


def test_an_empty_split_says_how_many_documents_there_are(tmp_path):
  (tmp_path / 'one.txt').write_text('a')
  home = documents.role_of(b'a')
  assert len(open_documents(settings(tmp_path / 'one.txt'), home)) == 1
  other = next(r for r in documents.ROLES if r != home)
  with pytest.raises(DataError, match=rf'none of its 1 documents falls in {other}, .*\(give more documents'):
    open_documents(settings(tmp_path / 'one.txt'), other)


@pytest.mark.parametrize(
  ('line', 'message'),
  [
    ('{"text": "b"', r'a\.jsonl:3: not JSON'),
    ('["b"]', r'a\.jsonl:3: a list where an object was wanted'),
    ('{"body": "b", "id": 3}', r"a\.jsonl:3: no key 'text' \(keys there: body, id; set data\.text_key\)"),
    ('{"text": 3}', r"a\.jsonl:3: 'text' is a int where a string was wanted"),
    ('{"text": "\\ud800"}', r"a\.jsonl:3: byte 0 of 'text': not UTF-8"),
  ],
)
def test_a_bad_line_is_named_by_its_number(tmp_path, line, message):
  (tmp_path / 'a.jsonl').write_text('{"text": "a"}\n\n' + line + '\n')
  with pytest.raises(DataError, match=message):
    open_documents(settings(tmp_path), 'train')


def test_a_slice_is_refused_since_documents_are_dealt_out_by_a_hash(tmp_path):
  jsonl(tmp_path / 'a.jsonl', [f'{i}' for i in range(100)])
  data = settings(tmp_path, train_split='train[:10%]')
  with pytest.raises(ConfigError, match=r"data\.train_split: 'train\[:10%\]', and source 'text' has no slices"):
    open_documents(data, 'train')


def test_the_text_key_is_a_field(tmp_path):
  jsonl(tmp_path / 'a.jsonl', [f'{i}' for i in range(100)], key='body')
  assert len(open_documents(settings(tmp_path, text_key='body'), 'train')) > 80


def test_text_that_is_not_utf8_stops_or_is_replaced_and_counted(tmp_path):
  lines = [json.dumps({'text': f'fine {i}'}).encode() for i in range(60)]
  lines[41] = b'{"text": "bad \xff"}'
  (tmp_path / 'a.jsonl').write_bytes(b'\n'.join(lines))
  where = (tmp_path / 'a.jsonl').read_bytes().index(b'\xff')
  with pytest.raises(DataError, match=rf'a\.jsonl:42: byte {where}: not UTF-8, .*data\.unicode_errors=replace'):
    open_documents(settings(tmp_path), 'train')
  with pytest.raises(ConfigError, match=r"data\.unicode_errors: 'ignore' is unknown"):
    open_documents(settings(tmp_path, unicode_errors='ignore'), 'train')
  replaced, contents = 0, []
  for role in documents.ROLES:
    docs = open_documents(settings(tmp_path, unicode_errors='replace'), role)
    replaced += docs.record['replaced_documents']
    contents += list(docs)
  assert replaced == 1
  assert 'bad \ufffd'.encode() in contents
  (tmp_path / 'b.txt').write_bytes(b'abc\xff')
  with pytest.raises(DataError, match=r'b\.txt: byte 3: not UTF-8'):
    open_documents(settings(tmp_path / 'b.txt'), 'train')


def test_the_data_folder_is_the_configs_then_the_environments_then_the_cache(monkeypatch):
  data = settings()
  monkeypatch.setenv('XDG_CACHE_HOME', 'cache')
  monkeypatch.setenv('PE_JAX_DATA', 'ours')
  assert folder.data_dir(data) == 'ours'
  monkeypatch.delenv('PE_JAX_DATA')
  assert folder.data_dir(data) == 'cache/pe_jax/data'
  monkeypatch.delenv('XDG_CACHE_HOME')
  monkeypatch.setenv('HOME', 'home')
  assert folder.data_dir(data) == 'home/.cache/pe_jax/data'
  data.data_dir = 'mine'
  assert folder.data_dir(data) == 'mine'
