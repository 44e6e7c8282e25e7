"""A sweep before its runs: the plan, its mistakes, later stages, and the commands that come of it."""

import math
import pathlib
import py_compile
import re
import shlex
import subprocess

import pytest
import tiny_runs as runs
from absl import flags
from ml_collections import config_flags
from sweeps import BASE, STAGES, TWO, finish, sweep_of

from pe_jax import config as config_lib
from pe_jax import resolve, workdir
from pe_jax.errors import ConfigDiffers, ConfigError
from pe_jax.sweep import commands, cost, evaluations, local, plan, published, slurm, state

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SWEEPS = sorted((ROOT / 'configs' / 'sweeps').glob('*.py'))


def test_a_run_is_the_base_with_its_fields_changed(tmp_path):
  evaluation = "def evaluation(config, name):\n  return {'lengths': [16, 32], 'protocols': [name, 'context'][1:], 'encodings': None}\n"
  planned = sweep_of(tmp_path, TWO + evaluation).plan({})
  assert [*planned] == ['a', 'b']
  run = planned['b']
  assert config_lib.diff(planned['a'].config, run.config) == ["- encoding: 'rope'", "+ encoding: 'alibi'", '- seed: 0', '+ seed: 3']
  assert run.resolved == resolve.resolve(run.config)
  assert run.folder == f'{tmp_path}/runs/b'
  assert run.evaluations == ({'lengths': [16, 32], 'protocols': ['context']},)
  assert commands.evaluate(run)[0][1][2:] == [f'--workdir={run.folder}', '--label=sweep-0', '--lengths=16,32', '--protocols=context']


@pytest.mark.parametrize(
  ('text', 'says'),
  [
    ("def sweep():\n  yield 'a', {}\n  yield 'a', {'seed': 1}", r"two runs named 'a' \(a name is a folder: put into it what differs\)"),
    ("def sweep():\n  yield '../a', {}", r"'../a' is no name"),
    ("def sweep():\n  yield '.hidden', {}", r"'.hidden' is no name"),
    ("def sweep():\n  yield 'a b', {}", r"'a b' is no name"),
    ("def sweep():\n  yield 'a' * 101, {}", r"' is no name"),
    ("def sweep():\n  yield 'a', {'optim.lr': 1}", r"run 'a': optim.lr: there is no such field \(did you mean"),
    ("def sweep():\n  yield 'a', {'model.num_heads': 3}", r"run 'a': model.num_heads: 3 heads do not divide"),
    ("def sweep():\n  yield 'a', {'batch_size': 'many'}", r"run 'a': batch_size: "),
    ("def sweep():\n  yield 'a', {'encoding': 'roep'}", r"run 'a': encoding: 'roep' is unknown \(did you mean 'rope'"),
    ("def sweep():\n  yield 'a'", r"sweep\(\) yields 'a' where \(name, \{field: value\}\) is wanted"),
    ("def sweep():\n  yield from ()", r"sweep\(\) yields no run"),
    ("def sweep():\n  yield 1 / 0", r"sweep\(\) raised ZeroDivisionError"),
    ("def sweep(seeds):\n  yield 'a', {}", r"sweep\(\) takes 'seeds', which there is not \(there are arg, config, done, folder\)"),
    ("def sweep(done):\n  yield f'a{len(done)}', {}", r'yields new runs after 20 stages'),
    ("x = 1", r'has no sweep\(\)'),
    ("def sweep():\n  yield 'a', {}, {'lenghts': [1]}", r"run 'a': evaluation: eval.py has no flag 'lenghts' \(did you mean 'lengths'"),
    ("def sweep():\n  yield 'a', {}, {'lengths': []}", r"evaluation: lengths: \[\] is no list of lengths"),
    ("def sweep():\n  yield 'a', {}, {'lengths': [8], 'protocols': 'contxt'}", r"protocols: 'contxt' is unknown \(did you mean 'context'"),
    ("def sweep():\n  yield 'a', {}, {'lengths': [8], 'encodings': 'yran'}", r"encoding: 'yran' is unknown"),
    ("def sweep():\n  yield 'a', {'encoding': 'learned'}, {'lengths': [16, 32]}", r"'learned' has 16 positions and cannot serve length 32"),
    ('def sweep():\n  raise ConfigError("scale: no such")', r'scale: no such'),
  ],
)  # fmt: skip
def test_a_mistake_is_named_before_anything_starts(tmp_path, text, says):
  def plan_all():
    sweep = sweep_of(tmp_path, text)
    sweep.plan({})
    sweep.imagined({})

  with pytest.raises(ConfigError, match=says):
    plan_all()
  assert not (tmp_path / 'runs').exists()


@pytest.mark.parametrize(
  ('text', 'says'),
  [
    ('def notes(name):\n  return []', r"notes\(\) takes 'name', which there is not \(there are arg, config, done, folder\)"),
    ('def notes(done):\n  return ["rates", 3]', r"notes\(\) gives \['rates', 3\] where a list of sentences is wanted"),
    ('def notes(done):\n  pass', r'notes\(\) gives None where a list of sentences is wanted'),
    ('def notes(done):\n  return {}[0]', r'notes\(\) raised KeyError: 0'),
  ],
)
def test_a_mistake_in_notes_is_named_before_anything_starts(tmp_path, text, says):
  sweep = sweep_of(tmp_path, f'{TWO}\n{text}\n')
  with pytest.raises(ConfigError, match=says):
    sweep.notes({})
  (tmp_path / 'runs').mkdir()
  code, _, err = runs.finish(runs.start('scripts/sweep.py', f'--config={tmp_path}/sweep.py', f'--workdir={tmp_path}/runs'))
  assert code == 2
  assert re.search(says, err)
  assert [*(tmp_path / 'runs').iterdir()] == []


def test_the_usual_sweep_names_rates_at_the_end_of_what_was_tried(tmp_path):
  sweep = plan.Sweep(f'{ROOT}/configs/sweeps/extrapolation.py:tune', tmp_path)
  trials = [*sweep.plan({})]
  arm = trials[0].rpartition('-lr')[0]
  rates = [float(name.rpartition('-lr')[2]) for name in trials if name.startswith(f'{arm}-lr')]
  done = {f'{arm}-lr{rate:g}': 1.0 + rate for rate in rates}
  assert sweep.notes(done) == [f'{arm}: its learning rate, {min(rates):g}, is the smallest that was tried; a better one may lie beyond']


@pytest.mark.parametrize('name', ['sweep.so', 'sweep.cpython-311-x86_64-linux-gnu.so', 'sweep.pyc', 'sweep.txt', 'sweep', 'sweep.json'])
def test_only_a_py_file_is_executed(name, tmp_path):
  """Python would load an extension or what was compiled as readily."""
  (tmp_path / 'sweep.py').write_text(f'open({str(tmp_path / "executed")!r}, "w").close()\n{BASE}{TWO}')
  plan.Sweep(str(tmp_path / 'sweep.py'), tmp_path)
  assert (tmp_path / 'executed').exists()
  (tmp_path / 'executed').unlink()
  py_compile.compile(str(tmp_path / 'sweep.py'), str(tmp_path / 'sweep.pyc'))
  if not (tmp_path / name).exists():
    (tmp_path / name).write_text((tmp_path / 'sweep.py').read_text())
  with pytest.raises(ConfigError, match=rf"^--config: '.*{re.escape(name)}' is no Python file \(a sweep is a \.py file"):
    plan.Sweep(str(tmp_path / name), tmp_path)
  assert not (tmp_path / 'executed').exists()


@pytest.mark.parametrize('missing', ['nosuch.py', 'tests'])
def test_a_file_that_is_not_there_is_named(missing, tmp_path):
  with pytest.raises(ConfigError, match='there is no file'):
    plan.Sweep(str(tmp_path / missing), tmp_path)


def test_later_stages_follow_from_what_is_done_and_are_checked_before(tmp_path):
  sweep = sweep_of(tmp_path, STAGES.replace('min(done, key=done.get)', "'rope' if done['a'] < done['b'] else 'alibi'"))
  assert [*sweep.plan({})] == ['a', 'b']
  assert [*sweep.imagined({})] == ['best']
  assert [*sweep.plan({'a': 2.0})] == ['a', 'b']
  best = sweep.plan({'a': 2.0, 'b': 1.0})['best']
  assert (best.changes['encoding'], best.config.init_from) == ('alibi', f'{tmp_path}/runs/a')
  assert sweep.imagined({'a': 2.0, 'b': 1.0}) == {}
  with pytest.raises(ConfigError, match=r"yields 'best' again with other settings .*- encoding: 'alibi'; \+ encoding: 'rope'"):
    sweep.plan({'a': 1.0, 'b': 2.0})
  bad = sweep_of(tmp_path, STAGES.replace("'init_from'", "'init_form'").replace('min(done, key=done.get)', "'rope'"))
  bad.plan({})
  with pytest.raises(ConfigError, match="run 'best': init_form: there is no such field"):
    bad.imagined({})


def test_the_losses_that_later_stages_get_are_those_in_the_folders(tmp_path):
  sweep = sweep_of(tmp_path, STAGES)
  sweep.plan({})
  finish(tmp_path / 'runs' / 'a', 1.5)
  state.write_failed(tmp_path / 'runs' / 'b', 3, 'no data')
  assert local.done(sweep) == {'a': 1.5}
  state.write_failed(tmp_path / 'runs' / 'b', 7, 'step 3: loss nan')
  assert local.done(sweep) == {'a': 1.5, 'b': math.inf}


def test_a_changed_file_is_refused_with_the_runs_and_fields_that_differ(tmp_path):
  planned = sweep_of(tmp_path, TWO).plan({})
  for run in planned.values():
    workdir.write(pathlib.Path(run.folder) / 'config.json', config_lib.to_json(run.resolved))
  plan.check_begun(planned.values())
  other = sweep_of(tmp_path, TWO.replace("'seed': 3", "'seed': 4") + "  yield 'c', {'seed': 9}\n").plan({})
  with pytest.raises(ConfigDiffers, match=r'1 runs were begun with other settings .*\n  b: - seed: 3; \+ seed: 4$'):
    plan.check_begun(other.values())
  assert ConfigDiffers.exit_code == 6


@pytest.mark.filterwarnings('ignore:the load_module')
def test_a_command_says_all_of_the_run_by_itself(tmp_path, monkeypatch):
  """Parsed by the flags of train.py it gives the config, whatever the characters in it."""
  changes = {'encoding': 'heads(nope, alibi)', 'data.name': 'copy(draw="distinct", symbols=64)', 'optim.learning_rate': 1e-05}
  changes |= {'model.tie_head': False, 'data.text_key': '', 'optim.warmup_steps': -1, 'data.path': "it's $here", 'model.dropout': 0}
  config = plan.changed(runs.config(), changes)
  command = commands.train(config, 'some where', commands.Place('python', f'{ROOT}/'))
  argv = [command[1], *[arg for arg in command[2:] if not arg.startswith('--workdir')]]
  monkeypatch.setattr('sys.argv', argv)  # config_flags looks for overrides there
  values = flags.FlagValues()
  config_flags.DEFINE_config_file('config', flag_values=values)
  values(argv)
  assert config_lib.diff(values.config, config) == []
  assert resolve.typed(values.config.to_dict(), config_lib.default()) == resolve.typed(config.to_dict(), config_lib.default())


def test_a_printed_line_is_one_quoted_shell_command_a_run(tmp_path):
  run = sweep_of(
    tmp_path, TWO.replace("'rope'", "'yarn(factor=2)'") + "def evaluation():\n  return {'lengths': [16], 'encodings': ['yarn']}"
  ).plan({})['a']
  assert commands.line(run) == (
    f"python train.py --config=configs/default.py --workdir={tmp_path}/runs/a --config.batch_size=4 '--config.encoding=yarn(factor=2)' "
    '--config.model.embed_dim=16 --config.model.num_heads=2 --config.model.num_layers=1 --config.num_train_steps=10 '
    '--config.train_length=16 '
    f'&& python eval.py --workdir={tmp_path}/runs/a --label=sweep-0 --lengths=16 --encodings=yarn'
  )


def test_a_printed_line_can_be_put_into_the_command_of_another_launcher(tmp_path):
  evaluation = "def evaluation():\n  return {'lengths': [16], 'encodings': ['yarn(factor=2)', 'rope']}"
  run = sweep_of(tmp_path, TWO + evaluation).plan({})['a']
  line = commands.line(run)
  assert shell(commands.line(run, wrap='printf "%s" {name}={command}')) == f'a={line}'
  more = commands.line(run, extra="--coordinator=auto --timeout='60'")
  assert more.count(' --coordinator=auto --timeout=60') == 2
  assert more.replace(' --coordinator=auto --timeout=60', '') == line
  # As the hosts of a TPU get it.
  said = shell(commands.line(run, wrap=f'bash {ROOT}/scripts/tpu_vm.sh --dry_run --name=tpu-{{name}} run -- {{words}} 2>&1'))
  assert 'tpu-vm ssh tpu-a ' in said
  command = shell(f'printf "%s" {said.partition("--worker=all ")[2]}')
  words = shlex.split(command.partition('nohup ')[2].partition(' >')[0])
  assert words[0] == 'scripts/again.sh'
  wanted = shlex.split(line.replace('&&', '--coordinator=auto "&&"').replace('python ', '.venv/bin/python '))
  assert words[1:] == [*wanted, '--coordinator=auto']


def shell(line):
  """What a line prints."""
  return subprocess.run(['bash', '-c', line], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
  ('extra', 'wrap', 'says'),
  [('', 'sky jobs launch {comand}', r'--wrap: .* has neither \{command\} nor \{words\}'), ("--a='", '', '--extra: .* that a shell reads')],
)
def test_a_template_that_leaves_the_run_out_is_refused(extra, wrap, says):
  with pytest.raises(ConfigError, match=says):
    commands.check_wrap(extra, wrap)


TEXT, TASK = {}, {'data.source': 'task', 'data.name': 'modular_arithmetic_simple', 'data.task_max_length': 9}


@pytest.mark.parametrize(
  ('run', 'given', 'says'),
  [
    (TEXT, {'protocols': ['task']}, "protocols: 'task' does not fit a run that was trained on text"),
    (TASK, {'protocols': 'context'}, "protocols: 'context' does not fit a run that was trained on a task"),
    (TEXT, {'protocols': 'contxt'}, r"protocols: 'contxt' is unknown \(did you mean 'context'\?"),
    (TASK, {'lengths': [8]}, 'lengths: modular_arithmetic_simple has no samples of length 8'),
    (TEXT, {'split': 'tests'}, r"split: 'tests' is unknown \(did you mean 'test'\?"),
    (TEXT, {'stride': 17}, 'stride: 17 exceeds the window of 16 tokens'),
    (TEXT, {'span': 17}, 'span: 17 targets do not fit 16 tokens'),
    (TEXT, {'needle': 12}, 'needle: 12 digits are more than a key can have'),
    (TEXT, {'probes': 'needle', 'options': ['trails=5']}, r"options: 'trails' is unknown \(did you mean 'trials'\?"),
    (TEXT, {'probes': ['nedle']}, r"probes: 'nedle' is unknown \(did you mean 'needle'\?"),
    (TASK, {'probes': ['needle']}, "probes: 'needle' does not fit this run"),
    (TEXT, {'task': 'copy'}, "task: 'copy', and this run was trained on text"),
    (TASK, {'text': 'a.txt'}, "text: 'a.txt', and this run was trained on a task"),
    (TEXT, {'step': 'newest'}, "step: 'newest' must be 'last', 'best' or a step"),
    (TEXT, {'samples': 0}, 'samples: 0 must be a whole number of at least 1'),
    (TEXT, {'max_targets': 1.5}, 'max_targets: 1.5 must be a whole number of at least 0'),
    (TEXT, {'margin': -1}, 'margin: -1 must be a number from 0 on'),
    (TEXT, {'bar': 0}, 'bar: 0 must be a number above 0'),
    (TEXT, {'figures': 'yes'}, "figures: 'yes' must be True or False"),
    (TEXT, {'encodings': ['rope', 't5']}, "encoding: 't5' reads the learned parameter"),
    (TEXT | {'encoding': 'learned'}, {'lengths': [17]}, r"encoding: 'learned' has 16 positions and cannot serve length 17"),
    (
      TEXT | {'encoding': 'learned'},
      {'lengths': [17], 'probes': 'attention'},
      r"encoding: 'learned' has 16 positions and cannot serve length 17",
    ),
  ],
)
def test_what_eval_py_would_refuse_after_the_training_is_refused_before(tmp_path, run, given, says):
  sweep = sweep_of(tmp_path, f"def sweep():\n  yield 'a', {run!r}, { ({'lengths': [16, 32]} | given)!r}\n")
  with pytest.raises(ConfigError, match=rf"^run 'a': evaluation: {says}"):
    sweep.plan({})


@pytest.mark.parametrize(
  ('run', 'given'),
  [
    (TEXT, {'protocols': 'all', 'probes': 'all', 'options': 'trials=5,digits=2', 'step': 10, 'bar': 3.0, 'memory': 2, 'figures': True}),
    (TASK, {'lengths': [9], 'task': 'modular_arithmetic_simple', 'samples': 3, 'split': 'validation', 'step': 'best'}),
    (
      TASK | {'encoding': 'learned(max_length=35)', 'train_length': 35},
      {'lengths': [35], 'probes': ['attention']},
    ),  # tokens, not what the task counts
  ],
)
def test_what_eval_py_takes_is_taken(tmp_path, run, given):
  sweep = sweep_of(tmp_path, f"def sweep():\n  yield 'a', {run!r}, { ({'lengths': [16, 32]} | given)!r}\n")
  (kept,) = sweep.plan({})['a'].evaluations
  assert kept['lengths'] == given.get('lengths', [16, 32])


def test_runs_that_wait_for_what_only_leaves_out_are_no_success(tmp_path):
  for name in 'ab':
    finish(tmp_path / 'runs' / name, 1.0)
  flags = [f'--config={tmp_path}/sweep.py', f'--workdir={tmp_path}/runs']
  text = STAGES.replace('len(done) >= 2', "'c' in done").replace('min(done, key=done.get)', "'rope'")
  (tmp_path / 'sweep.py').write_text(BASE + text + "  yield 'c', {'seed': 7}, ()\n")
  code, _, err = runs.finish(runs.start('scripts/sweep.py', *flags, '--only=best*'))
  assert code == 1, err
  assert 'ERROR: 1 runs wait for others, which --only leaves out: best (take those too, by name or pattern)' in err


def test_what_an_evaluation_may_say_are_the_flags_of_eval_py():
  defined = {*re.findall(r"DEFINE_\w+\(\s*'(\w+)'", (ROOT / 'eval.py').read_text())}
  assert defined - {'workdir', 'label'} == {*evaluations.FLAGS}


@pytest.mark.parametrize(
  ('path', 'arg'),
  [(path, 'seeds=1') for path in SWEEPS]
  + [(path, f'seeds=1,{arg}') for path in SWEEPS[:1] for arg in ('gpu', 'gpu,tune,dataset=pg19', 'steps=5,gpu,dataset=lm1b')],
  ids=lambda given: getattr(given, 'stem', given),
)
def test_every_sweep_of_the_repository_can_be_planned(path, arg, tmp_path, monkeypatch):
  monkeypatch.setenv('PE_JAX_DATA', str(tmp_path))
  sweep = plan.Sweep(f'{path}:{arg}', tmp_path / 'runs')
  planned = sweep.plan({}) | sweep.imagined({})
  assert len({run.folder for run in planned.values()}) == len(planned) >= 4
  assert all(run.evaluations or '-lr' in name for name, run in planned.items())
  assert all(cost.of(run).flops > 0 for run in planned.values())
  assert sweep.notes({}) == []
  if hasattr(sweep.file, 'published'):
    text = published.text(sweep, sweep.published())
    assert text.count('published') >= 3


def test_the_laptop_sweep_has_twelve_runs_and_four_more_with_novels(tmp_path, monkeypatch):
  monkeypatch.setenv('PE_JAX_DATA', str(tmp_path))
  path = str(ROOT / 'configs' / 'sweeps' / 'laptop.py')
  assert len(plan.Sweep(path, tmp_path).plan({})) == 12
  (tmp_path / 'classics').mkdir()
  (tmp_path / 'classics' / 'austen.jsonl').touch()
  planned = plan.Sweep(path, tmp_path).plan({})
  assert len(planned) == 16
  assert planned['austen-rope-s0'].config.data.path == str(tmp_path / 'classics' / 'austen.jsonl')


def test_tuned_sweeps_are_planned_in_two_stages(tmp_path):
  sweep = plan.Sweep(f'{ROOT}/configs/sweeps/extrapolation.py:tune,seeds=2', tmp_path)
  assert (len(sweep.plan({})), len(sweep.imagined({}))) == (36, 24)


@pytest.mark.parametrize(
  ('texts', 'says'), [(['partition'], "'partition' is not name=value"), (['a='], "'a=' is not"), (['=3'], "'=3' is not")]
)
def test_a_parameter_of_slurm_is_name_and_value(texts, says):
  with pytest.raises(ConfigError, match=says):
    slurm.parsed(texts)
  assert slurm.parsed(['partition=gpu', 'timeout_min=60']) == {'partition': 'gpu', 'timeout_min': 60}
