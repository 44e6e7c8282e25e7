"""Two processes of two devices are one process of four: same batches, same losses, one log, stopped and saved together, ended together."""

import functools
import json
import re
import signal

import numpy as np
import pairs
import pytest
import tiny_runs as runs

from pe_jax import metrics

pytestmark = pytest.mark.xdist_group('hosts')  # they share what is computed once

# Which process gets which signals where, and the step that both have saved then: the other one knows of it a step later.
PREEMPTED = (
  (0, 'SIGTERM env 1', 0),
  (1, 'SIGINT compile 1', 2),
  (0, 'SIGTERM+SIGINT step 3', 7),
  (1, 'SIGTERM eval 1', 13),
  (1, 'SIGINT save 1', 20),
  (0, 'SIGTERM restore 1', 20),
)


def at(index, place):
  """The place of a pair of which one process gets signals."""
  return ('', place) if index else (place, '')


@functools.cache
def done():
  """What the processes of each pair said: of a run that is stopped again and again, and killed."""
  cut = pairs.training(pairs.home() / 'cut')
  kinds = {place: pairs.pair(cut, at(index, place)) for index, place, _ in PREEMPTED}
  kinds['killed'] = pairs.pair(cut, ('', 'SIGKILL eval 1'), timeout=15)
  kinds['goes on'] = pairs.pair(cut)
  kinds['early'] = pairs.pair(pairs.training(pairs.home() / 'early'), at(1, 'SIGTERM read 1'))
  return dict(zip(kinds, pairs.results(list(kinds.values()))))


@functools.cache
def whole():
  """The folder of a pair that nobody touches."""
  (((code, out, err), other),) = pairs.results([pairs.pair(pairs.training(pairs.home() / 'whole'))])
  assert (code, out) == (0, ''), err
  assert other == (0, '', '')  # the first alone speaks
  return pairs.home() / 'whole'


def contents(folder, *names):
  return {name: (folder / name).read_bytes() for name in names}


def test_two_processes_of_two_devices_train_as_one_of_four():
  folder = pairs.home() / 'one'
  code, _, err = runs.finish(runs.start(*pairs.training(folder), devices=4))
  assert code == 0, err
  two, one = metrics.read(whole() / 'metrics.jsonl'), metrics.read(folder / 'metrics.jsonl')
  assert [(r['step'], sorted(r)) for r in two] == [(r['step'], sorted(r)) for r in one]
  assert len(two) == pairs.STEPS + 2
  for name in ('loss', 'gradient_norm', 'validation_loss'):
    a, b = ([r[name] for r in rows if name in r] for rows in (two, one))
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6, err_msg=name)
  for name in ('targets', 'validation_targets'):
    assert [r.get(name) for r in two] == [r.get(name) for r in one]
  assert contents(whole(), 'batches.jsonl', 'data.json') == contents(folder, 'batches.jsonl', 'data.json')
  environment = json.loads((whole() / 'env.json').read_text())
  assert (environment['process_count'], environment['device_count']) == (2, 4)
  assert (whole() / 'LOCK').read_text().count('process') == 1


def test_a_signal_to_either_in_any_phase_saves_the_same_step_on_both_and_they_end_as_if_untouched():
  for _, place, step in PREEMPTED:
    for code, _, err in done()[place]:
      assert code == 75, (place, err)
      name = place.split()[0].split('+')[0]
      assert re.search(rf'^ERROR: .*/cut: stopped by {name} and saved at step {step} \(the same command goes on', err, re.M), (place, err)
  (code, _, err), (other, out, said) = done()['goes on']
  assert (code, other, out, said) == (0, 0, '', ''), err
  assert re.search('going on from step 20$', err, re.M), err
  names = ('DONE', 'metrics.jsonl', 'batches.jsonl', 'config.json', 'data.json')
  assert contents(pairs.home() / 'cut', *names) == contents(whole(), *names)


def test_a_signal_to_one_before_anything_is_begun_ends_both():
  for code, _, err in done()['early']:
    assert (code, 'early: stopped by SIGTERM before anything was begun' in err) == (75, True), err
  assert not (pairs.home() / 'early').exists()


def test_a_killed_process_ends_the_other_within_the_timeout():
  """Where no common computation fails before, jax's own service notices, and aborts without a word to Python."""
  (code, _, err), (killed, _, _) = done()['killed']
  assert killed == -signal.SIGKILL
  assert code in (75, -signal.SIGABRT), err
  said = re.search(r'^ERROR: .*/cut: process 0 of 2 ends, for another one is gone: .*goes on from the newest checkpoint\)$', err, re.M)
  assert bool(said) == (code == 75), err
  assert said or 'stopped sending heartbeats' in err


def test_two_processes_evaluate_as_one_does_and_one_of_them_writes():
  arguments = ['eval.py', f'--workdir={whole()}', '--lengths=16', '--protocols=nonoverlapping,prefix', '--probes=leak']
  labelled = [*arguments[:3], '--protocols=prefix', '--label=mine']
  found = pairs.results([pairs.pair(arguments), pairs.pair(labelled), pairs.pair(labelled)])
  for (code, out, err), other in found[:2]:
    assert (code, other) == (0, (0, '', '')), (err, other)
    assert 'learned' in out
  assert [(code, out) for code, out, _ in found[2]] == [(0, ''), (0, '')]  # met at another port, and knows itself again
  assert 'mine is evaluated already' in found[2][0][2]
  assert (whole() / 'eval' / 'mine.done').exists()
  two = {p.name: metrics.read(p) for p in (whole() / 'eval').glob('*.jsonl')}
  assert set(two) == {'nonoverlapping.jsonl', 'prefix.jsonl', 'leak.jsonl'}
  assert [row.get('label') for row in two['prefix.jsonl']] == [None, 'mine']
  code, out, err = runs.finish(runs.start(*arguments, devices=4))
  assert code == 0, err
  for name, rows in two.items():
    rows = [row for row in rows if 'label' not in row]
    again = metrics.read(whole() / 'eval' / name)[len(two[name]) :]
    assert len(again) == len(rows) > 0
    for a, b in zip(rows, again, strict=True):
      assert a.keys() == b.keys()
      if 'nll' in a:
        assert a.get('targets') == b.get('targets')
        assert a['nll'] == pytest.approx(b['nll'], rel=1e-6)
  assert [line for line in out.splitlines() if line][:3] == found[0][0][1].splitlines()[:3]


def test_one_of_two_processes_that_differ_or_fail_ends_both_before_anything_is_written():
  differs, seeds = pairs.home() / 'differs', pairs.home() / 'seeds-{seed}'
  of_seeds = pairs.pair(pairs.training(seeds, '--seeds=1,2'))
  found = pairs.results([pairs.pair(pairs.training(differs), second=['--config.seed=7']), of_seeds])
  for code, out, err in found[0]:
    assert (code, out) == (2, ''), err
    assert 'ERROR: process_index: 1 differs from 0 (give all the same command' in err
    assert '  - config.seed: 0\n  + config.seed: 7' in err
  for code, out, err in found[1]:
    assert (code, out) == (2, ''), err
    assert re.search(r'^ERROR: --seeds: seeds are trained together in one process, and this is one of 2 \(', err, re.M), err
  assert [p.name for p in pairs.home().iterdir() if p.name.startswith(('differs', 'seeds'))] == []
