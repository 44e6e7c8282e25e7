"""Nothing in a results folder, a config as data, a dataset or a string is executed, and no name leads out of the folder it is for."""

import contextlib
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import tiny_runs as runs

import pe_jax
from pe_jax import config as config_lib
from pe_jax import encodings, evaluate, json_config, names, optim, probes, resolve, tasks
from pe_jax.checkpoint import Checkpoints
from pe_jax.data import sources
from pe_jax.data.sources import tfds as tfds_source
from pe_jax.errors import ConfigError, DataError, UserError

pytestmark = pytest.mark.xdist_group('security')


@pytest.fixture(autouse=True, scope='module')
def quick():
  with runs.quick_compiles():
    yield


def plant(folder, marker):
  """Everything that Python or a careless reader would run, in a folder and all folders below it; each would make the marker."""
  code = f'import pathlib; pathlib.Path({str(marker)!r}).touch()\n'
  pickled = f'cbuiltins\nexec\n(S{code.strip()!r}\ntR.'.encode()
  for place in [folder, *(p for p in folder.rglob('*') if p.is_dir())]:
    for name in ('evil.py', 'sitecustomize.py', 'usercustomize.py', 'conftest.py', 'jax.py', 'pe_jax.py', 'numpy.py', 'config.py'):
      (place / name).write_text(code)
    (place / 'evil.pth').write_text(code)
    for name in ('params.pkl', 'checkpoint.pickle', 'state.pt', 'array.npy'):
      (place / name).write_bytes(pickled)
    (place / 'config.yaml').write_text(f'!!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path ["{marker}"]]\n')


@pytest.fixture
def planted(tmp_path):
  """(a copy of a trained workdir in which all of that lies, the marker)."""
  folder, marker = tmp_path / 'run', tmp_path / 'executed'
  shutil.copytree(runs.trained('rope'), folder)
  plant(folder, marker)
  return folder, marker


def test_what_is_planted_would_be_executed_if_somebody_did(planted):
  folder, marker = planted
  subprocess.run([sys.executable, folder / 'evil.py'], check=True)
  assert marker.exists()


def test_evaluating_a_foreign_results_folder_from_inside_it_executes_nothing_of_it(planted):
  """The process starts in the folder, as `cd run && python …/eval.py --workdir=.` does."""
  folder, marker = planted
  command = [sys.executable, str(runs.ROOT / 'eval.py'), '--workdir=.', '--lengths=16', '--protocols=nonoverlapping', '--max_targets=200']
  done = subprocess.run(command, cwd=folder, env=runs.environment(), capture_output=True, text=True, timeout=120, check=False)
  assert done.returncode == 0, done.stderr
  assert 'rope' in done.stdout
  assert not marker.exists()


def test_a_checkpoint_is_read_without_pickle(planted, monkeypatch):
  folder, marker = planted

  def refuse(*args, **kwargs):
    raise AssertionError('pickle was asked to load something')

  for name in ('pickle.load', 'pickle.loads', 'pickle.Unpickler', 'pickle._Unpickler', 'cloudpickle.loads', 'cloudpickle.load'):
    monkeypatch.setattr(name, refuse)
  monkeypatch.syspath_prepend(str(folder))
  run = pe_jax.load(folder)
  assert run.step == 4
  assert not marker.exists()


HANDLER = 'orbax.checkpoint._src.handlers.standard_checkpoint_handler.StandardCheckpointHandler'


def test_what_a_checkpoints_own_description_names_is_not_called(planted):
  """Its JSON names types of values and handlers of items; those of others are refused or not looked at, and nothing is started."""
  folder, marker = planted
  changed = 0
  for path in (folder / 'checkpoints').rglob('_*METADATA*'):
    text = path.read_text()
    for known in ('jax.Array', 'np.ndarray', 'scalar', HANDLER):
      text = text.replace(f'"{known}"', '"os.system"')
    changed += text != path.read_text()
    path.write_text(text)
  assert changed
  with contextlib.suppress(UserError, ValueError, KeyError):
    assert pe_jax.load(folder).step == 4
  assert not marker.exists()


FORGE = """
import json, os, pathlib
import tensorstore as ts
import pe_jax
from pe_jax import cli

def main():
  folder, forged = pathlib.Path(os.environ['FORGED']), 0
  for home in (folder / 'checkpoints').glob('*/state'):
    store = ts.KvStore.open({'driver': 'ocdbt', 'base': f'file://{home}/'}).result()
    for key in store.list().result():
      if key.endswith((b'.zarray', b'zarr.json')):
        header = json.loads(store.read(key).result().value)
        header['shape'] = [2**40] * max(1, len(header['shape']))
        store.write(key, json.dumps(header).encode()).result()
        forged += 1
  assert forged
  pe_jax.load(folder)

cli.run(main, 'x')
"""


def test_a_forged_header_of_an_array_is_a_sentence_and_does_not_abort_the_process(tmp_path):
  """A header that asks for 2^40 numbers an axis is not what the checkpoint's description and this model say."""
  folder = tmp_path / 'run'
  shutil.copytree(runs.trained('rope'), folder)
  (tmp_path / 'forge.py').write_text(FORGE)
  command = [sys.executable, str(tmp_path / 'forge.py')]
  environment = runs.environment(FORGED=str(folder), PYTHONPATH=os.pathsep.join([str(runs.ROOT), os.environ['PYTHONPATH']]))
  done = subprocess.run(command, cwd=runs.ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
  assert 0 < done.returncode < 128, (done.returncode, done.stderr[-500:])
  if importlib.util.find_spec('pe_jax.saved'):  # where checkpoints are verified before they are read
    assert done.returncode in (2, 3, 4), done.stderr[-500:]
    assert done.stderr.startswith('ERROR: ')


def test_a_config_as_data_is_data(tmp_path):
  """JSON is read strictly; a string that looks like code is a name that is unknown."""
  marker = tmp_path / 'executed'
  call = f'__import__("pathlib").Path({str(marker)!r}).touch()'
  for field in ('encoding', 'data.source', 'optim.name', 'data.name'):
    tree = runs.config().to_dict()
    *path, name = field.split('.')
    (tree[path[0]] if path else tree)[name] = call
    (tmp_path / 'c.json').write_text(json.dumps(tree))
    config = json_config.get_config(tmp_path / 'c.json')
    assert config_lib.flatten(config)[field] == call
    config.data.source = 'task' if field == 'data.name' else config.data.source
    with pytest.raises(ConfigError):
      resolve.resolve(config)
  assert not marker.exists()


@pytest.mark.parametrize(
  'text',
  [
    '__import__("os").system("true")',
    'rope(base=__import__("os").getpid())',
    'rope(base=(lambda: 3)())',
    'rope(base=9**9**9)',
    'rope(base=1e400)',
    'rope(**{"base": 3})',
    'rope.encoding',
    '[x for x in (1,)]',
    f'{"stack(" * 500}rope{")" * 500}',
    f'rope(layout={"[" * 150}{"]" * 150})',
    'rope\0',
    'base',
    'grammar',
    '__init__',
    '../evil',
    'os',
  ],
)
def test_a_string_that_names_an_encoding_is_read_and_never_evaluated(text):
  for read in (encodings.parse, encodings.check_name):
    if (read is encodings.check_name and text.startswith('rope(base=1e400')) or 'layout' in text:
      continue
    with pytest.raises(ConfigError):
      read(text)


@pytest.mark.parametrize('name', ['../evil', 'os', '__init__', 'base', '', '.', 'evil.py', 'a/b'])
def test_a_name_of_a_registry_is_a_file_of_its_folder_and_nothing_else(name):
  registries = {
    'source': lambda: sources.module(name),
    'task': lambda: tasks.make(name),
    'optimizer': lambda: optim.check_name(name),
    'protocol': lambda: evaluate.check(None, [16], [], [name], None),
    'probe': lambda: probes.check(None, [16], [], [name], None),
  }
  for what, ask in registries.items():
    with pytest.raises(UserError):
      print(what, ask())


@pytest.mark.parametrize('name', ['..', '.', '.hidden', '', 'a/b', 'a\\b', 'a b', 'a\0', 'ä', 'x' * 101, '$(ls)', '-n;ls', '~'])
def test_a_name_that_could_leave_its_folder_is_refused(name):
  with pytest.raises(ConfigError, match=r'^run: .* is no name \(1 to 100 letters'):
    names.check(name, 'run')


def test_usual_names_are_names():
  for name in ('a', 'rope-8x_seed.0', '20230601.en', '_x', '-', 'x' * 100):
    assert names.check(name, 'run') == name


@pytest.mark.parametrize('name', ['../../etc', 'c4/../../x', '/etc/passwd', 'c4/en:../1', '.hidden', 'c4//en', '~/x'])
def test_a_dataset_lies_in_the_data_folder(name, tmp_path):
  with pytest.raises(ConfigError, match=r'^data\.name: '):
    tfds_source.find(name, str(tmp_path))


def test_a_dataset_cannot_name_code_to_be_imported(tmp_path, monkeypatch):
  """TFDS would import the module of any class that features.json names."""
  (tmp_path / 'evil.py').write_text(f'import pathlib\npathlib.Path({str(tmp_path / "executed")!r}).touch()\n')
  monkeypatch.syspath_prepend(str(tmp_path))
  home = tmp_path / 'some' / '1.0.0'
  home.mkdir(parents=True)
  (home / 'dataset_info.json').write_text(json.dumps({'name': 'some', 'version': '1.0.0', 'fileFormat': 'array_record', 'splits': []}))
  text = 'tensorflow_datasets.core.features.text_feature.Text'
  for evil in ('evil.Text', 'os.path.Text'):
    features = {'pythonClassName': 'tensorflow_datasets.core.features.features_dict.FeaturesDict'}
    features['featuresDict'] = {'features': {'text': {'pythonClassName': text}, 'more': {'pythonClassName': evil}}}
    (home / 'features.json').write_text(json.dumps(features))
    with pytest.raises(DataError, match=f"names the class '{evil}'"):
      tfds_source.open_builder('some', str(tmp_path))
  assert not (tmp_path / 'executed').exists()
  assert 'evil' not in sys.modules


def test_reading_a_results_folder_writes_nothing_into_it(tmp_path):
  folder = tmp_path / 'run'
  shutil.copytree(runs.trained('rope'), folder)
  before = runs.contents(folder)
  pe_jax.load(folder)
  with_steps = Checkpoints(folder, read_only=True)
  assert with_steps.steps() == [4]
  with_steps.close()
  assert runs.contents(folder) == before


def test_the_document_on_security_names_what_is_there():
  text = (pathlib.Path(runs.ROOT) / 'docs' / 'security.md').read_text()
  for word in ('tests/test_security.py', 'tests/test_static_gate.py', 'make audit', '--config=', '.json'):
    assert word in text
