"""What scripts/diagnose.py says: each known fault, planted in the library, is named, and none on healthy models of tier 1."""

import dataclasses
import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_runs as runs

from pe_jax import cache, decode, diagnose, encodings, model, prompts, resolve
from pe_jax.data import tokenizer
from pe_jax.diagnose import finding, length_or_attention, limits, mask, mechanism, positions
from pe_jax.encodings import phases, rope
from pe_jax.encodings.base import Traits, Where
from pe_jax.errors import ConfigError, DataError
from pe_jax.report import diagnosis as report
from pe_jax.run import Run

pytestmark = pytest.mark.xdist_group('diagnose')
SCRIPT = 'scripts/diagnose.py'
LENGTH = 32  # twice that of training: few programs to compile
HEALTHY = (
  'nope', 'sinusoidal', 'learned', 'rope', 'linear(factor=4)', 'ntk(factor=4)', 'dynamic_ntk(factor=2)', 'yarn(factor=4)',
  'llama3(factor=4)', 'dynamic_yarn', 'ntk_by_parts(factor=4)', 'p_rope', 'abf',
  'longrope(factor=2, short_factor=(1, 1, 1, 1), long_factor=(1, 1.5, 2, 3))', 'alibi', 't5(num_buckets=8, max_distance=12)',
)  # fmt: skip


@pytest.fixture(autouse=True, scope='module')
def quick():
  with runs.quick_compiles():
    yield


@pytest.fixture
def planted(monkeypatch):
  """Patches what a fault is planted in; nothing that was compiled before or with it is used on the other side."""
  jax.clear_caches()
  yield monkeypatch
  jax.clear_caches()


def drawn(shapes):
  """Parameters with weights large enough that positions matter."""
  rng = np.random.default_rng(0)

  def draw(path, x):
    if x.ndim > 1:
      return jnp.asarray(2 * rng.normal(size=x.shape) / x.shape[-1 if 'embed' in str(path) else 0] ** 0.5, jnp.float32)
    return jnp.asarray(('scale' in str(path[-1])) + 0.1 * rng.normal(size=x.shape), jnp.float32)

  return jax.tree_util.tree_map_with_path(draw, shapes)


def case(spec, length=LENGTH, read=None, change=None, **more):
  """A Case of a small model with parameters that `change` is applied to."""
  config = resolve.resolve(runs.config(encoding=spec, **more))
  enc = encodings.make(config.encoding, model.dims(config))
  params = drawn(jax.eval_shape(lambda key: model.init(config, enc, key), jax.random.PRNGKey(0)))
  run = Run('nowhere', config, change(params) if change else params, 0)
  return diagnose.of_run(run, length, read, max_targets=1500)


def faults(found):
  return [(f.check, f.cause, f.evidence) for f in found.findings if f.verdict == 'fault']


def no_losses(case):
  raise DataError('not here')


@pytest.mark.parametrize('spec', HEALTHY)
def test_a_healthy_model_has_no_fault(spec, monkeypatch):
  if spec != 'rope':  # most of the time, and no fault is told by losses
    monkeypatch.setattr(mechanism.Curve, 'measured', no_losses)
  found = diagnose.diagnose(case(spec, 16 if spec == 'learned' else LENGTH))
  assert faults(found) == []
  assert found.cause == ('untrained' if spec == 'rope' else 'healthy')  # the parameters are drawn, and one loss is looked at
  assert {f.step for f in found.findings} == {1, 2, 3, 4, 5}


def removed_mask(patch):
  def visible(self):
    return (self.qdoc_BT[:, :, None] == self.kdoc_BS[:, None, :]) & (self.kdoc_BS[:, None, :] > 0)

  patch.setattr(Where, 'visible_BTS', visible)


def removed_segments(patch):
  patch.setattr(Where, 'visible_BTS', lambda self: (self.distance_BTS() >= 0) & (self.kdoc_BS[:, None, :] > 0))


def restarted_positions(patch):
  plain = decode._next

  def restarted(config, enc, params, cache, token_B, index_B, position_BL):
    return plain(config, enc, params, cache, token_B, index_B, jnp.zeros_like(position_BL))

  patch.setattr(decode, '_next', restarted)


def counted_padding(patch):
  """The other convention: a token stands where its slot is, padding included."""
  plain = cache.extend

  def counted(kept, pos_BT, doc_BT):
    return plain(kept, jnp.broadcast_to(kept.used + jnp.arange(pos_BT.shape[1], dtype=jnp.int32)[None], pos_BT.shape), doc_BT)

  patch.setattr(cache, 'extend', counted)


def padding_on_the_right(patch):
  patch.setattr(prompts, '_left_padded', lambda tokens_BT, real_BT: (np.where(real_BT, tokens_BT, 0), real_BT.sum(axis=1)))


def rotated_cache(patch):
  patch.setattr(rope, 'Traits', lambda **given: Traits(**given | {'cache': 'rotated'}))


def rotated_cache_of_growing_texts(patch):
  """As where each step turns by the length so far: earlier keys keep an older base."""
  rotated_cache(patch)
  plain = cache.extend

  def grown(kept, pos_BT, doc_BT):
    return plain(dataclasses.replace(kept, length_B=jnp.max(pos_BT, axis=1) + 1), pos_BT, doc_BT)

  patch.setattr(cache, 'extend', grown)


def bfloat16_phases(patch):
  plain = phases.cos_sin_of_words
  patch.setattr(phases, 'cos_sin_of_words', lambda *words: tuple(x.astype(jnp.bfloat16) for x in plain(*words)))


def truncating_tokenizer(patch):
  plain = tokenizer._bytes()
  patch.setattr(tokenizer, '_bytes', lambda: dataclasses.replace(plain, encode=lambda text: plain.encode(text)[:20]))


FAULTS = (
  (removed_mask, 'mask', 'rope'),
  (removed_segments, 'documents', 'rope'),
  (restarted_positions, 'decode positions', 'rope'),
  (counted_padding, 'padding', 'sinusoidal'),
  (padding_on_the_right, 'padding', 'rope'),
  (rotated_cache_of_growing_texts, 'rotated cache', 'dynamic_ntk(factor=2)'),
  (bfloat16_phases, 'phases', 'rope'),
  (truncating_tokenizer, 'tokenizer cut', 'rope'),
)


@pytest.mark.parametrize(('fault', 'cause', 'spec'), FAULTS)
def test_a_planted_fault_is_the_first_that_is_found(planted, fault, cause, spec):
  """The rest is not asked for: a fault shows in later steps too."""
  fault(planted)
  first = next((f for f in diagnose.findings(case(spec)) if f.verdict == 'fault'), None)
  assert first is not None
  assert first.cause == cause, first


def test_phases_of_a_table_are_told_by_its_rows(planted):
  assert [f.verdict for f in mechanism.phases(case('sinusoidal'))] == ['ok']
  bfloat16_phases(planted)
  assert [f.cause for f in mechanism.phases(case('sinusoidal'))] == ['phases']


def test_a_cache_that_keeps_what_a_map_of_lengths_has_turned_is_at_fault_before_it_shows(planted):
  rotated_cache(planted)
  assert positions.kept(case('dynamic_ntk(factor=2)')).cause == 'rotated cache'
  assert positions.kept(case('yarn(factor=2)')).verdict == 'ok'


def extended(params):
  """Rows of the trained table with fresh ones behind them, as init_resize='extend' gives."""
  table = params['encoding']['table']
  fresh = 0.1 * np.random.default_rng(1).normal(size=(LENGTH - len(table), table.shape[1]))
  return params | {'encoding': {'table': jnp.concatenate([table, jnp.asarray(fresh, jnp.float32)])}}


def test_rows_that_a_table_was_extended_by_are_named(monkeypatch):
  monkeypatch.setattr(mechanism.Curve, 'measured', no_losses)
  longer = f'learned(max_length={LENGTH})'
  found = diagnose.diagnose(case('learned', read=longer, change=extended))
  assert found.cause == 'untrained parameters', faults(found)
  assert '16 of 32 rows of table are read at 32 tokens and by no training row of 16' in found.sentence
  assert [f.verdict for f in mechanism.never_read(case('learned', 16, read=longer, change=extended))] == ['ok']


@pytest.mark.parametrize(
  ('spec', 'read', 'says'),
  [
    ('learned', "learned(overflow='random')", '16 positions from 16 on have rows that are made of no trained parameter'),
    ('t5', None, '6 of 32 rows of table are read at 32 tokens and by no training row of 16'),
  ],
)
def test_rows_that_are_drawn_and_buckets_that_training_never_had_are_named(spec, read, says):
  (found,) = mechanism.never_read(case(spec, read=read))
  assert (found.cause, says in found.evidence) == ('untrained parameters', True), found


def test_a_table_that_ends_is_a_hard_limit_and_the_rest_is_looked_at_as_far_as_it_goes(monkeypatch):
  monkeypatch.setattr(mechanism.Curve, 'measured', no_losses)
  found = diagnose.diagnose(case('learned'))
  assert (found.cause, [c for _, c, _ in faults(found)]) == ('hard limit', ['hard limit'])
  assert "32 tokens are asked for, 2 x the 16 of training; 'learned' has 16 positions" in found.sentence


def test_a_model_without_a_mask_is_named_and_nothing_is_decoded():
  one = case('nope', model__causal=False)
  assert [f.cause for f in mask.findings(one)] == ['mask', 'mask', '']
  assert any('nothing is decoded' in f.evidence for f in limits.findings(one))
  assert length_or_attention.run(one) == []


def test_a_shift_that_a_relative_encoding_does_not_see_is_no_fault(planted):
  counted_padding(planted)
  found = {f.check: f.verdict for f in positions.findings(case('rope'))}
  assert (found['prompts in the cache'], 'fault' in found.values()) == ('note', False)


def test_a_loss_that_training_did_not_have_is_the_checkpoint():
  one = case('nope')
  (found,) = mechanism.validation(dataclasses.replace(one, recorded=0.0))
  now = float(found.evidence.split()[0])
  causes = [f.cause for x in (now, now - 0.1) for f in mechanism.validation(dataclasses.replace(one, recorded=x))]
  assert (found.cause, mechanism.validation(one), causes) == ('checkpoint', [], ['', 'checkpoint'])


def test_a_model_that_guesses_is_to_be_trained_first():
  one, curve = case('nope'), mechanism.Curve(2.6, {}, None, None, None, 16)
  assert mechanism.inside(one, curve).verdict == 'ok'
  assert mechanism.inside(one, dataclasses.replace(curve, inside=5.5)).remedy.startswith('train it first')


@pytest.mark.parametrize(
  ('past', 'degrades', 'shape'),
  [((1.0, 1.1, 1.2), True, 'cliff'), ((0.1, 0.6, 1.2), True, 'slope'), ((0.0, 0.01, 0.04), False, 'slope'), ((), False, None)],
)
def test_a_loss_that_is_lost_at_once_is_a_cliff(past, degrades, shape):
  curve = mechanism.Curve(2.0, {n: {'mean': d} for n, d in zip((20, 32, 64), past)}, None, None, None, 16)
  assert curve.degrades is degrades
  assert shape is None or curve.shape == shape


def test_states_that_are_no_numbers_are_named_before_the_mask():
  def broken(params):
    return jax.tree_util.tree_map_with_path(lambda path, x: x.at[0].set(jnp.nan) if "'out'" in str(path) else x, params)

  found = diagnose.diagnose(case('rope', change=broken))
  assert found.cause == 'not finite'
  assert 'of the 32 tokens of a text have states that are not finite, the first is token 0' in found.sentence


def test_an_id_that_the_embedding_has_no_row_for_is_the_vocabulary():
  one = case('nope')
  subject = dataclasses.replace(one.subject, documents=[np.where(np.arange(len(d)) % 9, d, 900) for d in one.subject.documents])
  other = dataclasses.replace(one, subject=subject, made={})
  assert [limits.vocabulary(other).cause, limits.numbers(other).cause] == ['hard limit', 'not finite']
  assert [f.__name__ for f in (limits.vocabulary, limits.numbers)] == [f.check for f in limits.findings(one)][2:4]


def a_finding(verdict, check='x', cause='', evidence='seen', remedy=''):
  return finding.Finding(4, check, verdict, evidence, cause, remedy)


def test_the_first_fault_is_the_cause_and_without_one_the_loss_decides():
  ok, note = a_finding('ok'), a_finding('note')
  mask, rows = a_finding('fault', cause='mask', remedy='hide it'), a_finding('fault', cause='rows')
  assert diagnose.likely([ok, mask, rows])[::2] == ('mask', 'hide it')
  assert diagnose.likely([ok, note])[0] == 'healthy'
  assert diagnose.likely([ok, a_finding('ok', 'losses beyond')])[0] == 'healthy'
  guesses = a_finding('note', 'loss inside', '', '5.6 nats', 'train it first')
  assert diagnose.likely([guesses, a_finding('ok', 'losses beyond')])[::2] == ('untrained', 'train it first')
  assert diagnose.likely([guesses, mask])[0] == 'mask'
  cause, sentence, remedy = diagnose.likely([a_finding('note', 'losses beyond', '', '+2 at 64: a cliff', 'look at the table')])
  assert (cause, 'a cliff' in sentence, remedy.startswith('look at the table; train at this length')) == ('extrapolation', True, True)
  with pytest.raises(ValueError, match='a fault, and nothing else, has a cause'):
    a_finding('ok', cause='mask')


# (arguments, exit code, what is said)
MISTAKES = [
  ([], 2, '--workdir: missing'),
  (['--workdir={rope}'], 2, '--length: missing'),
  (['--workdir={rope}', '--length=1e3'], 2, "--length: '1e3' is not a whole number"),
  (['--workdir={rope}', '--length=15'], 2, 'length: 15 tokens are too few to tell anything (ask for 16 at least)'),
  (['--workdir={rope}', '--length=64', '--encoding=roep'], 2, "'roep' is unknown (did you mean 'rope'?)"),
  (['--workdir={rope}', '--length=64', '--encoding=t5'], 2, 'the checkpoint does not have it'),
  (['--workdir=/nosuch', '--length=64'], 3, 'no config.json there'),
]


def test_a_mistake_is_one_line_and_a_diagnosis_is_text_and_strict_json():
  rope = runs.trained('rope')
  cases = [{'argv': [SCRIPT, *(a.format(rope=rope) for a in arguments)]} for arguments, _, _ in MISTAKES]
  right = [SCRIPT, f'--workdir={rope}', '--length=32', '--max_targets=1500', '--json']
  *wrong, (code, out, err, _) = runs.served([*cases, {'argv': right, 'env': {'XLA_FLAGS': '--xla_backend_optimization_level=0'}}])
  for (arguments, wanted, says), (got, printed, error, _) in zip(MISTAKES, wrong, strict=True):
    one_line = (error.count('\n'), error.startswith('ERROR: '))
    assert (got, printed, says in error, *one_line) == (wanted, '', True, 1, True), (arguments, error)
  assert code == 0, err
  found = json.loads(out, parse_constant=lambda name: pytest.fail(f'{name} is no JSON'))
  assert (found['encoding'], found['train_length'], found['length']) == ('rope', 16, 32)
  assert [f for f in found['findings'] if f['verdict'] == 'fault'] == []
  assert 'which wrote' in out
  findings = tuple(finding.Finding(**f) for f in found.pop('findings'))
  text = report.text(diagnose.Diagnosis(findings=findings, **found))
  assert text.startswith('rope, trained at 16 tokens, read at 32\n\n1. hard limits\n  ok    tokenizer: ')
  assert '\nMost likely: ' in text


def test_a_run_on_a_task_is_sent_elsewhere():
  config = runs.config(data__source='task', data__name='copy')
  with pytest.raises(ConfigError, match='workdir: trained on the task copy, and a diagnosis reads text'):
    diagnose.of_run(Run('nowhere', config, {}, 0), LENGTH)


def test_help_and_a_misspelt_name_are_answered_without_jax():
  program = 'import runpy, sys\ntry:\n  runpy.run_path(sys.argv[0], run_name="__main__")\nfinally:\n  print("jax" in sys.modules)'
  for arguments in (['--help'], ['--workdir=x', '--length=64', '--encoding=roep']):
    command = [sys.executable, '-c', f'import sys; sys.argv = {[SCRIPT, *arguments]!r}\n{program}']
    done = subprocess.run(command, env=runs.environment(), cwd=runs.ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (2 if len(arguments) > 1 else 0, 'False'), done.stderr
