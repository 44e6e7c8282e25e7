"""One program reads a checkpoint under all frequency maps, which differ in numbers: the losses are those of programs of their own."""

import dataclasses
import itertools
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tiny
import tiny_runs as runs

from pe_jax import data, encodings, evaluate, process
from pe_jax.errors import ConfigError
from pe_jax.evaluate import memory, planted, score
from pe_jax.report import protocols

pytestmark = pytest.mark.xdist_group('evaluation')
MAPS = (
  'rope', 'rope(base=500)', 'linear(factor=2)', 'ntk(factor=4)', 'dynamic_ntk', 'dynamic_ntk(factor=2)', 'yarn(factor=3)', 'dynamic_yarn',
  'llama3(factor=4)', 'longrope(factor=2, short_factor=[1, 1, 1, 1], long_factor=[1, 2, 3, 4])', 'p_rope(p=0.5)', 'abf(target=50000)',
)  # fmt: skip
ALONE = ('dynamic_ntk(factor=2)', 'yarn(factor=3)', 'rope', 'dynamic_yarn', MAPS[9])
WRAPPED = (
  ('stack(yarn(factor=2), alibi)', 'stack(dynamic_ntk, alibi)'),
  ('layers(yarn(factor=2), nope)', 'layers(rope, nope)'),
  ('heads(ntk(factor=2), yarn(factor=4))', 'heads(rope, linear(factor=2))'),
  ('log_n(yarn(factor=2))', 'log_n(ntk(factor=3))'),
  ('randomized(yarn(factor=2), range=128)', 'randomized(rope, range=128)'),
)


@pytest.fixture(autouse=True, scope='module')
def quick():
  with runs.quick_compiles():
    yield


def losses(subject, spec, rows, programs=None, numbers=True):
  """Sums by position. Without `numbers` they are part of the program, as in training."""
  enc = subject.encoding(encodings.parse(spec), rows.tokens_BT.shape[1])
  enc = enc if numbers else dataclasses.replace(enc, numbers=None)
  return score.by_position(subject.config, enc, subject.params, rows, programs=programs)[0]


def windows(subject, length):
  return data.packing.windows(subject.documents, length, subject.tokenizer.bos)


def test_all_maps_are_one_program_whose_losses_are_those_of_their_own():
  subject = tiny.subject('rope', documents=3)
  # Of 64 tokens windows of 24 leave shorter ones, with other frequencies where those depend on the length; windows of 32 are all alike.
  for length, alone in ((24, ALONE), (32, ALONE[:2])):
    rows, programs = windows(subject, length), {}
    found = {spec: losses(subject, spec, rows, programs) for spec in MAPS}
    for spec in alone:
      np.testing.assert_allclose(found[spec], losses(subject, spec, rows, numbers=False), rtol=1e-6, err_msg=spec)
    assert len(programs) == 1
    same = [(a, b) for a, b in itertools.combinations(MAPS, 2) if found[a].sum() == found[b].sum()]
    assert same == []
    assert losses(subject, 'yarn(factor=1)', rows, programs).tolist() == found['rope'].tolist()  # to the last bit


@pytest.mark.parametrize('pair', WRAPPED, ids=lambda pair: pair[0].partition('(')[0])
def test_maps_inside_of_other_encodings_are_given_their_numbers_too(pair):
  subject, programs = tiny.subject('rope', documents=3), {}
  rows, found = windows(subject, 24), []
  for spec in pair:
    found.append(losses(subject, spec, rows, programs).sum())
    assert found[-1] == pytest.approx(losses(subject, spec, rows, numbers=False).sum(), rel=1e-6), spec
  assert len(programs) == 1
  assert found[0] != found[1]


def test_what_is_computed_otherwise_is_another_program():
  def program(spec):
    return encodings.program(encodings.parse(spec))

  assert program('rope') == program('yarn(factor=8, base=500)') == program('dynamic_ntk')
  apart = [
    'rope', "rope(layout='interleaved')", 'rope(fraction=0.5)', 'self_extend', 'self_extend(group=8)', 'alibi', 'stack(rope, alibi)',
    'layers(rope, nope)', 'layers(nope, rope)', 'layers(yarn(factor=2), yarn(factor=4))', 'layers(yarn(factor=2), yarn(factor=2))',
  ]  # fmt: skip
  assert len({program(spec) for spec in apart}) == len(apart)


def test_context_compiles_once_a_length_and_tells_what_a_crop_would_cost():
  subject = tiny.subject('rope', documents=4, size=80)
  options = evaluate.Options(span=4, spans=8, arms=False)
  rows = evaluate.evaluate(subject, [8, 16, 64], ['rope', 'yarn(factor=4)', 'dynamic_ntk', 'ntk'], ['context'], options=options)
  assert len(subject.programs) == 3  # 8, 16 and 64, whatever the reading
  by = {(row['asked_encoding'], row['length']): row for row in rows}
  for (spec, length), row in by.items():
    crop = by['rope', min(length, 16)]
    assert row['against_crop']['mean'] == pytest.approx(row['nll'] - crop['nll'], abs=1e-9), (spec, length)
    assert 'shuffled_far' not in row
  assert by['rope', 8]['against_crop']['mean'] == by['dynamic_ntk', 16]['against_crop']['mean'] == 0  # no cost inside
  assert by['yarn(factor=4)', 16]['against_crop']['low'] < by['yarn(factor=4)', 16]['against_crop']['high']
  text = protocols.text(rows)
  assert 'against crop' in text
  assert [line.split()[5:7] for line in text.splitlines() if line.split()[:2] == ['rope', '16']] == [['crop', '-']]
  alone = evaluate.evaluate(subject, [64], ['ntk'], ['context'], options=options)
  assert all('against_crop' not in row for row in alone)


def test_a_length_beyond_memory_is_refused_before_it_runs(monkeypatch):
  subject = tiny.subject('rope', documents=2)
  monkeypatch.setattr(memory, 'available', lambda: 1000)
  with pytest.raises(ConfigError, match=r'lengths: 64 tokens need 0\.0 GB beside the parameters, by the compiler, and 0\.0 GB are free'):
    evaluate.evaluate(subject, [16, 64], None, ['context'], options=evaluate.Options(span=4))  # the longest is asked for first
  assert memory.of_machine() > 1e6


@pytest.mark.skipif(sys.platform != 'linux', reason="reads /proc, and the settings are those of glibc's malloc")
def test_what_malloc_keeps_counts_as_free():
  """Of an earlier program's arrays, under the settings that `make` and sweeps set."""
  text = """
    import pathlib, numpy
    from pe_jax.evaluate import memory
    def resident():
      return int(pathlib.Path('/proc/self/status').read_text().split('VmRSS:')[1].split()[0]) * 1024
    parts = [numpy.ones(2**20) for _ in range(50)]
    full = resident()
    del parts
    kept = resident()
    free = iter([100, 500])  # what the system says before and after
    memory.available = lambda: next(free)
    memory.check_bytes(300, 'new_tokens: keys')
    print(full - kept < 2**22, kept - resident() > 300 * 2**20)
  """
  command = [sys.executable, '-c', textwrap.dedent(text)]
  done = subprocess.run(command, env=os.environ | process.MALLOC, capture_output=True, text=True, check=True, timeout=100)
  assert done.stdout.split() == ['True', 'True']


def group(folder, **files):
  """A control group's folder."""
  folder.mkdir(parents=True, exist_ok=True)
  for name, text in files.items():
    (folder / f'memory.{name}').write_text(text)


@pytest.mark.parametrize(
  ('told', 'files', 'left'),
  [
    ('0::/a/b\n', {'': {'max': 'max\n'}, 'a': {'max': '9000\n', 'current': '5000\n', 'stat': 'anon 3\ninactive_file 1000\n'}}, 5000),
    ('0::/a\n', {'a': {'max': '100\n', 'current': '500\n', 'stat': 'inactive_file 0\n'}}, 0),
    ('0::/of/the/host\n', {'': {'max': '7000\n', 'current': '1000\n', 'stat': ''}}, 6000),
    (
      '5:cpu:/a\n4:memory,pids:/a\n',
      {'memory/a': {'limit_in_bytes': '8000', 'usage_in_bytes': '6000', 'stat': 'inactive_file 1\ntotal_inactive_file 500\n'}},
      2500,
    ),
    ('0::/\n', {'': {'max': 'max\n', 'current': '10\n', 'stat': ''}}, None),
  ],
)
def test_a_containers_limit_counts_where_it_is_less_than_what_is_free(told, files, left, tmp_path, monkeypatch):
  (tmp_path / 'told').write_text(told)
  for folder, contents in files.items():
    group(tmp_path / 'groups' / folder, **contents)
  found = memory.groups(tmp_path / 'told', tmp_path / 'groups')
  monkeypatch.setattr(memory, 'groups', lambda: found)
  monkeypatch.setattr(memory, '_free', lambda: 10**12)
  assert memory.of_machine() == (10**12 if left is None else left)
  monkeypatch.setattr(memory, '_free', lambda: 3)
  assert memory.of_machine() == min(3, 10**12 if left is None else left)


def test_a_key_is_said_in_the_far_text_and_asked_for_after_the_span():
  """On bytes: everything else of the rows stays, and the key's digits are the only targets beside the span."""
  text = np.frombuffer(b'nothing of it stands anywhere near the old river, nor has it ever. ' * 8, np.uint8).astype(np.int32)
  tokenizer = data.make_tokenizer('bytes')
  config = runs.config(train_length=64)
  subject = evaluate.Subject(config, {}, tokenizer, [text], {'targets': len(text)})
  options = evaluate.Options(span=8, spans=6, needle=3)
  spans = evaluate.context.choose(subject, 400, 8, 6)
  needles = planted.Needles.of(subject, options, 6, 8)
  assert needles.tail == len(b'\nThe pass key of the box is ') + 3
  plain, asked = spans.rows(subject, 400, needles.tail), needles.planted(spans.rows(subject, 400, needles.tail), 400)
  for row in range(6):
    said = bytes(np.append(asked.tokens_BT[row, 1:], asked.targets_BT[row, -1]).astype(np.uint8))
    key = said[-3:]
    assert said.endswith(b'\nThe pass key of the box is ' + key)
    at = said.index(b'\nThe pass key of the box is ' + key + b'. Remember it. ' + key)
    assert at + 77 < 400 - 64  # beyond the training length, where a crop does not see it
    scored = asked.targets_BT[row][asked.weight_BT[row] > 0]
    assert scored.tolist() == [*plain.targets_BT[row][plain.weight_BT[row] > 0], *key]
    assert asked.pos_BT[row].tolist() == list(range(400))
  keys = {bytes(x.astype(np.uint8)) for x in asked.targets_BT[:, -3:]}
  assert len(keys) > 1
  found = needles.summary(np.asarray([0.1, 0.1, 0.1, 5.0, 5.0, 5.0]))
  assert (found['found'], found['nats'], found['chance']) == (0.5, pytest.approx(2.55), pytest.approx(3 * np.log(10)))
  with pytest.raises(ConfigError, match=r'needle: its \d+ tokens do not fit the 15 of length 80 that come before the training length'):
    needles.planted(spans.rows(subject, 80, needles.tail), 80)
