"""The findings' arithmetic on made-up rows, whose values can be told beforehand, and their page."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest
import tiny_runs
from studies import algorithms, dispersion, habits, language, page
from studies.finding import Finding

import pe_jax
from pe_jax import launch
from pe_jax.errors import UserError

SEEDS = [1, 2]


@pytest.mark.parametrize(
  ('values', 'threshold', 'at_least', 'verdict'),
  [
    ((1.0, 1.2), 1.0, True, 'robust'),
    ((1.0, 0.2), 1.0, True, 'direction only'),
    ((1.0, -0.2), 1.0, True, 'not seen'),
    ((0.02, -0.01), 0.03, False, 'robust'),
    ((0.02, 0.04), 0.03, False, 'not seen'),
    ((0.0, 0.0), 0.0, False, 'robust'),
    ((5.0,), None, True, 'report only'),
  ],
)
def test_a_verdict_needs_every_seed(values, threshold, at_least, verdict):
  assert Finding('B', 'claim', 'nats', values, threshold, at_least).verdict == verdict


def made_up():
  """Rows in which the loss is .1 x (number of the arm) + .01 x (number of the encoding) + n / 1000 x (number of the seed)."""
  found = {}
  arms = [*language.ARMS, *(f'tuned {name}' for name in language.TUNED)]
  for (number, arm), seed in itertools.product(enumerate(arms), SEEDS):
    count = {'rope': len(language.MAPS), 'learned': 2}.get(arm, 1)
    found[arm, seed] = [
      {
        'protocol': protocol,
        'asked_encoding': f'e{e}',
        'length': n,
        'nll': 0.1 * number + 0.01 * e + n / 1000 * seed,
        'accounting': {'in_range': 1.5, 'actual': 1.4, 'predicted': 1.42, 'residual': -0.02},
        'by_unit': {'nll': [1.0 * n, 2.0 * n], 'targets': [32, 64]},
      }
      for protocol in language.PROTOCOLS.get(arm, ['context'])
      for e in range(count)
      for n in language.LENGTHS
    ]
  for (number, name), seed in itertools.product(enumerate(language.TUNED), SEEDS):
    found[f'tuned {name} at {language.EARLY}', seed] = 2.0 + 0.1 * number * seed
  return found


def test_findings_are_differences_of_the_rows_they_speak_of():
  by_claim = {f.claim: f for f in language.findings(made_up(), SEEDS)}
  assert by_claim['sinusoidal: D(2L)'].values == pytest.approx((0.064, 0.128))
  assert by_claim['RoPE: D(4L)'].values == pytest.approx((0.192, 0.384))
  assert by_claim['PI within L costs'].values == pytest.approx((0.01, 0.01))
  assert by_claim['YaRN (rotations, beta 4) at 4L is better than raw by'].values == pytest.approx((-0.06, -0.06))
  assert by_claim['ALiBi gains from L to 4L in non-overlapping windows'].values == pytest.approx((0.1, 0.1))
  assert by_claim['PI within L costs more than YaRN (rotations, beta 4) by'].values == pytest.approx((-0.05, -0.05))
  assert by_claim['predicted ÷ actual gain: what needs no far text'].values == pytest.approx((0.8, 0.8))
  assert by_claim['after 20 of these steps: validation loss with PI less that with YaRN'].values == pytest.approx((0.1, 0.2))
  assert by_claim['alibi: reliable length, all seeds together'].values == (1.0,)  # nothing beyond L passes
  (p,) = by_claim['ALiBi: D(4L) lies within 0.05 nats of 0, p'].values
  assert p > 0.5  # .19 and .38
  tuned = next(f for claim, f in by_claim.items() if claim.startswith(f'{language.TUNE_STEPS} steps at 4L with YaRN: loss at 4L'))
  assert tuned.values == pytest.approx([0.1 * (len(language.ARMS) - 2) + (256 - 64) / 1000 * seed for seed in SEEDS])


def test_every_spec_that_is_trained_or_read_can_be_made():
  from pe_jax import encodings
  from pe_jax.encodings.base import Dims

  dims = Dims(4, 4, 16, 64, language.L, 2)
  specs = [
    *language.ARMS.values(),
    *language.MAPS.values(),
    *language.TUNED.values(),
    *algorithms.COPY.values(),
    *algorithms.NEEDLE.values(),
    *algorithms.SORT.values(),
  ]
  for spec in specs:
    encodings.make(encodings.at_length(encodings.parse(spec), 4 * language.L, language.L), dims)


def test_jobs_are_started_as_train_py_wants_them(tmp_path):
  jobs = [
    *language.jobs(tmp_path, SEEDS, 5, 3),
    *language.tuning_jobs(tmp_path, SEEDS, 5),
    *algorithms.jobs(tmp_path, SEEDS, dict.fromkeys(algorithms.TASKS, 5)),
  ]
  assert (
    len({job.workdir for job in jobs}) == len(jobs) == 2 * (len(language.ARMS) + len(language.FEW) + len(language.TUNED) + 3 + 3 + 5 + 1)
  )
  command = language.tuning_jobs(tmp_path, SEEDS, 5)[0].command()
  assert f'--config.init_from={tmp_path}/rope-1' in command
  assert f'--config.encoding={language.TUNED["YaRN"]}' in command


def test_slopes_are_of_layers_and_heads_in_the_longest_row():
  heads = [{'layer': n, 'head': h, 'slope': 10 * n + h} for h in range(3) for n in range(2)]
  rows = [{'length': 128, 'heads': heads}, {'length': 64, 'heads': []}]
  assert dispersion.slopes(rows).tolist() == [[0, 1, 2], [10, 11, 12]]
  found = {(arm, seed): dispersion.slopes(rows) / (1 + (arm == 'alibi')) * seed for arm in dispersion.READ for seed in SEEDS}
  by_claim = {f.claim: f for f in dispersion.findings(found, SEEDS)}
  assert by_claim['RoPE’s slope less ALiBi’s'].values == pytest.approx((3.0, 6.0))  # half of the mean, 6
  assert by_claim['slope of ALiBi’s steepest head, the largest of the layers'].values == pytest.approx((5.0, 10.0))


def test_distance_explains_all_of_a_score_that_depends_on_it_alone_and_nothing_of_noise():
  i_T = np.arange(64)
  of_distance_TS, noise_TS = np.sin(i_T[:, None] - i_T), np.random.default_rng(0).normal(size=(64, 64))
  assert habits.by_distance(np.stack([of_distance_TS] * 2)) == pytest.approx(1)
  assert habits.by_distance(np.stack([of_distance_TS, noise_TS])) == pytest.approx(0.5, abs=0.03)  # 64 means of 2080 numbers: 3 % by chance


def test_a_share_of_attention_is_of_the_keys_that_were_picked():
  run = pe_jax.load(tiny_runs.trained(encoding='nope'))
  zero = jax.tree.map(np.zeros_like, run.params)  # all keys alike
  one_back_TS = np.eye(4, 16, 16 - 4 - 1, dtype=bool)
  found_NH = habits.shares(run, run.encoding(), zero, 16, one_back_TS)
  np.testing.assert_allclose(found_NH, np.mean([1 / n for n in range(13, 17)]), rtol=1e-5)


def test_the_page_has_every_claim_and_its_verdict(tmp_path):
  found = made_up()
  groups = {'Language models': language.findings(found, SEEDS)}
  curves = (*language.curves(found, SEEDS), language.LENGTHS)
  page.write(tmp_path / 'findings.md', ['A line.'], 'A day.', groups, language.lengths(found, SEEDS), curves)
  text = (tmp_path / 'findings.md').read_text()
  assert (tmp_path / 'findings.png').stat().st_size > 10_000
  for finding in groups['Language models']:
    assert f'| {finding.claim} |' in text
  assert text.count('\nA day.\n') == 2
  assert text.count('| robust |') == sum(f.verdict == 'robust' for f in groups['Language models'])
  assert 'one-sided 95% bounds over 2 runs and 2 documents or spans' in text


def test_a_run_that_fails_ends_the_others_with_its_name(tmp_path):
  job = launch.Job(tmp_path / 'bad', f'{launch.ROOT}/configs/quickstart.py:rope,steps=5', 5, {'model.num_heads': 5})
  with pytest.raises(UserError, match=r'training bad: model.num_heads: 5 heads'):
    launch.train([job], 'bad')
  assert 'num_heads' in (tmp_path / 'bad' / 'log.txt').read_text()
  assert dataclasses.replace(job, fields={}).command()[-1] == f'--workdir={tmp_path}/bad'
