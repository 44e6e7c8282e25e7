"""Which changes of its configuration a run goes on with: refused, allowed, overridden. Nothing is trained but where the test says so."""

import json
import platform

import jax
import pytest
import tiny_runs as runs

from pe_jax import changes, environment, resolve, train, workdir
from pe_jax import config as config_lib
from pe_jax.errors import ConfigDiffers

CASES = [
  # (field, new value, whether the run goes on)
  ('model.num_layers', 2, False),
  ('model.embed_dim', 32, False),
  ('model.num_kv_heads', 1, False),
  ('model.mlp', 'relu', False),
  ('model.dtype', 'bfloat16', False),
  ('model.dropout', 0.1, False),
  ('encoding', 'alibi', False),
  ('train_length', 32, False),
  ('seed', 1, False),
  ('batch_size', 16, False),
  ('accumulate', 2, False),
  ('data.packing', 'pad', False),
  ('data.min_bytes', 5, False),
  ('data.path', '/elsewhere', False),
  ('optim.name', 'lion', False),
  ('optim.learning_rate', 5e-4, False),
  ('optim.warmup_steps', 1, False),
  ('optim.clip_norm', 0.0, False),
  ('num_train_steps', 8, False),  # the cosine would fall more slowly
  ('log_every_steps', 2, True),
  ('log_batches', True, True),
  ('eval_every_steps', 2, True),
  ('checkpoint_every_steps', 2, True),
  ('keep_checkpoints', 5, True),
  ('nonfinite', 'skip', True),
  ('mesh.fsdp', 2, True),
]


def stored(folder, **fields):
  """A workdir with the config of a run, and the run's config."""
  config = resolve.resolve(runs.config(encoding='rope', **fields))
  folder.mkdir(exist_ok=True)
  (folder / 'config.json').write_text(config_lib.to_json(config))
  return config


@pytest.mark.parametrize(('field', 'value', 'goes_on'), CASES, ids=[case[0] for case in CASES])
def test_a_changed_field_is_refused_with_a_diff_or_allowed(tmp_path, field, value, goes_on):
  old = config_lib.flatten(stored(tmp_path))
  new = resolve.resolve(runs.config(**({'encoding': 'rope'} | {field.replace('.', '__'): value})))
  before = runs.contents(tmp_path)
  if goes_on:
    assert workdir.check_config(tmp_path, new) == {field: (old[field], value)}
  else:
    with pytest.raises(ConfigDiffers, match='another configuration') as error:
      workdir.check_config(tmp_path, new)
    lines = [line.strip() for line in str(error.value).splitlines()[1:]]
    assert error.value.exit_code == 6
    assert {f'- {field}: {old[field]!r}', f'+ {field}: {value!r}'} <= set(lines)
    changed = {line.split(':')[0][2:] for line in lines}
    assert all(old[name] != config_lib.flatten(new)[name] for name in changed)  # nothing but what changed
    assert field in workdir.check_config(tmp_path, new, override=True)
  assert runs.contents(tmp_path) == before


def test_there_are_at_least_twenty_five_cases_and_every_allowed_field_exists():
  assert len(CASES) >= 25
  assert set(changes.ALLOWED) <= set(config_lib.flatten(config_lib.default()))


@pytest.mark.parametrize(
  ('fields', 'matter'),
  [
    ({}, True),
    ({'optim__final_fraction': 1.0}, False),
    ({'optim__final_fraction': 1.0, 'encoding': 'drope(rope)'}, True),
    ({'optim__final_fraction': 1.0, 'data__source': 'task', 'data__name': 'copy', 'data__task_curriculum': 0.5, 'train_length': 64}, True),
    ({'optim__final_fraction': 1.0, 'data__source': 'task', 'data__name': 'copy', 'train_length': 64}, False),
  ],
)
def test_more_steps_are_allowed_where_nothing_depends_on_their_number(fields, matter):
  assert changes.steps_matter(resolve.resolve(runs.config(**fields))) is matter


def test_a_run_goes_on_past_its_end_with_the_bits_of_one_that_was_that_long_from_the_start(tmp_path, capsys):
  constant = {'encoding': 'nope', 'optim__final_fraction': 1.0}
  with runs.quick_compiles():
    train.run(runs.config(**constant), tmp_path / 'cut')
    train.run(runs.config(**constant, num_train_steps=6, log_every_steps=2), tmp_path / 'cut')
    assert 'num_train_steps: 4 -> 6' in capsys.readouterr().err
    train.run(runs.config(**constant, num_train_steps=6), tmp_path / 'whole')
    with pytest.raises(ConfigDiffers, match=r'num_train_steps: 5'):
      train.run(runs.config(**constant, num_train_steps=5), tmp_path / 'cut')
  ended = [json.loads((tmp_path / name / 'DONE').read_text()) for name in ('cut', 'whole')]
  assert ended[0] == ended[1]
  assert ended[0]['step'] == 6
  history = [json.loads(line) for line in (tmp_path / 'cut' / 'config_history.jsonl').read_text().splitlines()]
  assert history == [{'step': 4, 'overridden': False, 'changed': {'num_train_steps': [4, 6], 'log_every_steps': [1, 2]}}]
  assert json.loads((tmp_path / 'cut' / 'config.json').read_text())['num_train_steps'] == 6


def test_an_override_goes_on_and_leaves_its_trace_and_another_model_is_still_refused(tmp_path):
  with runs.quick_compiles():
    train.run(runs.config(encoding='nope', checkpoint_every_steps=2), tmp_path)
    changed = runs.config(encoding='nope', checkpoint_every_steps=2, optim__learning_rate=5e-4, num_train_steps=6)
    train.run(changed, tmp_path, override=True)
    assert (tmp_path / 'config_history.jsonl').exists()
    row = json.loads((tmp_path / 'config_history.jsonl').read_text())
    assert (row['step'], row['overridden'], row['changed']['optim.learning_rate']) == (4, True, [1e-3, 5e-4])
    assert json.loads((tmp_path / 'DONE').read_text())['step'] == 6
    before = runs.contents(tmp_path)
    wider = runs.config(encoding='nope', checkpoint_every_steps=2, model__embed_dim=32, num_train_steps=8)
    with pytest.raises(ConfigDiffers, match='holds other arrays than this run'):
      train.run(wider, tmp_path, override=True)
    after = runs.contents(tmp_path)
    assert {name for name in before | after if before.get(name) != after.get(name)} <= {'LOCK', 'OWNER'}
  assert sorted(p.name for p in (tmp_path / 'checkpoints').iterdir()) == ['4', '6']  # nothing was taken for damaged


def test_a_run_that_goes_on_in_another_environment_is_told_what_that_costs(tmp_path, capsys):
  workdir.write_environment(tmp_path, {'cores': 2, 'packages': {'jax': '1'}})
  assert capsys.readouterr().err == ''
  workdir.write_environment(tmp_path, {'cores': 8, 'packages': {'jax': '1'}})
  said = capsys.readouterr().err
  assert 'goes on in another environment, so equal to rounding and not bit for bit' in said
  assert [line.strip() for line in said.splitlines()[1:]] == ['- cores: 2', '+ cores: 8']


def test_the_environment_names_what_the_bits_of_a_run_depend_on():
  now = train.environment(resolve.resolve(runs.config(encoding='nope')))
  of_code = {'packages', 'sources_sha256', 'python', 'compiler_options', 'attention'}
  of_machine = {'machine', 'cpu', 'cores', 'backend', 'device_kind', 'device_count', 'process_count'}
  assert set(now) == of_code | of_machine | {'xla_flags', 'libtpu_init_args', 'matmul_precision', 'x64'}
  assert now['cpu']
  assert (now['libtpu_init_args'], now['matmul_precision'], now['x64']) == ('', '', False)
  json.dumps(now, allow_nan=False)


def test_the_environment_follows_what_is_set(monkeypatch):
  monkeypatch.setenv('LIBTPU_INIT_ARGS', '--xla_tpu_some_flag=1')
  with jax.default_matmul_precision('highest'), jax.enable_x64(True):
    now = environment.of_process('dense', options={})
  assert (now['libtpu_init_args'], now['matmul_precision'], now['x64']) == ('--xla_tpu_some_flag=1', 'highest', True)


def test_every_edit_of_a_source_is_another_digest(tmp_path):
  (tmp_path / 'inner').mkdir()
  (tmp_path / 'a.py').write_text('x = 1')
  (tmp_path / 'inner' / 'b.py').write_text('')
  seen = [environment.sources(tmp_path)]
  for path, text in (('a.py', 'x = 2'), ('inner/b.py', 'y = 1'), ('inner/c.py', '')):
    (tmp_path / path).write_text(text)
    seen.append(environment.sources(tmp_path))
  (tmp_path / 'a.py').rename(tmp_path / 'd.py')
  seen.append(environment.sources(tmp_path))
  (tmp_path / 'note.txt').write_text('no source')
  assert environment.sources(tmp_path) == seen[-1]
  assert len(set(seen)) == len(seen)
  assert environment.sources() == environment.sources(runs.ROOT / 'pe_jax')


def test_the_name_of_the_processor_is_what_the_system_says(tmp_path):
  (tmp_path / 'cpuinfo').write_text('processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nprocessor\t: 1\nmodel name\t: Some CPU @ 2 GHz\n')
  assert environment.cpu(tmp_path / 'cpuinfo') == 'Some CPU @ 2 GHz'
  assert environment.cpu(tmp_path / 'none') == platform.processor()


@pytest.mark.parametrize('older', [False, True], ids=['edited sources', 'env.json of an older release'])
def test_a_run_goes_on_under_edited_sources_and_is_told(tmp_path, capsys, older):
  constant = {'encoding': 'nope', 'optim__final_fraction': 1.0}
  with runs.quick_compiles():
    train.run(runs.config(**constant), tmp_path)
    path = tmp_path / 'env.json'
    recorded = json.loads(path.read_text())
    now = recorded['sources_sha256']
    new = ('sources_sha256', 'cpu', 'libtpu_init_args', 'matmul_precision', 'x64')
    was = {k: v for k, v in recorded.items() if k not in new} if older else recorded | {'sources_sha256': 'of before'}
    path.write_text(json.dumps(was))
    capsys.readouterr()
    train.run(runs.config(**constant, num_train_steps=5), tmp_path)
  said = capsys.readouterr().err
  assert 'equal to rounding and not bit for bit, as far as the edited sources compute the same' in said
  assert f'+ sources_sha256: {now!r}' in said
  assert ("- sources_sha256: 'of before'" in said, '+ cpu: ' in said) == (not older, older)
  assert json.loads(path.read_text()) == recorded
  assert json.loads((tmp_path / 'DONE').read_text())['step'] == 5
