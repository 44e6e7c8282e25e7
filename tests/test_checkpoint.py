"""Checkpoints that are torn, corrupt, foreign or not finite: none is taken for what was saved, none is deleted, and the run goes on."""

import contextlib
import errno
import inspect
import json
import re
import shutil
import time
import types

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
import saved_runs as saves
import tiny_runs as runs

import pe_jax
from pe_jax import fingerprint, saved, train
from pe_jax.checkpoint import Checkpoints
from pe_jax.errors import ConfigDiffers, DataError, NotFinite, UserError, WorkdirInUse, WriteError

pytestmark = [
  pytest.mark.xdist_group('checkpoint'),
  # orbax drops what it was reading when it meets damage, and some of that ends when nobody waits for it any more.
  pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning'),
]


@pytest.fixture(autouse=True, scope='module')
def quick():
  with runs.quick_compiles():
    yield


def outcome(folder, capsys):
  """'harmless', 'refused' (the one before is taken, with one warning and the damaged one kept aside), or what is wrong."""
  step, digest, progress, warnings = saves.resumed(folder, capsys)
  aside = [p.name for p in (folder / 'checkpoints_bad').iterdir()] if (folder / 'checkpoints_bad').exists() else []
  if digest != saves.digests()[step] or progress != saves.progress(step):
    return 'SILENT'
  if (step, warnings, aside) == (4, [], []):
    return 'harmless'
  if step == 2 and aside == ['4'] and len(warnings) == 1 and re.search(r'checkpoints/4: .+; moved to .*checkpoints_bad/4$', warnings[0]):
    return 'refused'
  return f'step {step}, {len(warnings)} warnings, {aside} aside'


def test_no_damage_to_any_file_of_a_checkpoint_goes_unseen(tmp_path, capsys):
  rng, table = np.random.default_rng(0), {}
  for name in saves.files(saves.written(), 4):
    for damage in saves.DAMAGES:
      folder = saves.copied(tmp_path / 'damaged')
      damage(folder / 'checkpoints' / '4' / name, rng)
      kind = re.sub(r'/d/[0-9a-f]{32}$', '/d/*', name)
      table.setdefault(kind, {}).setdefault(damage.__name__, []).append(outcome(folder, capsys))
      shutil.rmtree(folder)
  print(corruption_table(table))
  found = [o for row in table.values() for outcomes in row.values() for o in outcomes]
  assert set(found) == {'harmless', 'refused'}, table
  assert found.count('refused') > 30


def corruption_table(table):
  """File x damage: refused and harmless counts."""
  lines = [f'{"file of the newest checkpoint":42}' + ''.join(f'{d.__name__:>10}' for d in saves.DAMAGES)]
  for kind, row in table.items():
    cells = [' '.join(f'{got.count(o)}{o[0]}' for o in sorted(set(got))) for got in row.values()]
    lines.append(f'{kind:42}' + ''.join(f'{cell:>10}' for cell in cells))
  found = [o for row in table.values() for outcomes in row.values() for o in outcomes]
  counts = ', '.join(f'{found.count(o)} {o}' for o in ('harmless', 'refused', 'SILENT'))
  return '\n'.join([*lines, f'r refused, h harmless; {len(found)} cases: {counts}'])


def test_forty_random_bit_flips_in_the_data_of_arrays_are_all_found(tmp_path):
  rng, found = np.random.default_rng(1), 0
  checkpoints = Checkpoints(saves.copied(tmp_path), read_only=True)
  path = saves.biggest(tmp_path, 4)
  whole = path.read_bytes()
  for _ in range(40):
    saves.flip(path, rng)
    try:
      state, _ = saved.read(checkpoints._folder / '4', saves.state(0))
    except saved.Damaged:
      found += 1
    else:  # a byte that holds nothing
      assert fingerprint.digest(state) == saves.digests()[4]
    path.write_bytes(whole)
  print(f'{found} of 40 flipped bits in {len(whole)} bytes found, the others changed nothing')
  assert found > 20


class Never:
  """What is awaited and never comes."""

  def __await__(self):
    yield


async def reading():
  """As orbax's reader of an array: whatever ends it becomes an error."""
  try:
    await Never()
  except BaseException as error:
    raise RuntimeError('while reading') from error


reading.__code__ = reading.__code__.replace(co_filename='/somewhere/orbax/serialization.py', co_name='_read_array')


def test_nothing_of_a_damaged_read_is_left_to_complain_later():
  """It would wait for a loop that is closed until Python's collector ends it, in the middle of something else and with pages on stderr."""
  left = reading()

  def failing():
    left.send(None)
    raise ValueError('another array')

  with pytest.raises(saved.Damaged, match='state: another array'):
    saved._tried(failing)
  assert inspect.getcoroutinestate(left) == inspect.CORO_CLOSED


def resaved(folder, step, change):
  """A checkpoint written by orbax alone, with a record that says it is right."""
  tree = change(saves.state(step))
  record = saved.sealed(saves.progress(step), step, fingerprint.of(tree), None)
  items = {'state': ocp.args.StandardSave(tree), 'progress': ocp.args.JsonSave(record)}
  with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as writer:
    writer.save(folder / 'checkpoints' / str(step), args=ocp.args.Composite(**items))


def with_nan(tree):
  return tree | {'params': jax.tree.map(lambda x: x.at[0].set(jnp.nan), tree['params'])}


def edited(path):
  """Another number, which is as good JSON as before."""
  text = path.read_text()
  assert '"targets": 40' in text
  path.write_text(text.replace('"targets": 40', '"targets": 41'))


FOREIGN = {
  # what is put beside checkpoints 2 and 4: (the step that training goes on from, what the warnings say)
  'empty': (lambda c: (c / '7').mkdir(), 4, [r'/7: not a whole checkpoint']),
  'file': (lambda c: (c / '9').write_text('x'), 4, [r'/9: not a whole checkpoint']),
  'link': (lambda c: (c / '9').symlink_to(c / '4'), 4, [r'/9: progress: of step 4, in a folder for step 9']),
  'future': (lambda c: shutil.copytree(c / '4', c / '99'), 4, [r'/99: progress: of step 4, in a folder for step 99']),
  'no item': (lambda c: shutil.rmtree(c / '4' / 'state'), 2, [r'/4: not a whole checkpoint']),
  'no progress': (lambda c: shutil.rmtree(c / '4' / 'progress'), 2, [r'/4: not a whole checkpoint']),
  'not finite': (lambda c: resaved(c.parent, 6, with_nan), 4, [r'/6: state: params.* entries that are not finite']),
  'edited': (lambda c: edited(c / '4' / 'progress' / 'metadata'), 2, [r'/4: progress: differs from the hash that was saved with it']),
  'others': (lambda c: [(c / 'notes.txt').write_text('x'), (c / 'old').mkdir(), (c / '.hidden').touch()], 4, []),
  'left over': (lambda c: shutil.copytree(c / '4', c / '8.orbax-checkpoint-tmp-3'), 4, []),
  'half deleted': (lambda c: [p.unlink() for p in (c / '2' / 'state').rglob('*') if p.is_file()], 4, [r'/2: ']),
}


@pytest.mark.parametrize('what', FOREIGN)
def test_what_is_no_checkpoint_of_the_run_is_set_aside_by_name(tmp_path, capsys, what):
  plant, newest, says = FOREIGN[what]
  plant(saves.copied(tmp_path) / 'checkpoints')
  step, digest, progress, warnings = saves.resumed(tmp_path, capsys)
  assert (step, digest, progress) == (newest, saves.digests()[newest], saves.progress(newest))
  assert len(warnings) == len(says), warnings
  assert all(re.search(said, warning) for said, warning in zip(says, warnings)), warnings
  assert len(list((tmp_path / 'checkpoints_bad').glob('*'))) == len(says)
  assert not list((tmp_path / 'checkpoints').glob('*tmp*'))


def test_two_bad_ones_are_passed_over_and_the_second_of_a_name_gets_a_number(tmp_path, capsys):
  checkpoints = saves.copied(tmp_path) / 'checkpoints'
  shutil.copytree(checkpoints / '4', tmp_path / 'checkpoints_bad' / '4')
  saves.half(checkpoints / '4' / 'progress' / 'metadata', None)
  (checkpoints / '5').mkdir()
  step, digest, _, warnings = saves.resumed(tmp_path, capsys)
  assert (step, digest, len(warnings)) == (2, saves.digests()[2], 2)
  assert sorted(p.name for p in (tmp_path / 'checkpoints_bad').iterdir()) == ['4', '4.1', '5']


def test_where_all_are_bad_the_run_stops_and_never_begins_anew(tmp_path, capsys):
  saves.copied(tmp_path)
  for step in saves.STEPS:
    shutil.rmtree(tmp_path / 'checkpoints' / str(step) / 'state' / 'd')
  for _ in range(2):  # the second start finds none at all
    with (
      contextlib.closing(Checkpoints(tmp_path)) as checkpoints,
      pytest.raises(WriteError, match=r'none can be read.* holds 2, 4 ') as error,
    ):
      checkpoints.restore_newest(saves.state(0))
    assert error.value.exit_code == 4
  assert capsys.readouterr().err.count('WARNING') == 2
  with contextlib.closing(Checkpoints(tmp_path / 'new')) as checkpoints:
    assert checkpoints.restore_newest(saves.state(0)) is None


def test_a_forged_shape_is_refused_before_anything_is_allocated(tmp_path, capsys):
  import tensorstore as ts

  store = saves.copied(tmp_path) / 'checkpoints' / '4' / 'state'
  kv = ts.KvStore.open({'driver': 'ocdbt', 'base': f'file://{store}/'}).result()
  name = next(key for key in kv.list().result() if b'embed' in key and key.endswith(b'.zarray'))
  forged = json.loads(kv.read(name).result().value) | {'shape': [2**40, 2**20], 'chunks': [2**40, 2**20]}
  kv.write(name, json.dumps(forged).encode()).result()
  assert outcome(tmp_path, capsys) == 'refused'
  checkpoints = saves.copied(tmp_path / 'b') / 'checkpoints'
  shutil.rmtree(checkpoints / '4')
  shutil.copytree(tmp_path / 'checkpoints_bad' / '4', checkpoints / '4')
  with pytest.raises(DataError, match=r'checkpoints/4: state: .* \(other steps there: 2\)'):
    Checkpoints(tmp_path / 'b', read_only=True).restore_params(4)


@pytest.mark.parametrize('change', ['wider', 'bfloat16', 'one more', 'one less'])
def test_a_checkpoint_of_another_model_is_told_from_a_damaged_one(tmp_path, capsys, change):
  like = saves.state(0, width=65 if change == 'wider' else 64)
  if change == 'bfloat16':
    like = like | {'params': jax.tree.map(lambda x: x.astype(jnp.bfloat16), like['params'])}
  if change == 'one more':
    like['params']['encoding']['more'] = jnp.ones(3)
  if change == 'one less':
    del like['params']['encoding']['table']
  with contextlib.closing(Checkpoints(saves.copied(tmp_path))) as checkpoints:
    with pytest.raises(UserError) as error:
      checkpoints.restore_newest(like)
    assert (type(error.value), error.value.exit_code, checkpoints.steps()) == (ConfigDiffers, 6, [2, 4])
    assert re.search('holds other arrays than this run: .* is .*, and should be ', str(error.value))
  assert 'WARNING' not in capsys.readouterr().err


def test_checkpoints_from_before_there_were_fingerprints_load_with_a_note(tmp_path, capsys):
  path = saves.copied(tmp_path) / 'checkpoints' / '4' / 'progress' / 'metadata'
  path.write_text(json.dumps(saves.progress(4)))
  with contextlib.closing(Checkpoints(tmp_path)) as checkpoints:
    step, tree, record = checkpoints.restore_newest(saves.state(0))
    assert (step, fingerprint.digest(tree), record['targets'], checkpoints.best()) == (4, saves.digests()[4], 40, 4)
  assert 'written before checkpoints had fingerprints' in capsys.readouterr().err


def test_nothing_that_is_not_finite_is_ever_written(tmp_path):
  with contextlib.closing(Checkpoints(tmp_path)) as checkpoints:
    with pytest.raises(NotFinite, match=r'params\.decoder\.embed is not finite, so nothing was saved'):
      checkpoints.save(2, with_nan(saves.state(2)), saves.progress(2))
    assert checkpoints.steps() == []


def steps_go_on(checkpoints):
  for _ in range(200):
    checkpoints.check_for_errors()
    time.sleep(0.02)


def test_an_error_of_an_asynchronous_save_is_raised_at_the_next_step_and_the_older_one_stays(tmp_path, monkeypatch):
  with contextlib.closing(Checkpoints(tmp_path)) as checkpoints:
    checkpoints.save(2, saves.state(2), saves.progress(2))
    checkpoints.wait()

    def full(*_):
      raise OSError(errno.ENOSPC, 'No space left on device')

    monkeypatch.setattr(ocp.StandardCheckpointHandler, 'finalize', full)
    checkpoints.save(4, saves.state(4), saves.progress(4))
    with pytest.raises(WriteError, match=r'could not be written: .*No space left.*; the newest on disk is of step 2 ') as error:
      steps_go_on(checkpoints)
    assert (error.value.exit_code, str(tmp_path) in str(error.value)) == (4, True)
    assert [p.name for p in (tmp_path / 'checkpoints').iterdir() if p.is_dir()] == ['2']  # no leftover eats the space
    assert (checkpoints.steps(), checkpoints.latest()) == ([2], 2)
  monkeypatch.undo()
  with contextlib.closing(Checkpoints(tmp_path)) as checkpoints:
    assert fingerprint.digest(checkpoints.restore_newest(saves.state(0))[1]) == saves.digests()[2]


def test_a_disk_without_room_for_two_is_refused_before_a_byte_is_written(tmp_path, monkeypatch):
  with contextlib.closing(Checkpoints(saves.copied(tmp_path))) as checkpoints:
    monkeypatch.setattr(shutil, 'disk_usage', lambda path: types.SimpleNamespace(free=1000))
    with pytest.raises(WriteError, match=r'two of them take 0\.1 MB and 0\.0 MB are free; the newest on disk is of step 4 '):
      checkpoints.save(6, saves.state(6), saves.progress(6))
    monkeypatch.undo()
    assert checkpoints.steps() == [2, 4]


def test_the_last_save_is_awaited(tmp_path):
  checkpoints = Checkpoints(tmp_path)
  checkpoints.save(2, saves.state(2), saves.progress(2))
  checkpoints.close()
  assert Checkpoints(tmp_path, read_only=True).steps() == [2]
  checkpoints.close()  # twice is once


def test_a_folder_taken_over_by_another_process_is_not_written_to(tmp_path):
  def gone():
    raise WorkdirInUse('taken over')

  with contextlib.closing(Checkpoints(tmp_path, still_mine=gone)) as checkpoints:
    with pytest.raises(WorkdirInUse):
      checkpoints.save(2, saves.state(2), saves.progress(2))
    assert checkpoints.steps() == []


def test_what_stands_where_a_checkpoint_goes_is_set_aside_and_not_deleted(tmp_path):
  with contextlib.closing(Checkpoints(tmp_path)) as checkpoints:
    (tmp_path / 'checkpoints' / '2').mkdir()
    (tmp_path / 'checkpoints' / '2' / 'precious').write_text('x')
    checkpoints.save(2, saves.state(2), saves.progress(2))
  assert [p.read_text() for p in tmp_path.rglob('precious')] == ['x']
  assert Checkpoints(tmp_path, read_only=True).steps() == [2]


def test_a_run_whose_newest_checkpoint_is_corrupt_ends_with_the_same_bits(tmp_path, capsys):
  config = runs.config(encoding='learned', num_train_steps=6, checkpoint_every_steps=2, optim__learning_rate=1e-2)
  train.run(config, tmp_path / 'whole')
  shutil.copytree(tmp_path / 'whole', tmp_path / 'cut')
  (tmp_path / 'cut' / 'DONE').unlink()
  rng = np.random.default_rng(0)
  for _ in range(16):  # some bytes hold nothing
    saves.flip(saves.biggest(tmp_path / 'cut', 6), rng)
  with pytest.raises(DataError, match=r'checkpoints/6: state: .*other steps there: 4'):
    pe_jax.load(tmp_path / 'cut')
  assert pe_jax.load(tmp_path / 'cut', 4).step == 4
  train.run(config, tmp_path / 'cut')
  said = capsys.readouterr().err
  assert (said.count('WARNING'), 'going on from step 4' in said) == (1, True)
  for name in ('DONE', 'metrics.jsonl'):
    assert (tmp_path / 'cut' / name).read_bytes() == (tmp_path / 'whole' / name).read_bytes()


@pytest.mark.parametrize('said', ['RESOURCE_EXHAUSTED: Out of memory', 'PERMISSION_DENIED: Error opening file'])
def test_a_process_that_cannot_read_a_good_checkpoint_moves_none(tmp_path, monkeypatch, said):
  def refuses(*_, **__):
    raise ValueError(said)

  with contextlib.closing(Checkpoints(saves.copied(tmp_path))) as checkpoints:
    monkeypatch.setattr(ocp.StandardCheckpointHandler, 'restore', refuses)
    with pytest.raises(WriteError, match=f'cannot be read: state: {said}'):
      checkpoints.restore_newest(saves.state(0))
    assert checkpoints.steps() == [2, 4]
