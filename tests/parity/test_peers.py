"""pe_jax computes what public implementations compute. Their values are stored in peers.json, which peers.py makes."""

import numpy as np
import ours
import pytest

TYPES = sorted({row['map'] for row in ours.PEERS['maps']})


def test_every_rope_type_of_hugging_face_is_compared_in_two_hundred_settings_in_all():
  assert set(TYPES) == {'default', *ours.PEERS['rope_types']}
  assert len(ours.PEERS['maps']) >= 200


@pytest.mark.parametrize('rope_type', TYPES)
def test_frequencies_equal_those_of_hugging_face_in_double(rope_type):
  for row in ours.rows(rope_type):
    frequency_F, _ = ours.mapped(rope_type, row['settings'])
    assert ours.relative(frequency_F, row['frequency_in_double']) < 1e-9, row['settings']


@pytest.mark.parametrize('rope_type', TYPES)
def test_attention_factors_equal_those_of_hugging_face(rope_type):
  for row in ours.rows(rope_type):
    _, attention_factor = ours.mapped(rope_type, row['settings'])
    assert attention_factor == pytest.approx(row['attention_factor'], rel=1e-12)


def test_frequencies_equal_those_of_hugging_face_in_its_float32_where_that_can_tell():
  # YaRN without truncation has pairs just below the ramp's end, where a float32 1 - ramp keeps few digits and is not divided by s.
  apart = []
  for row in ours.PEERS['maps']:
    difference = ours.relative(ours.mapped(row['map'], row['settings'])[0], row['frequency'])
    if difference >= 1e-6:
      apart.append((row['map'], row['settings'].get('truncate'), difference < 1e-5))
  assert apart == [('yarn', False, True)] * 3


def test_alibi_slopes_equal_those_of_mpt_bit_for_bit():
  for slope_H, theirs_H in ours.slopes('mpt'):
    assert np.array_equal(slope_H, theirs_H)


def test_alibi_slopes_equal_those_of_bloom_as_far_as_powers_of_a_float32_go():
  # Bloom raises a rounded 2^(-8/H) to powers up to H, so that its error grows with the power.
  for slope_H, theirs_H in ours.slopes('bloom'):
    assert ours.relative(slope_H, theirs_H) <= (len(slope_H) + 1) * 2.0**-24


@pytest.mark.parametrize('row', ours.PEERS['t5'], ids=lambda row: f'{row["peer"]}-{row["num_buckets"]}-{row["max_distance"]}')
def test_t5_buckets_equal_the_peers_at_every_distance_to_a_hundred_thousand(row):
  assert np.array_equal(*ours.buckets(row))


@pytest.mark.parametrize('name', ours.WITNESSES)
def test_an_encoding_gives_what_a_peers_module_gives(name):
  for mine, theirs in ours.witness(name):
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)
