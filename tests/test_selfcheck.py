"""The self-check finds what is wrong, says what it did not try, and holds here."""

import json
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import pytest
import tiny_runs as runs

from pe_jax import fingerprint, model, selfcheck
from pe_jax.selfcheck import Row, checks, contract, kernels, killed, order, properties, table, together

pytestmark = pytest.mark.xdist_group('selfcheck')
MACHINE = {
  'packages': {'jax': '0.10.2', 'numpy': '2.4'},
  'python': '3.11.7',
  'machine': 'x86_64',
  'xla_flags': '',
  'backend': 'gpu',
  'device_kind': 'NVIDIA H200',
  'device_count': 1,
  'cores': 16,
}


@pytest.fixture(autouse=True, scope='module')
def quick():
  with runs.quick_compiles():
    yield


def test_three_runs_have_one_result_and_two_are_told(monkeypatch):
  assert checks.three_times('learned') == {'holds': True, 'worst': '1 result', 'allowed': '1 result', 'note': ''}
  digests = iter('aab')
  monkeypatch.setattr(fingerprint, 'digest', lambda params: next(digests))
  found = checks.three_times('learned')
  assert (found['holds'], found['worst']) == (False, '2 results')


def test_a_kernel_is_compared_with_plain_attention_and_a_wrong_one_is_told(monkeypatch):
  """A TPU's kernel, run as plain JAX."""
  assert kernels.cases() == []  # a CPU has none
  assert kernels.compared('flash', 'alibi', 'float32', 'interpret')['holds'] is True
  attend = kernels.attention.attend

  def off(*args, **options):
    return attend(*args, **options) * (1.01 if args[6] == 'flash' else 1)

  monkeypatch.setattr(kernels.attention, 'attend', off)
  found = kernels.compared('flash', 'rope', 'float32', 'interpret')
  assert found['holds'] is False
  assert found['worst'] == '1e-02'


@pytest.mark.parametrize('spec', ['rope', 'learned(max_length=64)', 'dynamic_ntk(factor=2)', 'fox'])
def test_one_program_shows_what_seven_show(spec):
  """Relative or not, dependent on the length or not, with gates that look at content: as each property by itself gives it."""
  found = together.tried(spec)
  assert tuple(found) == together.NAMES
  for name, function in found.items():
    value, (alone, tolerance) = function(), properties.PROPERTIES[name]
    assert properties.holds(value, tolerance), name
    if name in ('shift', 'prefix'):
      assert isinstance(value, str) == isinstance(alone(spec), str), name


def broken(kind, logits, tokens, pos, doc):
  """Logits that show what must not be seen."""
  told = {
    'causal': jnp.roll(tokens, -1, axis=1),  # each sees the next one
    'exact': jnp.where(doc == 2, tokens[:, :1], 0),  # the second document sees the first
    'batch': jnp.broadcast_to(tokens[:1, -1:], tokens.shape),  # every row sees the first
    'packed': jnp.arange(tokens.shape[1])[None] * (doc == 2),  # the index in the row, where a position is wanted
    'left pad': jnp.argmax(doc > 0, axis=1)[:, None],
    'prefix': jnp.sum(doc == 1, axis=1)[:, None],
    'shift': pos,
  }
  return logits + 0.01 * told[kind][..., None]


@pytest.mark.parametrize('kind', together.NAMES)
def test_each_of_the_seven_sees_its_fault(monkeypatch, kind):
  apply = model.apply

  def wrong(config, enc, params, tokens, where):
    return broken(kind, apply(config, enc, params, tokens, where), tokens, where.i_BT, where.qdoc_BT)

  monkeypatch.setattr(model, 'apply', wrong)
  found = together.tried('rope')
  assert not properties.holds(found[kind](), properties.PROPERTIES[kind][1])


def test_encodings_are_taken_until_the_time_is_up(monkeypatch):
  monkeypatch.setattr(contract, 'specs', lambda: ['alibi', 'nope'])
  monkeypatch.setattr(contract, 'mechanisms', lambda: ['alibi'])
  monkeypatch.setattr(contract, 'MORE', ('chunked',))
  monkeypatch.setattr(together, 'tried', lambda spec: {'exact': lambda: 0.0, 'packed': lambda: 3e-7})
  assert list(contract.rows(False, time.monotonic() - 1)) == []
  found = list(contract.rows(False, time.monotonic() + 60))
  assert [row.check for row in found] == ['alibi', 'nope', 'alibi, further'] == contract.names(False)
  assert [row.check for row in contract.rows(True, time.monotonic() + 60)] == ['alibi', 'nope'] == contract.names(True)
  assert (found[0].holds, found[0].note, found[0].worst, found[0].allowed) == (True, '2 properties', '3e-07 (packed)', '1e-05')
  assert (found[2].holds, found[2].note) == (True, '1 properties')


def test_what_does_not_hold_and_what_breaks_is_told_by_its_property(monkeypatch):
  monkeypatch.setattr(contract, 'specs', lambda: ['alibi'])
  monkeypatch.setattr(together, 'tried', lambda spec: {'exact': lambda: 3e-7, 'packed': lambda: float('nan'), 'batch': lambda: 1 / 0})
  (row,) = contract.rows(True, time.monotonic() + 60)
  said = 'exact: 3.0e-07 where 0e+00 is allowed; packed: nan where 1e-05 is allowed; batch: ZeroDivisionError: division by zero'
  assert (row.holds, row.note) == (False, said)
  monkeypatch.setattr(together, 'tried', lambda spec: 1 / 0)
  (row,) = contract.rows(True, time.monotonic() + 60)
  assert (row.holds, row.note) == (False, 'ZeroDivisionError: division by zero')


def test_what_nothing_came_of_is_counted_and_named():
  wanted = ['a', *(f'e{n}' for n in range(10))]
  (row,) = order.left_out(wanted, [Row('a', True)], 'the time was up')
  assert (row.check, row.holds, row.note, row.count) == ('10 more: e0, e1, e2, e3, e4, e5, e6, e7, …', None, 'the time was up', 10)
  assert order.left_out(wanted[:1], [Row('a', False)], '') == []
  (row,) = order.left_out([], [], 'the time was up')  # not even the machine could be asked
  assert (row.check, row.holds, row.count) == ('all but the runs that are killed', None, 1)
  text = table.text({}, [Row('a', True), Row('x', None, count=10), Row('y', None, count=0)], 1)
  assert text.startswith('### pe_jax selfcheck: 1 checks hold, 10 NOT TRIED (1 s)')


def test_an_accelerator_may_add_up_in_another_order_and_not_leak(monkeypatch):
  assert [contract.allowed(t) for t in (0, 1e-5, None)] == [0, 1e-5, None]
  monkeypatch.setattr(jax, 'default_backend', lambda: 'tpu')
  assert [contract.allowed(t) for t in (0, 1e-5, None)] == [0, 1e-4, None]


def test_a_check_that_breaks_is_a_line():
  row = checks.timed('x', lambda: 1 / 0)
  assert (row.holds, row.note) == (False, 'ZeroDivisionError: division by zero')


def test_the_default_products_of_a_cpu_are_full_ones():
  found = contract.default_precision()
  assert found['holds'] is True
  assert float(found['worst']) < 1e-6


def test_a_run_that_is_killed_ends_like_one_that_is_not(tmp_path):
  """Three real processes, one of which is killed."""
  killed.write_corpus(tmp_path)
  (row,) = killed.rows(tmp_path, runs.environment(), 1, time.monotonic() + 200)
  assert (row.holds, row.worst, row.note) == (True, '0 different', 'killed 1 times before the end')


@pytest.mark.parametrize(
  ('digests', 'kills', 'holds', 'note'),
  [
    (('a', 'a'), 1, True, 'killed 3 times before the end'),
    (('a', 'b'), 1, False, 'different: parameters'),
    (('a', 'a'), 0, None, 'killed 0 times before the end'),
  ],
)
def test_another_result_after_a_kill_is_told(tmp_path, monkeypatch, digests, kills, holds, note):
  def finish(folder, environment, workdir, corpus, end):
    workdir.mkdir()
    (workdir / 'DONE').write_text(json.dumps({'params_sha256': digests[workdir.name == 'killed']}))
    (workdir / 'metrics.jsonl').write_text('{}')

  monkeypatch.setattr(killed, 'finish', finish)
  monkeypatch.setattr(killed, 'kill_at', lambda *args: kills)
  (row,) = killed.rows(tmp_path, {}, 3, 0)
  assert (row.holds, row.note) == (holds, note)


def test_the_table_can_be_pasted_into_an_issue():
  rows = [
    Row('rope', True, '3e-07 (shift)', '1e-04', '12 properties', 3.2),
    Row('kernel cudnn: rope', False, note='a|b'),
    Row('rest', None),
  ]
  text = table.text(MACHINE, rows, 100.4)
  assert text.splitlines()[0] == '### pe_jax selfcheck: 1 of 2 checks DO NOT HOLD, 1 NOT TRIED (100 s)'
  assert '- 1 x NVIDIA H200 (gpu), 16 cores, x86_64' in text
  assert '| rope | holds | 3e-07 (shift) | 1e-04 | 12 properties | 3 |' in text
  assert '| kernel cudnn: rope | **DOES NOT HOLD** |  |  | a/b | 0 |' in text
  assert table.text({}, rows[:1], 1).startswith('### pe_jax selfcheck: 1 checks hold (1 s)\n\nThe machine could not be asked.')


def test_help_and_a_wrong_argument_are_answered_at_once(capsys):
  selfcheck.main(['selfcheck', '--help'])
  assert 'python -m pe_jax selfcheck --quick' in capsys.readouterr().out
  with pytest.raises(SystemExit, match='2'):
    selfcheck.main(['--quik'])
  assert capsys.readouterr().err == "ERROR: argument '--quik' is unknown (selfcheck takes --quick or nothing)\n"
  code = "import sys; from pe_jax import selfcheck; selfcheck.main(['--help']); sys.exit('jax' in sys.modules)"
  subprocess.run([sys.executable, '-c', code], check=True, capture_output=True, cwd=runs.ROOT)
