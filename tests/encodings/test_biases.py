"""FIRE, Sandwich, xPos and stick-breaking against numbers worked by hand from their papers' formulas and against slow loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from pe_jax import attention, encodings
from pe_jax.encodings import fire, sandwich, sinusoidal, stick_breaking, xpos
from pe_jax.encodings.base import Dims, Where
from pe_jax.errors import ConfigError


def test_fires_argument_by_hand():
  # c = .1, threshold 10: ln(1.5) / ln(3) at query 20; the threshold stands in for query 4: ln(1.5) / ln(2).
  c, threshold = jnp.float32(0.1), jnp.float32(10)
  x = fire.psi(c, jnp.asarray([5, 5, 0, -3])) / fire.span(c, threshold, jnp.asarray([20, 4, 20, 20]))
  np.testing.assert_allclose(x, [0.369070, 0.584963, 0, 0], atol=2e-6)


def test_fires_argument_stays_within_one_at_any_length():
  i = jnp.asarray([1, 100, 10_000, 1_000_000])
  x = fire.psi(jnp.float32(0.1), i) / fire.span(jnp.float32(0.1), jnp.float32(512), i)
  assert (np.asarray(x) <= 1).all()
  assert float(x[-1]) > 0.999


def test_fires_network_equals_a_matrix_product():
  enc = encodings.make('fire', Dims(4, 4, 8, 32, 16))
  params = jax.tree.map(lambda x: x + 0.1, enc.parameters(jax.random.PRNGKey(0)))
  x = np.random.default_rng(0).uniform(size=(2, 3, 5)).astype(np.float32)
  hidden = np.maximum(x[..., None] * np.asarray(params['w1']) + np.asarray(params['b1']), 0)
  expected = np.moveaxis(hidden @ np.asarray(params['w2']), -1, 1)
  np.testing.assert_allclose(fire.network(params, jnp.asarray(x)), expected, atol=1e-5)


def test_sandwich_by_hand_and_as_an_inner_product_of_sinusoidal_rows():
  # width 4, distance 1: cos 1 + cos .01 - 2 = -.459748; over 8 h / H = 4 and 8 for two heads.
  np.testing.assert_allclose(sandwich.bias(2, jnp.asarray([1]), width=4), [[-0.114937], [-0.057468]], atol=1e-6)
  rows = np.asarray(sinusoidal.table(jnp.arange(300), 128), np.float64)
  np.testing.assert_allclose(sandwich.bias(1, jnp.arange(300))[0], (rows @ rows[0] - 64) / 8, atol=2e-5)


def test_the_score_of_a_pair_under_xpos_carries_zeta_to_the_distance_over_512():
  # d = 2: zeta_0 = .8 / 2.8 = .285714; positions 612 and 100.
  enc = encodings.make('xpos', Dims(1, 1, 2, 2, 16))
  for shift in (0, 3000):
    pos = jnp.asarray([[100, 612]]) + shift
    tables = enc.tables({}, Where.forward(pos, jnp.ones_like(pos), contiguous=False))
    one = jnp.asarray([1.0, 0.0])[None, None, None].repeat(2, axis=1)
    q, k = enc.rotate(tables, one, one)
    score = jnp.einsum('btgd,bsgd->ts', q, k)
    assert float(score[1, 0]) == pytest.approx(np.cos(512.0) * 0.285714, abs=1e-5)
    assert float(score[0, 0]) == pytest.approx(1, abs=1e-6)


def test_the_decay_of_xpos_by_hand():
  np.testing.assert_allclose(xpos.decay(4), [1.6 / 5.6, 3.6 / 5.6])


def test_stick_breaking_by_hand():
  # Scores 0 break halves: .5, .25, .125 from the nearest key back. sigma(ln 3) = .75 of the half that the nearer one left.
  visible = jnp.ones((1, 1, 1, 3), bool)
  np.testing.assert_allclose(stick_breaking.weights(jnp.zeros((1, 1, 1, 3)), visible).ravel(), [0.125, 0.25, 0.5], atol=1e-6)
  s = jnp.log(jnp.asarray([[[[3.0, 1.0]]]]))
  np.testing.assert_allclose(stick_breaking.weights(s, visible[..., :2]).ravel(), [0.375, 0.5], atol=1e-6)


def test_stick_breaking_attention_equals_a_float64_loop():
  rng = np.random.default_rng(0)
  q, k, v = (rng.normal(size=(1, 9, 1, 4)) for _ in range(3))
  pos, doc = tiny.row(5, 4, total=9)
  enc = encodings.make('stick_breaking', Dims(1, 1, 4, 4, 16))
  out = attention.attend(enc, None, *(jnp.asarray(x, jnp.float32) for x in (q, k, v)), Where.forward(pos, doc))
  expected = np.zeros((9, 4))
  for i in range(9):
    left = 1.0
    for j in range(i - 1, -1, -1):
      if doc[0, j] == doc[0, i]:
        share = 1 / (1 + np.exp(-(q[0, i, 0] @ k[0, j, 0]) / 2))
        expected[i] += left * share * v[0, j, 0]
        left *= 1 - share
  np.testing.assert_allclose(out[0, :, 0], expected, atol=1e-5)
  assert np.array_equal(out[0, 0], np.zeros((1, 4)))


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('fire(hidden=0)', 'at least 1 hidden unit'),
    ('fire(c=-1)', 'c and threshold above 0'),
    ('sandwich(width=7)', 'an even width, not 7'),
    ('xpos(scale_base=0)', 'must be above 0'),
    ("xpos(layout='neox')", "'half' or 'interleaved'"),
  ],
)
def test_a_wrong_setting_gets_a_sentence(text, message):
  with pytest.raises(ConfigError, match=message):
    encodings.make(text, Dims(4, 4, 8, 32, 16))
