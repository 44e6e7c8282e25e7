"""What a sweep is made of: states, evaluations that stand once, tuning, seeds together, prices, tables."""

import dataclasses
import io
import math
import time
import types

import pytest
import rich.console
from sweeps import TWO, finish, sweep_of

from pe_jax import config as config_lib
from pe_jax import flops, metrics, once, workdir
from pe_jax.errors import ConfigError, DataError, WorkdirInUse
from pe_jax.sweep import cost, listing, local, plan, pool, published, seeds, slots, state, tasks, tuning, view


def test_a_state_is_what_the_folder_says(tmp_path):
  run = sweep_of(tmp_path, TWO + "def evaluation():\n  return [{'lengths': [16]}, {'lengths': [32]}]\n").plan({})['a']
  task, folder = tasks.of(run), tmp_path / 'runs' / 'a'

  def now():
    found = task.state()
    return found.kind, found.step, found.loss

  assert now() == ('waiting', 0, None)
  assert task.next(None) == task.train
  workdir.write(folder / 'config.json', config_lib.to_json(run.resolved))
  metrics.append(folder / 'metrics.jsonl', [{'step': n, 'loss': 9.0 - n} for n in range(1, 400)])
  with (folder / 'metrics.jsonl').open('a') as torn:
    torn.write('{"step": 40')
  assert now() == ('interrupted', 399, -390.0)
  with workdir.locked(folder):
    assert (now()[0], task.held()) == ('running', True)
  task.failed(3, 'no text')
  assert (now()[0], task.state().reason, task.verdict(0).reason, task.verdict(1e12)) == ('failed', 'no text', 'no text', None)
  task.started()
  assert now()[0] == 'interrupted'
  task.failed(7, 'loss nan')
  assert task.verdict(1e12).code == 7  # it would come again
  task.started()
  finish(folder, 1.25)
  assert (now(), task.next(None)) == (('trained', 10, 1.25), task.evaluations[0][1])
  for label, command in task.evaluations:
    with once.doing(folder, label, command[2:]) as needed:
      assert needed
  assert (now()[0], task.next(None)) == ('done', None)
  changed = sweep_of(tmp_path, TWO + "def evaluation():\n  return [{'lengths': [16]}, {'lengths': [48]}]\n").plan({})['a']
  assert tasks.of(changed).next(None)[-1] == '--lengths=48'  # another evaluation under the same label


def test_rows_of_an_evaluation_stand_once_however_often_it_is_begun(tmp_path):
  folder, argv = tmp_path / 'run', ['--workdir=x', '--label=grid', '--lengths=8,16']
  with pytest.raises(DataError, match=r'no config\.json'), once.doing(folder, 'grid', argv):
    pass
  assert not folder.exists()
  workdir.write(folder / 'config.json', '{"encoding": "rope"}')

  def rows(protocol):
    return metrics.read(folder / 'eval' / f'{protocol}.jsonl')

  by_hand, ours = {'nll': 0.1 + 0.2}, {'nll': 2.0, 'label': 'grid'}
  metrics.append(folder / 'eval' / 'context.jsonl', [by_hand, ours, ours])
  metrics.append(folder / 'eval' / 'sliding.jsonl', [by_hand, {'nll': 3.0, 'label': 'other'}])
  untouched = (folder / 'eval' / 'sliding.jsonl').stat().st_mtime_ns

  def killed_in_the_middle():
    with once.doing(folder, 'grid', argv) as needed:
      assert needed
      assert rows('context') == [by_hand]
      with pytest.raises(WorkdirInUse), once.doing(folder, 'grid', argv):
        pass
      metrics.append(folder / 'eval' / 'context.jsonl', [ours])
      raise RuntimeError

  with pytest.raises(RuntimeError):
    killed_in_the_middle()
  assert not once.done(folder, 'grid', argv)
  with once.doing(folder, 'grid', argv):
    metrics.append(folder / 'eval' / 'context.jsonl', [ours])
  assert rows('context') == [by_hand, ours]
  assert (folder / 'eval' / 'sliding.jsonl').stat().st_mtime_ns == untouched
  assert once.done(folder, 'grid', argv)
  with once.doing(folder, 'grid', argv) as needed:
    assert not needed
  assert not once.done(folder, 'grid', [*argv[:2], '--lengths=8'])
  with once.doing(folder, '', argv) as needed:
    assert needed
  with pytest.raises(ConfigError, match='no name'), once.doing(folder, '../up', argv):
    pass


def test_tuning_gives_every_arm_the_same_trials_and_the_seeds_the_best_rate():
  arms, rates = {'a': {'encoding': 'rope'}, 'b': {'encoding': 'alibi'}}, [1e-2, 1e-3]

  def stage(done):
    return [item[:2] for item in tuning.tuned(arms, rates, [1, 2], done, {'num_train_steps': 5})]

  trials = stage({})
  assert [name for name, _ in trials] == ['a-lr0.001', 'a-lr0.01', 'b-lr0.001', 'b-lr0.01']
  assert trials[1][1] == {'encoding': 'rope', 'seed': 1000, 'optim.learning_rate': 1e-2, 'num_train_steps': 5}
  assert all(len(item) == 3 and item[2] == () for item in tuning.tuned(arms, rates, [1], {}))  # none is evaluated
  assert stage({'a-lr0.001': 1.0}) == trials
  done = {'a-lr0.001': 1.0, 'a-lr0.01': 0.9}
  assert stage(done) == [*trials, *[(f'a-s{s}', {'encoding': 'rope', 'seed': s, 'optim.learning_rate': 1e-2}) for s in (1, 2)]]
  done |= {'b-lr0.001': 2.0, 'b-lr0.01': math.inf}
  assert stage(done)[-1] == ('b-s2', {'encoding': 'alibi', 'seed': 2, 'optim.learning_rate': 1e-3})
  assert tuning.notes(arms, rates, done)[0] == 'a: its learning rate, 0.01, is the largest that was tried; a better one may lie beyond'
  assert stage({name: math.inf for name, _ in trials}) == trials  # nothing to go on with
  assert tuning.best('a', rates, {'a-lr0.001': 1.0, 'a-lr0.01': 1.0}) == 1e-3
  with pytest.raises(ConfigError, match='trial_seed: 1 is one of the seeds'):
    list(tuning.tuned(arms, rates, [1], {}, trial_seed=1))


def test_runs_that_differ_in_their_seed_alone_become_one_command(tmp_path):
  text = 'vmap_seeds = True\ndef sweep():\n  for s in (1, 12):\n    for e in ("rope", "alibi"):\n'
  text += "      yield f'x1-{e}-{s}', {'seed': s, 'encoding': e}\n"
  sweep = sweep_of(tmp_path, text + "  yield 'alone', {'seed': 5, 'batch_size': 8}\n  yield 'longer', {'seed': 5, 'num_train_steps': 20}\n")
  rope, alibi, alone, longer = local.together(sweep, sweep.plan({}).values())
  assert (rope.name, alibi.name, alone.name, longer.name) == ('x1-rope-{seed}', 'x1-alibi-{seed}', 'alone', 'longer')
  command = rope.next(None)
  assert f'--workdir={tmp_path}/runs/x1-rope-{{seed}}' in command
  assert '--seeds=1,12' in command
  assert not any(arg.startswith('--config.seed') for arg in command)
  finish(tmp_path / 'runs' / 'x1-rope-1', 1.0)
  assert '--seeds=12' in rope.next(None)
  rope.failed(7, 'loss nan')  # of the one that is not trained
  assert state.failed(tmp_path / 'runs' / 'x1-rope-1') is None
  assert rope.next(None) is None
  same = sweep_of(tmp_path, "def sweep():\n  yield 'a', {'seed': 1}\n  yield 'b', {'seed': 2}\n").plan({}).values()
  with pytest.raises(ConfigError, match='vmap_seeds: a, b differ in their seed alone, and their names do not'):
    seeds.grouped(same)


def test_of_seeds_together_only_those_that_were_not_finite_are_written_down_as_such(tmp_path, monkeypatch):
  """One diverges while another is taken over (5), and is met again (7) once that one is done elsewhere."""
  monkeypatch.setattr('pe_jax.sweep.pool.LOOK', 0.01)
  monkeypatch.setattr('pe_jax.sweep.pool.QUIET', 0.1)
  text = 'vmap_seeds = True\ndef sweep():\n  for s in (1, 2):\n    yield f"a{s}", {"seed": s}\n'
  sweep = sweep_of(tmp_path, text)
  (task,) = local.together(sweep, sweep.plan({}).values())
  shell = 'case $1 in *=1,2) exit 5 ;; *) echo "ERROR: a1: step 3: loss nan"; exit 7 ;; esac'
  task = dataclasses.replace(task, command=['sh', '-c', shell, 'sh'])
  with pool.Pool([slots.Slot()]) as running:
    running.add(task)
    while running.busy:
      running.step()
      if running.held:  # the other sweep is quick
        finish(tmp_path / 'runs' / 'a2', 1.0)
      time.sleep(0.01)
  assert state.failed(tmp_path / 'runs' / 'a1') == {'code': 7, 'reason': 'a1: step 3: loss nan'}
  assert state.failed(tmp_path / 'runs' / 'a2') is None
  assert task.log.read_text().count('--seeds=') == 2


def test_a_price_is_what_a_hand_counts(tmp_path):
  one = "def sweep():\n  yield 'a', {}, {'lengths': [16, 32], 'encodings': 'rope, linear', 'protocols': 'nonoverlapping', "
  one += "'max_targets': 1000}\n"
  sweep = sweep_of(tmp_path, one)
  run = sweep.plan({})['a']
  price = cost.of(run)
  at = {n: flops.per_token(plan.changed(run.resolved, {'train_length': n})) for n in (16, 32)}
  assert (price.tokens, price.read) == (10 * 4 * 16, 2 * 2 * 1000)
  assert price.flops == pytest.approx(640 * at[16] + 2 * 1000 * (at[16] + at[32]) / 3)
  hours = price.flops / 1e6 / 3600
  text = listing.text(sweep, [run], [], 1e6, '1 MFLOP/s, as said', 2)
  assert text.splitlines()[1].split() == ['a', 'waiting', '640', '4', 'k', *listing.si(price.flops).split(), f'{hours:.2f}']
  assert f'{hours:.2f} hours of one process, {hours / 2:.2f} with 2 at a time' in text


def test_the_speed_is_the_median_of_what_runs_have_logged(tmp_path):
  planned = sweep_of(tmp_path, TWO + "  yield 'c', {'encoding': 't5'}\n").plan({})
  assert cost.logged(planned.values()) is None
  for name, speed in (('a', 100.0), ('b', 300.0), ('c', 200.0)):
    metrics.append(tmp_path / 'runs' / name / 'timing.jsonl', [{'tokens_per_second': speed / 9}, {'tokens_per_second': speed}])
  assert cost.logged(planned.values()) == pytest.approx(200 * flops.per_token(planned['a'].resolved))


def test_the_last_table_says_who_failed_and_why(tmp_path):
  sweep = sweep_of(tmp_path, TWO)
  sweep.plan({})
  finish(tmp_path / 'runs' / 'a', 1.5)
  state.write_failed(tmp_path / 'runs' / 'b', 3, 'data.path: no text')
  text, failed, left = view.final(sweep, lambda name: True)
  assert text.splitlines() == [
    'run  state   steps    loss  reason',
    'a    done       10  1.5000',
    'b    failed      0          data.path: no text',
  ]
  assert (failed, left) == (['b'], [])


def test_the_table_that_renews_itself_shows_every_run_with_its_state_and_progress(tmp_path):
  names = ['a', 'b', 'h', *(f'w{n:02}' for n in range(14))]
  sweep = sweep_of(tmp_path, f'def sweep():\n  for name in {names}:\n    yield name, {{}}\n')
  task = tasks.of(sweep.plan({})['a'])
  metrics.append(task.folder / 'metrics.jsonl', [{'step': 3, 'loss': 2.6}, {'step': 4, 'loss': 2.5}])
  metrics.append(task.folder / 'timing.jsonl', [{'step': 4, 'tokens_per_second': 1234.4}])
  shown = pool.Pool([])
  shown.running['a'] = pool.Work(task, types.SimpleNamespace(started=time.time() - 300), None)
  shown.failed['b'] = pool.Failure(3, '[Errno 2] no text in [/data/x] [red]')
  shown.held['h'] = task
  shown.waiting |= dict.fromkeys(names[3:], task)

  def lines():
    console = rich.console.Console(file=io.StringIO(), width=120)
    console.print(view.View(sweep)._table(shown))
    return [line.split() for line in console.file.getvalue().splitlines()]

  sweep.folder = 'runs'  # a long title is broken into lines
  title, header, *rows = lines()
  assert ' '.join(title) == 'runs: 1 running, 14 waiting, 1 held elsewhere, 1 failed, 0 s'
  assert header == ['run', 'state', 'step', 'loss', 'tokens/s']
  assert rows[0] == ['a', 'training', '4/10', '2.500', '1234', '5', 'min']
  assert rows[1] == ['b', 'failed', '[Errno', '2]', 'no', 'text', 'in', '[/data/x]', '[red]']
  assert rows[2] == ['h', 'elsewhere', 'another', 'process', 'works', 'on', 'it']
  assert rows[3:] == [*([name, 'waiting'] for name in names[3:15]), ['and', '2', 'more']]
  finish(task.folder, 1.25)
  assert lines()[2] == ['a', 'evaluating', '10/10', '1.250', '1234', '5', 'min']


def test_published_numbers_stand_beside_ours(tmp_path):
  sweep = sweep_of(tmp_path, TWO)
  folder = tmp_path / 'runs' / 'a'
  one = {'title': 'Table 9', 'source': 'somebody', 'protocol': 'nonoverlapping', 'value': 'ppl', 'lengths': [512, 1024], 'ours': [16, 32]}
  one['rows'] = {
    'rotary': {'published': [20.0, 40.0], 'runs': 'a*'},
    'mapped': {'published': [20.0, None], 'runs': 'a', 'encoding': 'linear'},
  }
  runs_ = sweep.plan({})
  assert published.text(sweep, [one]).splitlines()[3].split() == ['ours', '–', '–']
  workdir.write(folder / 'config.json', config_lib.to_json(runs_['a'].resolved))
  rows = [{'asked_encoding': e, 'length': n, 'ppl': n * k} for e, k in (('rope', 1.0), ('linear', 3.0)) for n in (16, 32, 64)]
  metrics.append(folder / 'eval' / 'nonoverlapping.jsonl', rows)
  lines = [line.split() for line in published.text(sweep, [one]).splitlines()]
  assert lines[1] == ['512', '(16)', '1024', '(32)']
  assert lines[2] == ['rotary', 'published', '20', '40']
  assert lines[3] == ['ours', '16', '32']
  assert lines[4][-2:] == lines[5][-2:] == ['+0.000', '+0.693']
  assert lines[7] == ['ours', '48', '96']
  assert lines[8][-1] == '–'
