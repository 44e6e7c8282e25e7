"""Field cases: configs, checkpoints, devices, and what of a run is there when it is read."""

import functools
import json
import pathlib
import sys
import tempfile
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import tiny_runs as runs
from absl import flags
from attending import alone
from ml_collections import config_flags

import pe_jax
from pe_jax import config as config_lib
from pe_jax import encodings, fingerprint, model, optim, parallel, resolve, step, train
from pe_jax.checkpoint import Checkpoints
from pe_jax.data import packing
from pe_jax.errors import ConfigDiffers, ConfigError, DataError, UserError
from pe_jax.evaluate import result

pytestmark = [
  pytest.mark.xdist_group('field_training'),  # the run is made once in a process
  pytest.mark.filterwarnings('ignore:the load_module:DeprecationWarning'),  # ml_collections reads config files so
]
SETTINGS = {'encoding': 'rope(base=500000)', 'num_train_steps': 25, 'checkpoint_every_steps': 10, 'keep_checkpoints': 5}


@pytest.fixture(autouse=True, scope='module')
def quick():
  with runs.quick_compiles():
    yield


@functools.cache
def folder():
  """The workdir of 25 steps under rope(base=500000), on eight virtual devices."""
  path = pathlib.Path(tempfile.mkdtemp(dir=runs.home()))
  train.run(runs.config(**SETTINGS), path)
  return path


def test_p03_a_checkpoint_is_read_under_the_encoding_it_was_trained_with():
  """The base comes from the checkpoint's own config; another is an explicit choice that stands in the row beside the trained one.

  More: tests/test_evaluation.py::test_a_map_reads_the_base_that_was_trained
  """
  run = pe_jax.load(folder())
  assert run.encoding().spec == 'rope(base=500000)'
  assert 'base=500000' in run.encoding('yarn(factor=2)').spec
  (row,) = run.evaluate([16], ['rope(base=10000)'], max_targets=300)
  assert (row['encoding'], row['trained_encoding']) == ('rope', 'rope(base=500000)')


def test_p03_a_stored_config_without_its_encoding_is_no_config(tmp_path):
  """What was trained is never made up."""
  stored = json.loads((folder() / 'config.json').read_text())
  del stored['encoding']
  (tmp_path / 'config.json').write_text(json.dumps(stored))
  with pytest.raises(DataError, match=r'config.json: encoding: missing'):
    pe_jax.load(tmp_path)


def test_p27_a_checkpoint_of_another_shape_is_refused(tmp_path):
  """A stored table of (4, 2) is not restored as one of (6, 2); the parameters alone can be read, as they were saved.

  More: tests/test_train.py::test_a_checkpoint_of_another_shape_is_refused, tests/test_train.py::test_load_gives_the_parameters_alone
  """
  table = np.arange(8, dtype=np.float32).reshape(4, 2)
  checkpoints = Checkpoints(tmp_path)
  checkpoints.save(1, {'params': {'table': jnp.asarray(table)}}, {'position': {}, 'targets': 0})
  checkpoints.close()
  checkpoints = Checkpoints(tmp_path)
  with pytest.raises(UserError):
    checkpoints.restore(1, {'params': {'table': jnp.zeros((6, 2))}})
  np.testing.assert_array_equal(checkpoints.restore_params(1)['table'], table)
  checkpoints.close()


def test_p28_the_last_step_is_saved_and_a_run_of_eight_devices_is_read_on_one():
  """25 steps, a checkpoint every 10: 10, 20 and 25 are there, and the parameters are bit for bit those that training ended with.

  More: tests/test_train.py::test_a_state_saved_on_four_devices_is_the_same_on_one_and_on_eight
  """
  checkpoints = Checkpoints(folder(), read_only=True)
  assert checkpoints.steps() == [10, 20, 25]
  checkpoints.close()
  run = pe_jax.load(folder())
  assert run.step == 25
  assert fingerprint.digest(run.params) == json.loads((folder() / 'DONE').read_text())['params_sha256']
  assert {len(leaf.devices()) for leaf in jax.tree.leaves(run.params)} == {1}


@pytest.mark.parametrize('override', ['--config.seed=2.0', '--config.seed=1e3', '--config.seed=True', '--config.tensorboard=maybe'])
def test_p29_an_override_of_another_type_stops(override):
  """An override takes the field's declared type or the program stops; so does a misspelt field, and what is derived follows an override.

  More: tests/test_config.py::test_overrides_take_effect_with_the_declared_type_and_reach_the_json
  """
  with pytest.raises(flags.IllegalFlagValueError):
    parsed(override)


def test_p29_values_keep_their_types_and_derived_fields_follow():
  """No field is None or a tuple, whose types nobody could check; True is no number; JSON gives every type back."""
  known = config_lib.flatten(config_lib.default())
  assert {type(value) for value in known.values()} == {int, float, str, bool}
  for value in (True, float('nan'), None, '3', [3]):
    tree = runs.config().to_dict() | {'seed': value}
    with pytest.raises(ConfigError, match=r'^seed: '):
      resolve.check_fields(tree)
  with pytest.raises((AttributeError, KeyError, flags.UnrecognizedFlagError)):
    parsed('--config.optim.learningrate=1')
  resolved = resolve.resolve(parsed('--config.model.embed_dim=32'))
  assert (resolved.model.head_dim, resolved.model.mlp_dim) == (16, 128)
  again = config_lib.flatten(config_lib.from_json(config_lib.to_json(resolved)))
  assert {k: type(v) for k, v in again.items()} == {k: type(v) for k, v in known.items()}


def parsed(*args):
  """What train.py's --config gives for these arguments."""
  values = flags.FlagValues()
  config_flags.DEFINE_config_file('config', None, '', flag_values=values)
  argv = ['train.py', f'--config={runs.home() / "tiny.py"}', *args]
  with mock.patch.object(sys, 'argv', argv):  # where config_flags looks for overrides
    values(argv)
  return values.config


def test_p30_a_workdir_holds_one_configuration():
  """The same workdir with another learning rate or seed is refused with the difference, and nothing in it is touched.

  More: tests/test_train.py::test_another_config_is_refused_with_a_diff_and_nothing_is_touched
  """
  before = runs.contents(folder())
  for field, value in (('optim__learning_rate', 3e-4), ('seed', 1), ('encoding', 'alibi')):
    with pytest.raises(ConfigDiffers, match=field.replace('__', r'\.')):
      train.run(runs.config(**{**SETTINGS, field: value}), folder())
  assert runs.contents(folder()) == before


def test_p44_fixed_encodings_own_no_arrays_and_a_reading_shows_in_the_phases():
  """NoPE, RoPE, ALiBi and sinusoidal models have equally many parameters; restored with s = 4, position 4 has the phases of position 1.

  More: tests/test_train.py::test_encodings_without_parameters_own_no_arrays
  """
  sizes = set()
  for spec in ('nope', 'rope', 'alibi', 'sinusoidal'):
    config, enc, _ = tiny.made(spec)
    params = jax.eval_shape(lambda key, c=config, e=enc: model.init(c, e, key), jax.random.PRNGKey(0))
    assert params['encoding'] == {}
    sizes.add(sum(leaf.size for leaf in jax.tree.leaves(params)))
  assert len(sizes) == 1
  run = pe_jax.load(folder())
  (plain, _), (mapped, _) = (run.encoding(spec).tables({}, alone(5))[0] for spec in ('rope', 'linear(factor=4)'))
  np.testing.assert_allclose(mapped[0, 4], plain[0, 1], atol=1e-6)


def test_p45_dropout_and_initial_parameters_do_not_depend_on_the_devices():
  """Three steps with dropout .1 on one device and on four: the same initial parameters, losses equal to 1e-5.

  More: tests/test_parallel.py::test_twenty_steps_have_the_same_losses_however_they_are_spread
  """
  rng, losses, started = np.random.default_rng(0), [], []
  rows = packing.windows([rng.integers(0, 256, 16).astype(np.int32) for _ in range(8)], 16, 256)
  batch = {k: v for k, v in rows.as_dict().items() if k != 'source'} | {'row': np.arange(8, dtype=np.int32)}
  for devices in (1, 4):
    config = resolve.resolve(runs.config(encoding='nope', model__dropout=0.1, mesh__data=devices))
    enc, tx = encodings.make(config.encoding, model.dims(config)), optim.make(config)
    spread = parallel.make(config, step.make(config, enc, tx), step.make_eval(config, enc), jax.devices()[:devices])
    state = step.init(config, enc, tx)
    started.append(fingerprint.digest(state.params))
    state, found = spread.put_state(state), []
    for _ in range(3):
      state, numbers = spread.step(state, spread.put_batch(batch))
      found.append(float(numbers['loss']))
    losses.append(found)
  assert started[0] == started[1]
  np.testing.assert_allclose(*losses, rtol=1e-5)


def test_p47_an_accelerator_that_is_not_there_is_one_line_and_every_result_says_what_it_ran_on(tmp_path):
  """JAX_PLATFORMS=tpu without one stops with what was wanted, what was found and the versions; rows and env.json name the devices."""
  command = ['train.py', f'--config={runs.home()}/tiny.py', f'--workdir={tmp_path / "run"}']
  code, out, err = runs.finish(runs.start(*command, JAX_PLATFORMS='tpu'))
  assert (code, out, len(err.splitlines())) == (2, '', 1), err
  assert err.startswith("ERROR: JAX_PLATFORMS: 'tpu' is not to be had here")
  assert all(f'{name} ' in err for name in ('jax', 'jaxlib', 'libtpu'))
  assert not (tmp_path / 'run').exists()
  assert {'backend', 'device_kind', 'device_count'} <= set(json.loads((folder() / 'env.json').read_text()))
  assert {'backend', 'device_kind', 'device_count'} <= set(result.conditions(tiny.subject('nope')))
