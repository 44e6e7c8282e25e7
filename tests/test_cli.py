"""What a user types: every mistake is one line on stderr with its exit code, at once, and leaves nothing behind."""

import json
import os
import re
import signal
import time

import pytest
import tiny_runs as runs

from pe_jax import train, workdir
from pe_jax.errors import ConfigError

pytestmark = pytest.mark.xdist_group('cli')  # what is made once in a process is used by all of the file


@pytest.fixture(autouse=True, scope='module')
def quick():
  with runs.quick_compiles():
    yield


TINY = '--config={home}/tiny.py'
TRAIN = [
  # (arguments, exit code, what the line says)
  ([TINY + ':roep'], 2, r"encoding: 'roep' is unknown \(did you mean 'rope'\?\) \(there are .*alibi, "),
  ([TINY + ':rope(bas=3)'], 2, r"rope has no field 'bas' \(did you mean 'base'\?\)"),
  ([TINY + ':yarn(factor=0.5)'], 2, r'factor=0.5 must be at least 1'),
  (
    [TINY, '--config.optim.learningrate=1'],
    2,
    r"--config.optim.learningrate: there is no such field \(did you mean 'optim.learning_rate'\?\)",
  ),
  ([TINY, '--config.optim=1'], 2, '--config.optim: there is no such field'),
  ([TINY + ':trin_length=4'], 2, r"'trin_length=4': there is no 'trin_length' \(did you mean 'train_length'\?\)"),
  ([TINY + ':alibi,rope'], 2, 'encoding is given twice'),
  ([TINY, '--config.seed=1e3'], 2, '--config.seed=1e3: invalid literal for int'),
  ([TINY, '--config.seed=True'], 2, '--config.seed=True: invalid literal for int'),
  ([TINY, '--config.seed'], 2, 'flag --config.seed=--workdir'),
  ([TINY, '--config.optim.learning_rate=nan'], 2, 'optim.learning_rate: nan is not a number that can be used'),
  ([TINY, '--config.model.head_dim=7'], 2, 'cannot split a width of 7'),
  ([TINY, '--config.model.num_heads=3'], 2, '3 heads do not divide embed_dim=16'),
  ([TINY, '--config.model.num_kv_heads=3'], 2, 'model.num_kv_heads: 3 does not divide num_heads=2'),
  ([TINY + ':learned(max_length=8)'], 2, 'has 8 positions and cannot serve length 16'),
  ([TINY, '--config.batch_size=12', 'EIGHT'], 2, r'12 rows \(accumulate=1\) cannot be divided over 8 devices'),
  ([TINY, '--config.accumulate=3'], 2, '8 rows cannot be split into accumulate=3'),
  ([TINY, '--config.optim.warmup_steps=50'], 2, 'optim.warmup_steps: 50 exceeds num_train_steps=40'),
  ([TINY, '--config.model.dropout=1'], 2, 'model.dropout: 1.0 must be below 1'),
  ([TINY, '--config.parallel=pmap', '--config.mesh.fsdp=2'], 2, 'has no meaning under pmap'),
  ([TINY, '--config.init_from={home}'], 3, 'no config.json there'),
  ([TINY, '--config.data.source=tfds', '--config.data.name=c5/en', '--config.data.data_dir={home}'], 3, 'c5/en.*no prepared dataset'),
  ([TINY, '--config.data.source=tfds'], 2, "data.name: source 'tfds' needs one"),
  ([TINY, '--config.data.path={home}/nosuch'], 3, 'nosuch: there is no such file or folder'),
  ([TINY, '--config.data.path='], 2, 'data.path: '),
  ([TINY, '--config.data.path={home}/empty'], 3, 'no .txt or .jsonl file among the 0 files there'),
  ([TINY, '--config.data.path={home}/latin'], 3, '0.txt: byte 3: not UTF-8'),
  ([TINY, '--config.data.min_bytes=100000'], 3, 'lower data.min_bytes'),
  ([TINY, '--seeds=1,2'], 2, r"--workdir: '.*run' has no \{seed\}, and 2 seeds need a folder each"),
  ([TINY, '--seeds=1,2,1', '--workdir={home}/run-{{seed}}'], 2, '--seeds: 1 is given twice'),
  ([TINY, '--seeds=1,b', '--workdir={home}/run-{{seed}}'], 2, "--seeds: 'b' is not a whole number"),
  ([TINY, '--seeds=', '--workdir={home}/run-{{seed}}'], 2, '--seeds: missing'),
  ([TINY, '--seeds=1,2', '--workdir={home}/run-{{seed}}', '--config.parallel=pmap'], 2, "--seeds: .* and this config has 'pmap'"),
  ([TINY, 'extra'], 2, "argument 'extra' is not a flag"),
  ([TINY, '--wrkdir=x'], 2, "Unknown command line flag 'wrkdir'"),
  ([], 2, '--config: missing'),
  (['--config={home}/nosuch.py'], 2, "--config: there is no file '.*nosuch.py'"),
  (['--config={home}/nosuch.py', '--config.seed=1'], 2, "--config: there is no file '.*nosuch.py'"),
  (['--config={home}'], 2, '--config: there is no file '),
  (['--config='], 2, "--config: there is no file ''"),
  (['--config={home}/divides.py'], 2, r'--config: the file raised ZeroDivisionError: division by zero \(--debug shows where\)'),
  (['--config={home}/says.py'], 2, 'ERROR: model.depth: is 3$'),
  (['--config={home}/value.py'], 2, 'the file raised ValueError: two lines '),
  (['--config={home}/opens.py'], 2, 'the file raised FileNotFoundError'),
  (['--config={home}/opens.py', '--config.seed=1'], 2, '/nosuch'),
  (['--config={home}/syntax.py'], 2, 'the file raised SyntaxError'),
  (['--config={home}/nothing.py'], 2, 'the file returned NoneType'),
  (['--config={home}/number.py'], 2, 'the file returned int'),
  (['--config={home}/unset.py'], 2, 'nosuch: there is no such field'),
  ([TINY, '--workdir={home}/tiny.py/run'], 4, 'cannot be written: Not a directory'),
]
FILES = {
  'divides': 'return 1 / 0',
  'says': 'from pe_jax.errors import ConfigError\n  raise ConfigError("model.depth: is 3")',
  'value': 'raise ValueError("two\\nlines")',
  'opens': 'return open("/nosuch")',
  'syntax': 'return (',
  'nothing': 'pass',
  'number': 'return 3',
  'unset': 'from pe_jax.config import default\n  c = default()\n  c.nosuch = 1\n  return c',
}
EVAL = [
  (['--workdir={rope}'], 2, '--lengths: missing'),
  (['--lengths=16'], 2, '--workdir: missing'),
  (['--workdir={rope}', '--lengths=0'], 2, r'lengths: \[0\] must be'),
  (['--workdir={rope}', '--lengths=16,-4'], 2, r'lengths: \[16, -4\] must be'),
  (['--workdir={rope}', '--lengths=abc'], 2, "--lengths: 'abc' is not a whole number"),
  (['--workdir={rope}', '--lengths=16', '--margin=-.1'], 2, r'margin: -0\.1 must be a number from 0 on'),
  (['--workdir={rope}', '--lengths=16', '--memory=nan'], 2, r'memory: nan must be a number from 0 on'),
  (['--workdir={rope}', '--lengths=16', '--bar=0'], 2, r'bar: 0\.0 must be a number above 0'),
  (['--workdir={rope}', '--lengths=16,'], 2, "--lengths: '' is not a whole number"),
  (['--workdir={learned}', '--lengths=16,32'], 2, "'learned' has 16 positions and cannot serve length 32"),
  (
    ['--workdir={rope}', '--lengths=16,32', '--encodings=rope,learned'],
    2,
    r"'learned' reads the learned parameter \['table'\] of shape \(16, 16\), and the checkpoint",
  ),
  (['--workdir={rope}', '--lengths=16', '--encodings=rope,yran'], 2, r"'yran' is unknown \(did you mean 'yarn'\?\)"),
  (['--workdir={rope}', '--lengths=16', '--encodings=yarn(fctor=2)'], 2, r"yarn has no field 'fctor' \(did you mean 'factor'"),
  (['--workdir={rope}', '--lengths=16', '--protocols=prefx'], 2, r"'prefx' is unknown \(did you mean 'prefix'"),
  (['--workdir={rope}', '--lengths=16', '--step=7'], 3, r'no checkpoint of step 7 \(there are 4\)'),
  (['--workdir={rope}', '--lengths=16', '--step=newest'], 2, "--step: 'newest' is not a whole number"),
  (['--workdir={rope}', '--lengths=16', '--split=tst'], 2, '<train|validation|test>'),
  (['--workdir={rope}', '--lengths=100000', '--protocols=prefix'], 3, 'no document has 100000 targets'),
  (['--workdir={home}', '--lengths=16'], 3, 'no config.json there'),
  (['--workdir={home}/nosuch', '--lengths=16'], 3, 'no config.json there'),
]


def prepare():
  """The files that the cases name."""
  home = runs.home()
  (home / 'empty').mkdir(exist_ok=True)
  (home / 'latin').mkdir(exist_ok=True)
  for n in range(60):
    (home / 'latin' / f'{n}.txt').write_bytes(b'caf\xe9 number %d' % n)
  for name, body in FILES.items():
    (home / f'{name}.py').write_text(f"def get_config(arg=''):\n  {body}\n")
  return {'home': str(home), 'rope': str(runs.trained('rope')), 'learned': str(runs.trained('learned'))}


def served(commands):
  """[(exit code, stdout, stderr, seconds)] of command lines, from one process that has imported everything."""
  cases = []
  for argv in commands:
    env = {'XLA_FLAGS': '--xla_force_host_platform_device_count=8'} if 'EIGHT' in argv else {}
    cases.append({'argv': [a for a in argv if a != 'EIGHT'], 'env': env})
  return runs.served(cases)


def test_every_mistake_is_one_line_at_once_and_leaves_nothing_behind(tmp_path):
  names = prepare()
  before = {name: runs.contents(names[name]) for name in ('rope', 'learned')}
  expected, commands = [], []
  for script, table in (('train.py', TRAIN), ('eval.py', EVAL)):
    for arguments, code, says in table:
      given = [a.format(**names) if '{' in a else a for a in arguments]
      there = script == 'eval.py' or any(a.startswith('--workdir') for a in given)
      commands.append([script, *given, *([] if there else [f'--workdir={tmp_path / "run"}'])])
      expected.append((code, says))
  wrong = []
  for command, (code, says), (got, out, err, seconds) in zip(commands, expected, served(commands)):
    one_line = re.fullmatch(r'ERROR: [^\n]+\n', err) is not None
    if (got, out, one_line, bool(re.search(says, err)), seconds < 20) != (code, '', True, True, True):
      wrong.append(f'{command[1:]}: code {got}, wanted {code}, in {seconds:.1f} s: {err[-300:]}')
  assert not wrong, '\n'.join(wrong)
  assert not (tmp_path / 'run').exists()
  assert before == {name: runs.contents(names[name]) for name in ('rope', 'learned')}


def test_debug_shows_the_traceback_even_of_a_config_file_and_keeps_the_exit_code():
  names = prepare()
  commands = [['train.py', f'--config={names["home"]}/divides.py', '--workdir=/nosuch/x', '--debug']]
  commands += [['train.py', f'--config={names["home"]}/tiny.py:roep', '--workdir=/nosuch/x', '--debug']]
  commands += [['train.py', f'--config={names["home"]}/tiny.py', '--config.seed=1', f'--workdir={names["rope"]}', '--debug']]
  commands += [['eval.py', f'--workdir={names["home"]}', '--lengths=16', '--debug']]
  shown = (('divides.py", line 2', 2), ("ConfigError: encoding: 'roep'", 2), ('ConfigDiffers: ', 6), ('DataError: ', 3))
  for (code, _, err, _), (says, wanted) in zip(served(commands), shown, strict=True):
    assert (code, 'Traceback' in err, says in err, '\nERROR: ' in err) == (wanted, True, True, True), err


def test_real_processes_answer_within_seconds(tmp_path):
  """A few of the same in processes of their own, two at a time, each within seconds of computing, --help at once."""
  names = prepare()
  tiny = f'--config={names["home"]}/tiny.py'
  held = tmp_path / 'held'
  with workdir.locked(held):
    cases = [
      (['train.py', tiny + ':roep', f'--workdir={tmp_path / "run"}'], 2, 'did you mean'),
      (['train.py', tiny + ':rope(bas=3)', f'--workdir={tmp_path / "run"}'], 2, 'did you mean'),
      (['train.py', tiny, '--config.batch_size=12', f'--workdir={tmp_path / "run"}', 'EIGHT'], 2, 'over 8 devices'),
      (['train.py', tiny, '--config.data.path=/nosuch', f'--workdir={tmp_path / "run"}'], 3, '/nosuch'),
      (['train.py', tiny, f'--workdir={held}'], 5, 'in use by process'),
      (['train.py', tiny, f'--workdir={names["rope"]}'], 6, 'another configuration'),
      (['eval.py', f'--workdir={names["learned"]}', '--lengths=32'], 2, 'has 16 positions and cannot serve length 32'),
      (['train.py', '--help'], 0, ''),
      (['eval.py', '--help'], 0, ''),
    ]
    for pair in (cases[0:2], cases[2:4], cases[4:6], cases[6:7], cases[7:8], cases[8:9]):
      start = os.times()
      processes = [runs.start(*[a for a in argv if a != 'EIGHT'], devices=8 if 'EIGHT' in argv else 1) for argv, _, _ in pair]
      for (argv, code, says), process in zip(pair, processes):
        got, out, err = runs.finish(process)
        assert (got, 'Traceback' in err, says in err) == (code, False, True), (argv, err)
        assert ('--workdir' in out and len(out.splitlines()) < 80) or code
      spent = os.times()
      seconds = spent.children_user + spent.children_system - start.children_user - start.children_system  # the machine may be busy
      assert seconds / len(pair) < (12 if pair[0][1] else 3), argv
  assert not (tmp_path / 'run').exists()


def test_ctrl_c_before_training_ends_the_process_without_a_word(tmp_path):
  slow, reached = tmp_path / 'slow.py', tmp_path / 'reached'
  slow.write_text(f'import pathlib, time\n\ndef get_config():\n  pathlib.Path({str(reached)!r}).touch()\n  time.sleep(60)\n')
  process = runs.start('train.py', f'--config={slow}', f'--workdir={tmp_path / "run"}')
  while not reached.exists() and process.poll() is None:
    time.sleep(0.01)
  process.send_signal(signal.SIGINT)
  code, out, err = runs.finish(process)
  assert (code, out, err) == (-signal.SIGINT, '', '')


def test_text_that_is_not_utf8_can_be_replaced(tmp_path):
  names = prepare()
  config = runs.config(encoding='nope', data__path=f'{names["home"]}/latin', data__unicode_errors='replace')
  train.run(config, tmp_path)
  record = json.loads((tmp_path / 'data.json').read_text())
  assert record['train']['replaced_documents'] == record['train']['documents'] > 40


def test_a_run_from_the_command_line_takes_its_overrides(tmp_path):
  command = ['train.py', f'--config={runs.home()}/tiny.py:alibi,runlocal', f'--workdir={tmp_path}', '--config.seed=3']
  command += ['--config.optim.learning_rate=3e-4', '--config.model.embed_dim=32', '--noconfig.tensorboard']
  code, out, err = runs.finish(runs.start(*command))
  assert (code, out) == (0, ''), err
  written = json.loads((tmp_path / 'config.json').read_text())
  assert (written['encoding'], written['seed'], written['optim']['learning_rate']) == ('alibi', 3, 3e-4)
  assert (written['model']['mlp_dim'], written['num_train_steps']) == (128, 4)
  code, out, err = runs.finish(runs.start('eval.py', f'--workdir={tmp_path}', '--lengths=32', '--encodings=alibi, nope', '--step=best'))
  assert code == 0, err
  assert re.search(r'alibi +nope +\d\.\d+', out)
  rows = [json.loads(line) for line in (tmp_path / 'eval' / 'nonoverlapping.jsonl').read_text().splitlines()]
  assert [(r['encoding'], r['trained_encoding'], r['length'], r['step']) for r in rows] == [
    ('alibi', 'alibi', 32, 4),
    ('nope', 'alibi', 32, 4),
  ]


def test_a_flag_of_whole_numbers_names_what_is_none():
  from pe_jax import cli

  assert cli.integer('lengths', ' 16 ') == 16
  for bad in ('1e3', '2.5', '', 'x'):
    with pytest.raises(ConfigError, match=f"--lengths: '{bad}' is not a whole number"):
      cli.integer('lengths', bad)
