"""Fields, overrides and the `file.py:arg` grammar: what is given takes effect with its declared type, or the program stops."""

import json
import sys
from unittest import mock

import ml_collections
import pytest
import tiny_runs as runs
from absl import flags
from ml_collections import config_flags

from pe_jax import config as config_lib
from pe_jax import resolve, workdir
from pe_jax.config import parse_arg
from pe_jax.errors import ConfigDiffers, ConfigError

pytestmark = pytest.mark.filterwarnings('ignore:the load_module:DeprecationWarning')  # ml_collections reads config files so


def parsed(*args, arg=''):
  """What train.py's --config gives for these arguments."""
  values = flags.FlagValues()
  config_flags.DEFINE_config_file('config', None, '', flag_values=values)
  argv = ['train.py', f'--config={runs.home() / "tiny.py"}{arg}', *args]
  with mock.patch.object(sys, 'argv', argv):  # where config_flags looks for overrides
    values(argv)
  return values.config


def test_overrides_take_effect_with_the_declared_type_and_reach_the_json():
  given = {
    'seed': ('7', 7),
    'optim.learning_rate': ('1', 1.0),
    'model.dropout': ('1e-1', 0.1),
    'data.tokenizer': ('bytes', 'bytes'),
    'encoding': ('yarn(factor=4.0, base=500)', 'yarn(factor=4, base=500)'),
    'tensorboard': ('true', True),
    'model.embed_dim': ('32', 32),
    'data.name': ('None', 'None'),
  }
  config = parsed(*[f'--config.{field}={text}' for field, (text, _) in given.items()])
  resolved = resolve.resolve(config)
  written = config_lib.flatten(json.loads(config_lib.to_json(resolved)))
  for field, (_, want) in given.items():
    assert (written[field], type(written[field])) == (want, type(want)), field
  # Derived from what was overridden, and not from what the file said before.
  derived = {'model.head_dim': 16, 'model.mlp_dim': 128, 'model.num_kv_heads': 2, 'model.vocab_size': 257, 'model.embed_scale': 1.0}
  assert {k: written[k] for k in derived} == derived
  assert parsed('--noconfig.tensorboard').tensorboard is False


def test_a_derived_field_can_be_given():
  c = resolve.resolve(runs.config(model__head_dim=4, model__mlp_dim=24, model__num_kv_heads=1, model__embed_scale=3.0))
  assert (c.model.head_dim, c.model.mlp_dim, c.model.num_kv_heads, c.model.embed_scale) == (4, 24, 1, 3.0)
  assert resolve.resolve(runs.config(model__mlp='swiglu', model__embed_dim=64)).model.mlp_dim == 168


@pytest.mark.parametrize(
  'bad', ['--config.seed=1e3', '--config.seed=2.0', '--config.seed=True', '--config.tensorboard=7', '--config.optim.b1=x']
)
def test_an_override_of_another_type_stops(bad):
  with pytest.raises(flags.IllegalFlagValueError):
    parsed(bad)


def test_an_override_that_does_not_exist_stops():
  for bad in ('--config.optim.learningrate=1', '--config.nosuch=1', '--config.model.optim.b1=1'):
    with pytest.raises((AttributeError, KeyError, flags.UnrecognizedFlagError)):
      parsed(bad)


def test_the_argument_of_a_config_file():
  def values(text):
    return parse_arg(text, encoding='rope', train_length=64, rate=0.5, runlocal=False).to_dict()

  default = {'encoding': 'rope', 'train_length': 64, 'rate': 0.5, 'runlocal': False}
  for text, changed in {
    '': {},
    None: {},
    'alibi': {'encoding': 'alibi'},
    'runlocal': {'runlocal': True},
    'runlocal=false': {},
    'runlocal=True': {'runlocal': True},
    ' alibi , train_length=128 ,runlocal': {'encoding': 'alibi', 'train_length': 128, 'runlocal': True},
    'rope(base=500, fraction=0.5),rate=1': {'encoding': 'rope(base=500, fraction=0.5)', 'rate': 1.0},
    'encoding=yarn(factor=8),train_length=16': {'encoding': 'yarn(factor=8)', 'train_length': 16},
    'train_length=16,yarn(factor=8, ramp="index")': {'encoding': 'yarn(factor=8, ramp="index")', 'train_length': 16},
    "rope(layout='half', sections=[1,2]),,": {'encoding': "rope(layout='half', sections=[1,2])"},
  }.items():
    assert values(text) == default | changed, text
  assert type(values('rate=1')['rate']) is float


@pytest.mark.parametrize(
  ('text', 'match'),
  [
    ('trin_length=4', r"no 'trin_length' \(did you mean 'train_length'\?\) \(this file takes encoding, train_length, runlocal\)"),
    ('train_length=1e3', 'wants int, as in train_length=64'),
    ('train_length=', 'wants int'),
    ('runlocal=maybe', 'wants bool'),
    ('alibi,rope', 'encoding is given twice'),
    ('alibi,runlocl', 'encoding is given twice'),
    ('train_length=4,train_length=8', 'train_length is given twice'),
    ('encoding=alibi,rope', 'encoding is given twice'),
  ],
)
def test_an_argument_that_cannot_be_read_is_named(text, match):
  with pytest.raises(ConfigError, match=match):
    parse_arg(text, encoding='rope', train_length=64, runlocal=False)


def test_a_bare_word_has_the_type_of_the_first_default():
  assert parse_arg('3', seeds=1, tune=False).seeds == 3
  with pytest.raises(ConfigError, match="config argument 'seeds=tuned': wants int, as in seeds=1"):
    parse_arg('tuned', seeds=1, tune=False)


def test_json_is_strict_sorted_and_comes_back():
  resolved = resolve.resolve(runs.config(encoding='yarn(factor=2)'))
  text = config_lib.to_json(resolved)
  again = config_lib.from_json(text)
  assert config_lib.to_json(again) == text
  assert again.is_locked
  assert list(json.loads(text)) == sorted(json.loads(text))
  assert config_lib.to_json(resolve.resolve(again)) == text  # resolving what is resolved changes nothing
  assert 'NaN' not in text
  assert 'Infinity' not in text
  assert len(config_lib.config_hash(resolved)) == 12
  with pytest.raises(ValueError, match='JSON compliant'):
    config_lib.to_json({'x': float('nan')})


def test_one_config_has_one_hash():
  whole, fraction = runs.config(), runs.config()
  tree = whole.to_dict()
  tree['optim']['learning_rate'], tree['optim']['weight_decay'] = 1, 0  # as JSON and plain dictionaries have them
  fraction.update_from_flattened_dict({'optim.learning_rate': 1.0, 'optim.weight_decay': 0.0})
  a, b = resolve.resolve(ml_collections.ConfigDict(tree)), resolve.resolve(fraction)
  assert config_lib.config_hash(a) == config_lib.config_hash(b)
  assert config_lib.config_hash(a) != config_lib.config_hash(resolve.resolve(runs.config(seed=1)))


def test_a_resolved_config_is_locked_and_the_given_one_untouched():
  config = runs.config(encoding='rope')
  before = config.to_json()
  resolved = resolve.resolve(config)
  assert config.to_json() == before
  assert resolved.is_locked
  assert resolved.model.is_locked
  with pytest.raises(AttributeError, match='locked'):
    resolved.model.nosuch = 1
  assert parsed().is_locked


def test_references_of_a_config_file_follow_overrides():
  config = runs.config()
  config.model.mlp_dim = config.model.get_ref('embed_dim') * 3
  config.model.embed_dim = 64
  assert resolve.resolve(config).model.mlp_dim == 192


@pytest.mark.parametrize(
  ('field', 'value', 'match'),
  [
    ('optim.learning_rate', float('nan'), 'not a number that can be used'),
    ('optim.learning_rate', float('inf'), 'not a number that can be used'),
    ('optim.learning_rate', 0.0, 'must be above 0'),
    ('optim.learning_rate', -1.0, 'must be above 0'),
    ('optim.b2', 1.0, 'must be below 1'),
    ('optim.name', 'adamw2', r"did you mean 'adamw'"),
    ('optim.warmup_steps', 5, 'exceeds num_train_steps=4'),
    ('model.dropout', 1.0, 'must be below 1'),
    ('model.dropout', -0.1, 'must be at least 0'),
    ('model.num_layers', 0, 'must be at least 1'),
    ('model.num_heads', 3, '3 heads do not divide embed_dim=16'),
    ('model.num_kv_heads', 3, '3 does not divide num_heads=2'),
    ('model.head_dim', 7, 'cannot split a width of 7'),
    ('model.vocab_size', 100, "smaller than the tokenizer's 257"),
    ('model.norm', 'rmsnorm', "'rmsnorm' is unknown"),
    ('model.dtype', 'bfloat', r"did you mean 'bfloat16'"),
    ('data.source', 'txt', r"'txt' is unknown \(did you mean 'text'"),
    ('data.tokenizer', 'byte', r"did you mean 'bytes'"),
    ('data.unicode_errors', 'ignore', 'there are strict, replace'),
    ('seed', -1, 'must be at least 0'),
    ('seed', 10**12, 'at most 2147483647'),
    ('mesh.data', 0, 'must be at least -1 and not 0'),
    ('mesh.data', -2, 'must be at least -1'),
    ('accumulate', 3, '8 rows cannot be split into accumulate=3'),
    ('accumulate', 0, 'must be at least 1'),
    ('train_length', 0, 'must be at least 1'),
    ('keep_checkpoints', 0, 'must be at least 1'),
    ('eval_targets', 0, 'must be at least 1'),
    ('encoding', 'roep', r"'roep' is unknown \(did you mean 'rope'\?\)"),
    ('encoding', 'rope(bas=3)', r"rope has no field 'bas' \(did you mean 'base'\?\)"),
    ('encoding', 'rope(base=', 'cannot be read'),
    ('encoding', '', 'cannot be read'),
    ('encoding', 'rope,alibi', 'names 2 encodings where one is wanted'),
    ('encoding', 'rope(base="x")', 'wants float'),
    ('encoding', 'learned(max_length=8)', r'has 8 positions and cannot serve length 16'),
  ],
)
def test_a_value_that_cannot_work_is_named_with_its_field(field, value, match):
  config = runs.config(**{field.replace('.', '__'): value})
  with pytest.raises(ConfigError, match=match) as error:
    resolve.resolve(config)
  named = {'model.head_dim': 'encoding', 'accumulate': 'batch_size'}.get(field, field)
  assert str(error.value).startswith((f'{field}: ', f'{named}: '))
  assert '\n' not in str(error.value)


@pytest.mark.parametrize('encoding', ['layers(rope, nope)', 'stack(rope, nope)', 'drope(cope)'])
def test_layers_with_records_of_their_own_cannot_be_scanned(encoding):
  with pytest.raises(ConfigError, match=r'^model.scan_layers: .* has a record for each layer') as error:
    resolve.resolve(runs.config(encoding=encoding, model__num_layers=2, model__scan_layers=True))
  assert 'scan_layers=False' in str(error.value)


@pytest.mark.parametrize('field', [f for f, v in config_lib.flatten(config_lib.default()).items() if not isinstance(v, str)])
def test_every_number_is_checked(field):
  *path, name = field.split('.')
  for bad in ('abc', None, float('nan'), -3, True, 1e12, [1], 1.5):
    tree = runs.config().to_dict()
    inner = tree[path[0]] if path else tree
    if (isinstance(inner[name], bool) and bad is True) or (isinstance(inner[name], float) and bad == 1.5):
      continue
    inner[name] = bad
    with pytest.raises(ConfigError, match=rf'^{field}: '):
      resolve.check_fields(tree)


def test_a_config_from_before_a_field_was_there_is_read_and_goes_on_with_its_default(tmp_path):
  config = resolve.resolve(runs.config())
  old = config.to_dict()
  del old['model']['platform'], old['model']['scan_layers'], old['data']['task_sampling']
  (tmp_path / 'config.json').write_text(json.dumps(old))
  assert workdir.read_config(tmp_path) == config
  workdir.check_config(tmp_path, config)
  old['model']['num_layers'] += 1
  (tmp_path / 'config.json').write_text(json.dumps(old))
  with pytest.raises(ConfigDiffers, match=r'model\.num_layers'):
    workdir.check_config(tmp_path, config)


def test_unknown_and_missing_fields_are_named():
  config = runs.config()
  config.model.num_layer = 3
  with pytest.raises(ConfigError, match=r"model.num_layer: there is no such field \(did you mean 'model.num_layers'\?\)"):
    resolve.resolve(config)
  config = runs.config()
  del config.optim.b1
  with pytest.raises(ConfigError, match=r'optim.b1: missing \(start from pe_jax.config.default\(\)\)'):
    resolve.resolve(config)


def test_every_number_of_the_default_has_a_range_and_every_config_resolves():
  numbers = {k for k, v in config_lib.flatten(config_lib.default()).items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
  assert numbers == set(resolve.MINIMUM)
  assert set(resolve.CHOICES) <= set(config_lib.flatten(config_lib.default()))
  resolve.resolve(config_lib.default())


def test_a_difference_is_told_by_field_with_both_values():
  old, new = runs.config(seed=1), runs.config(seed=2, optim__b1=0.5)
  assert config_lib.diff(old, new) == ['- optim.b1: 0.9', '+ optim.b1: 0.5', '- seed: 1', '+ seed: 2']
  assert config_lib.diff({'a': 1}, {'b': None}) == ['- a: 1', '+ b: None']
  assert config_lib.diff(old, old) == []
