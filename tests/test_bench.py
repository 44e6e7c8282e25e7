"""The benchmark's arithmetic: what is paired with what, and when a gate counts as met. Nothing here is timed."""

import io
import json
import pathlib
import sys
import types

import numpy as np
import pytest

from pe_jax.errors import ConfigError

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / 'scripts'))

from benchmarks import plan, report, rounds, verdict, worker  # noqa: E402  # a folder of scripts, not of the package

FACTS = {'probe': {'flops': 2e9}}


@pytest.fixture
def bench():
  """The driver's module, whose flags must be defined only once."""
  import bench

  return bench


def measured(**seconds):
  return plan.Measured(seconds, facts=dict(FACTS))


def test_a_slow_round_of_the_machine_changes_no_paired_ratio():
  m = measured(ours=[1.0, 1.6, 1.0], peer=[2.0, 3.2, 2.0])
  assert plan.time_ratio('ours', 'peer').of(m) == pytest.approx([0.5, 0.5, 0.5])
  assert plan.speed_ratio('ours', 'peer').of(m) == pytest.approx([2, 2, 2])


def test_times_are_compared_a_token():
  m = measured(ours=[1.0], peer=[1.0])
  m.facts |= {'ours': {'units': 200}, 'peer': {'units': 100}}
  assert plan.speed_ratio('ours', 'peer').of(m) == pytest.approx([2])


def test_the_share_of_the_peak_is_taken_in_the_same_round():
  m = measured(ours=[1.0, 2.0], probe=[1.0, 2.0])
  m.facts['ours'] = {'flops': 1e9}
  assert plan.share_of_peak('ours').of(m) == pytest.approx([50, 50])


@pytest.mark.parametrize(
  ('values', 'gate', 'at_least', 'others', 'expected'),
  [
    ([1.0, 1.05, 1.1], 1.2, False, 0.0, 'PASS'),
    ([1.3, 1.35, 1.4], 1.2, False, 0.0, 'FAIL'),
    ([1.1, 1.2, 1.3, 1.4], 1.2, False, 0.0, 'INCONCLUSIVE'),
    ([1.5, 1.6, 1.7], 1.4, True, 0.0, 'PASS'),
    ([1.0, 1.1, 1.2], 1.4, True, 0.0, 'FAIL'),
    ([1.3, 1.35, 1.45, 1.5], 1.4, True, 0.0, 'INCONCLUSIVE'),
    ([1.0, 1.0, 1.0, 1.0, 9.0], 1.2, False, 0.0, 'PASS'),
    ([1.0, 1.05, 1.1], 1.2, False, 0.31, 'INCONCLUSIVE'),
    ([9.0, 9.0, 9.0], 1.2, False, 0.31, 'INCONCLUSIVE'),
    ([1.0, 1.05, 1.1], 1.2, False, None, 'PASS'),
    ([1.0, float('nan'), 1.1], 1.2, False, 0.0, 'INCONCLUSIVE'),
    ([9.0], None, False, 0.0, 'report'),
  ],
)
def test_a_gate_is_met_or_missed_only_by_both_quartiles_on_a_quiet_machine(values, gate, at_least, others, expected):
  assert verdict.judge(values, gate, at_least, others) == expected


def test_quartiles_and_extremes_leave_nothing_out():
  values = [1.0, 2.0, 3.0, 4.0, 100.0]
  assert verdict.summary(values) == {'median': 3, 'first': 2, 'third': 4, 'least': 1, 'most': 100}


def test_an_exponent_is_the_slope_of_the_logarithms():
  lengths = np.array([1024, 2048, 4096, 8192])
  assert verdict.exponent(lengths, 3e-9 * lengths**2.0) == pytest.approx(2)
  assert verdict.exponent(lengths, 700.0 * lengths) == pytest.approx(1)
  assert np.isnan(verdict.exponent(lengths, [0, 1, 2, 3]))
  names = ['a 1', 'a 2', 'a 4']
  m = measured(**{'a 1': [1.0, 10.0], 'a 2': [4.0, 40.0], 'a 4': [16.0, 160.0]})
  assert plan.time_exponent(names, [1, 2, 4]).of(m) == pytest.approx([2, 2])


def test_other_processes_disturb_times_and_not_memory():
  m = plan.Measured({'ours': [1.0] * 3, 'peer': [2.0] * 3}, {'ours': [10] * 3, 'peer': [40] * 3}, others=1.0)
  rows = [plan.Row('7', 'time', plan.time_ratio('ours', 'peer'), 1.0), plan.Row('7', 'memory', plan.memory_ratio('ours', 'peer'), 1.0)]
  assert [report.evaluated(row, m)['verdict'] for row in rows] == ['INCONCLUSIVE', 'PASS']


def test_a_line_of_the_table():
  m = measured(ours=[1.0, 1.0, 1.0], peer=[1.5, 1.6, 1.7])
  row = plan.Row('1', 'tokens/s ÷ peer', plan.speed_ratio('ours', 'peer'), 1.4, 2.0, at_least=True)
  assert report.line(report.evaluated(row, m)) == (
    '| 1 | tokens/s ÷ peer | **1.6** | 1.55 – 1.65 | 1.5 – 1.7 | ≥ 1.4 | ≥ 2 | PASS | ours 1 s, peer 1.6 s |'
  )
  row = plan.Row('15', 'start', plan.seconds('ours'), 6, 3, unit='s')
  assert report.line(report.evaluated(row, m)) == ('| 15 | start | **1** s | 1 – 1 | 1 – 1 | ≤ 6 s | ≤ 3 s reached | PASS | ours 1 s |')


def test_what_is_missing_says_why():
  m = plan.Measured({'ours': [1.0]}, missing={'peer': 'no peer: No module named torch'})
  row = report.evaluated(plan.Row('3', 'x', plan.time_ratio('ours', 'peer'), 1.0), m)
  assert report.line(row) == '| 3 | x | – | – | – | ≤ 1 | – | no peer | No module named torch |'


def test_the_page_shows_misses_and_its_data_has_every_round(tmp_path):
  m = measured(ours=[3.0, 3.0, 3.0], peer=[1.0, 1.0, 1.0], probe=[0.01, 0.02, 0.01])
  m.others = 0.0
  contestants = [plan.Contestant('ours', 'ours', 'train'), plan.Contestant('peer', 'nanodo', 'train', {'path': '/somewhere', 'rows': 8})]
  group = plan.Group('a step', contestants, [plan.Row('1', 'x', plan.time_ratio('ours', 'peer'), 1.2)])
  machine = {'processor': 'one', 'cores': 2, 'memory_gb': 8.0, 'system': 'Linux'}
  data = {'date': '2030-01-01', 'mode': 'full', 'rounds': 3, 'seconds': 9.0, 'about': 'About.', 'machine': machine, 'settings': 'None'}
  data |= {'versions': {'jax': '1'}, 'groups': [report.group_data(group, m)]}
  path = tmp_path / 'page.md'
  report.write(path, {'train': data})
  assert '| 1 | x | **3** | 3 – 3 | 3 – 3 | ≤ 1.2 | – | FAIL |' in path.read_text()
  assert 'Rows: 1 FAIL.' in path.read_text()
  assert 'probe 100 – 200 GFLOP/s, other processes 0.00 cores' in path.read_text()
  stored = report.read(path)['train']['groups'][0]
  assert stored['seconds']['ours'] == [3.0, 3.0, 3.0]
  assert '/somewhere' not in path.with_suffix('.json').read_text()


@pytest.mark.parametrize('quick', [True, False])
def test_rows_speak_of_contestants_that_take_part(bench, quick):
  import importlib

  numbers = set()
  for name in bench.NAMES:
    for group in importlib.import_module(f'benchmarks.{name}').groups(quick):
      present = {c.name: c for c in group.contestants}
      assert len(present) == len(group.contestants)
      for row in group.rows:
        assert set(row.value.needs) <= present.keys() | {'probe'}
        if row.value.kind == 'memory':
          assert all(present[n].memory for n in row.value.needs)
        numbers.add(row.number)
      json.dumps([c.args for c in group.contestants])
  assert numbers >= {str(n) for n in range(1, 17)} | {'phases'}


def test_a_worker_answers_and_survives_what_fails(monkeypatch):
  ran = []

  def fails():
    raise ValueError('too large\nfor this')

  def absent():
    raise worker.NotThere('pe_jax.something')

  cases = {'good': lambda size: worker.Case(lambda: ran.append(size), {'units': 5}), 'bad': fails, 'absent': absent}
  monkeypatch.setitem(sys.modules, 'benchmarks.made_up', types.SimpleNamespace(CASES=cases, versions=lambda: {'made_up': '1'}))
  asked = [
    {'do': 'build', 'key': 'a', 'case': 'good', 'args': {'size': 3}},
    {'do': 'warm', 'key': 'a', 'turn': 1e-9},
    {'do': 'run', 'key': 'a'},
  ]
  asked += [{'do': 'build', 'key': name, 'case': name, 'args': {}} for name in ('bad', 'absent')]
  out = io.StringIO()
  worker.serve('benchmarks.made_up', [json.dumps(a) for a in [*asked, {'do': 'quit'}, {'do': 'never read'}]], out.write)
  answers = [json.loads(line) for line in out.getvalue().splitlines()]
  assert answers[0] == {'facts': {'units': 5}, 'versions': {'made_up': '1'}}
  assert answers[1] == {'calls': 1}
  assert answers[2].keys() == {'seconds', 'least'}
  assert answers[3]['missing'] == 'failed: ValueError: too large'
  assert answers[4]['missing'] == 'not there: pe_jax.something'
  assert ran == [3, 3, 3]


class FakeHandle:
  """A worker that answers at once and notes who was asked to do what."""

  asked: list

  def __init__(self, module, settings, python, folder):
    del settings, python, folder
    self.process, self.module = types.SimpleNamespace(pid=0), module

  def ask(self, **request):
    self.asked.append((request['do'], request['key']))
    if request['key'] == 'broken':
      raise rounds.Ended('failed: a reason')
    answers = {
      'build': {'facts': {'flops': 1}, 'versions': {}},
      'run': {'seconds': 2.0, 'least': 1.0},
      'memory': {'bytes': [7, 8], 'how': ''},
    }
    return answers.get(request['do'], {})

  def close(self):
    self.asked.append(('close', self.module))


def test_every_second_round_goes_backwards_and_what_fails_is_left_out(monkeypatch):
  monkeypatch.setattr(rounds, 'Handle', FakeHandle)
  monkeypatch.setattr(FakeHandle, 'asked', [], raising=False)
  contestants = [plan.Contestant(name, 'ours', 'train', memory=name == 'a') for name in ('a', 'broken', 'b')]
  contestants.append(plan.Contestant('peer', 'torch_peers', 'train'))
  m = rounds.Bench(None, '').measure(plan.Group('a group', contestants, []), 3)
  assert [key for do, key in FakeHandle.asked if do == 'run'][: 3 * 3] == ['probe', 'a', 'b', 'b', 'a', 'probe', 'probe', 'a', 'b']
  assert m.seconds == {'probe': [1.0] * 3, 'a': [2.0] * 3, 'b': [2.0] * 3}
  assert m.memory == {'a': [7, 8]}
  assert m.missing == {'peer': 'no peer', 'broken': 'failed: a reason'}
  order = [do for do, _ in FakeHandle.asked]
  assert order.index('memory') > len(order) - 1 - order[::-1].index('run')


def test_a_case_may_say_which_seconds_count():
  assert worker.turn(worker.Case(lambda: 2.0, calls=3)) == (2.0, 2.0)


def test_only_rows_with_the_same_settings_get_them(monkeypatch):
  monkeypatch.setenv('GLIBC_TUNABLES', 'glibc.malloc.hugetlb=1')  # as make sets it
  monkeypatch.delenv('XLA_FLAGS', raising=False)
  assert 'GLIBC_TUNABLES' not in rounds.environment('torch_peers', 'as it comes')
  assert rounds.environment('torch_peers', 'same')['GLIBC_TUNABLES'] == 'glibc.malloc.hugetlb=1'
  assert 'XLA_FLAGS' not in rounds.environment('nanodo', 'as it comes')
  assert '--xla_cpu_prefer_vector_width=512' in rounds.environment('nanodo', 'same')['XLA_FLAGS']


def test_wrong_flags_are_answered_in_a_sentence(bench, tmp_path):
  with pytest.raises(ConfigError, match=r"'atention' is unknown.*did you mean 'attention'"):
    bench.checked(['atention'])
  with pytest.raises(ConfigError, match=r'there is no .*nowhere'):
    bench.peers_python(str(tmp_path / 'nowhere'))
  with pytest.raises(ConfigError, match='no checkout of nanodo'):
    bench.checkout([f'nanodo={tmp_path}'])
  with pytest.raises(ConfigError, match="'other' is unknown"):
    bench.checkout(['other=x'])
  assert bench.checked(['loss', 'train']) == ['train', 'loss']
