"""Paths and formats: 12 cases."""

import contextlib
import json
import os

import bad_settings
from case import Case

FILES = {
  'x.yaml': '!!python/object/apply:os.system ["touch evil"]\n',
  'nan.json': '{"encoding": "rope", "optim": {"learning_rate": NaN}}',
  'torn.json': '{"encoding": "rope", "optim": {"lear',
  'newer.json': '{"encoding": "rope", "model": {"num_layer": 2}}',
  'list.json': '["rope"]',
}


def write(home):
  """The files that commands name."""
  for name, content in FILES.items():
    (home / name).write_text(content)


def given(what, says, config):
  """A case of --config."""
  return Case(what, 2, says, command=(f'--config={{home}}{config}',))


def dataset(what, code, says, name, place='here'):
  """A case of a TFDS dataset by name; 'here' is an empty folder."""

  def act(folder):
    (folder / 'here').mkdir()
    bad_settings.train({'data.source': 'tfds', 'data.name': name, 'data.data_dir': str(folder / place)}, folder)

  return Case(what, code, says, act)


@contextlib.contextmanager
def as_nobody():
  """Without the rights of root, who may read everything."""
  root = os.geteuid() == 0
  if root:
    os.seteuid(65_534)
  try:
    yield
  finally:
    if root:
      os.seteuid(0)


def forbidden(folder):
  """A folder that this user may not read."""
  from pe_jax import data
  from pe_jax.data import sources

  path = folder / 'secret'
  path.mkdir()
  (path / 'a.txt').write_text('text')
  path.chmod(0)
  config = bad_settings.config({'data.path': str(path / 'a.txt')})
  sources.module('text')  # imported while its file may be read
  try:
    with as_nobody():
      data.open_documents(config.data, 'train')
  finally:
    path.chmod(0o700)


def torn_workdir(folder):
  """A results folder whose config.json is half."""
  import pe_jax

  (folder / 'old').mkdir()
  (folder / 'old' / 'config.json').write_text(json.dumps(bad_settings.config({}).to_dict(), indent=2)[:700])
  pe_jax.load(folder / 'old')


def cases():
  """All of them."""
  return [
    given('a config that is not there', "--config: there is no file '.*/nosuch.py'", '/nosuch.py'),
    given('a folder as config', "--config: there is no file '", ''),
    given('a config in YAML', r"--config: '.*x\.yaml' is neither a program, \.py, nor data, \.json", '/x.yaml'),
    given('JSON with NaN', r'--config: .*nan\.json: not strict JSON, NaN is no number of JSON', '/nan.json'),
    given('JSON that ends early', r'--config: .*torn\.json: not strict JSON', '/torn.json'),
    given('a field of another version', r"model\.num_layer: there is no such field \(did you mean 'model\.num_layers'\?\)", '/newer.json'),
    given('JSON that is a list', r'--config: .*list\.json: a list where an object was wanted', '/list.json'),
    dataset('a dataset above the folder', 2, "data.name: '..' is no name", '../../etc'),
    dataset('a dataset that nobody prepared', 3, r'.*c5/en/<version>: no prepared dataset', 'c5/en'),
    dataset('a data folder that is not there', 3, r'.*gone: there is no such folder', 'lm1b', 'gone'),
    Case('a folder that may not be read', 3, r'.*secret.*: cannot be read, Permission denied', forbidden),
    Case('a results folder with half a config', 3, r'.*config\.json: not strict JSON', torn_workdir),
  ]
