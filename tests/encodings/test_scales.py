"""Temperatures: log-n, SSMax, Llama 4's and DroPE's, by their numbers."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny

from pe_jax import attention, encodings, step
from pe_jax.encodings.base import Dims, Where
from pe_jax.errors import ConfigError

DIMS = Dims(num_heads=4, num_kv_heads=2, head_dim=8, embed_dim=32, train_length=16, num_layers=2)


def factors(spec, pos, doc, length=None, params=None):
  """What scores are multiplied with, (H or 1, T)."""
  enc = encodings.make(spec, DIMS)
  where = Where.forward(pos, doc, length=length)
  params = enc.parameters(jax.random.PRNGKey(0)) if params is None else params
  return np.asarray(enc.at_layer(1).scale(enc.tables(params, where), where))[0, :, :, 0]


def test_log_n_counts_the_visible_keys_of_the_rows_own_document():
  pos, doc = tiny.row(4, 20, total=26)
  expected = [math.log(max(n, 1)) / math.log(16) for n in [1, 2, 3, 4, *range(1, 21), 0, 0]]
  np.testing.assert_allclose(factors('log_n', pos, doc)[0], expected, atol=1e-6)
  np.testing.assert_allclose(factors('log_n(floor=1.0)', pos, doc)[0], np.maximum(expected, 1), atol=1e-6)
  # A shift or gaps in positions change no count.
  np.testing.assert_allclose(factors('log_n', 3 * pos + 100, doc)[0], expected, atol=1e-6)


def test_log_n_by_document_uses_the_documents_length_or_the_declared_one():
  pos, doc = tiny.row(4, 20, total=24)
  expected = [math.log(4) / math.log(16)] * 4 + [math.log(20) / math.log(16)] * 20
  np.testing.assert_allclose(factors("log_n(count='document')", pos, doc)[0], expected, atol=1e-6)
  np.testing.assert_allclose(factors("log_n(count='document')", pos, doc, length=64)[0], math.log(64) / math.log(16), atol=1e-6)


def test_ssmax_has_a_strength_a_head_and_layer_and_starts_at_one_at_the_training_length():
  enc = encodings.make('ssmax(rope)', DIMS)
  params = enc.parameters(jax.random.PRNGKey(0))
  assert jax.tree.map(jnp.shape, params) == {'1': {'layer_0': {'strength': (4,)}, 'layer_1': {'strength': (4,)}}}
  pos, doc = tiny.row(16, total=16)
  np.testing.assert_allclose(factors('ssmax(rope)', pos, doc)[:, -1], 1, atol=1e-6)
  params['1']['layer_1']['strength'] = jnp.asarray([1.0, 2.0, 3.0, 4.0])
  np.testing.assert_allclose(factors('ssmax(rope)', pos, doc, params=params)[:, 7], math.log(8) * np.arange(1, 5), rtol=1e-6)


def test_llama4_temperature_rises_in_steps():
  """Default steps of 8192 positions: 1 up to position 8190, then 1 + .1 ln 2."""
  pos = jnp.asarray([[0, 8190, 8191, 16382, 16383, 8192 * 10 - 1]], jnp.int32)
  got = factors('llama4_temperature', pos, jnp.ones_like(pos))[0]
  expected = [1, 1, 1 + 0.1 * math.log(2), 1 + 0.1 * math.log(2), 1 + 0.1 * math.log(3), 1 + 0.1 * math.log(11)]
  np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_a_temperature_multiplies_biases_too_and_is_no_key_scaling():
  """log_n(alibi) with n = L^2 keys doubles scores and slopes: the softmax of 2 (s + b)."""
  pos, doc = tiny.row(3, total=3)
  where = Where.forward(pos, doc, length=256)
  enc = encodings.make("log_n(alibi, count='document')", DIMS)
  tables = enc.tables({}, where)
  layer = enc.at_layer(0)
  zero, v = jnp.zeros((1, 3, 4, 8)), jnp.eye(3, 8)[None, :, None, :] * jnp.ones((1, 1, 2, 1))
  weights = attention.attend(layer, tables, zero, zero[:, :, :2], v, where, 'dense')[0, 2, 0, :3]
  expected = np.exp(2 * -0.25 * np.array([2, 1, 0]))
  np.testing.assert_allclose(weights, expected / expected.sum(), rtol=1e-5)


def test_drope_reads_without_positions_and_scales_beyond_the_training_length():
  pos, doc = tiny.row(8, 64, total=72)
  expected = [1.0] * 8 + [1 + 0.412 * math.log(4)] * 64
  np.testing.assert_allclose(factors('drope(rope)', pos, doc)[0], expected, rtol=1e-6)
  tokens = tiny.tokens(1, 12)
  short = tiny.row(12, total=12)
  a, b = (tiny.forward(spec)(tiny.made(spec)[2], tokens, *short) for spec in ('drope(rope)', 'nope'))
  assert tiny.error(a, b) < 1e-6


def test_drope_trains_with_positions_and_drops_them_for_the_last_steps():
  """The 7th of 8 steps is the last with RoPE: gradients are RoPE's before it and NoPE's after."""
  config = tiny.config().copy_and_resolve_references()
  config.unlock()
  config.num_train_steps, config.accumulate = 8, 2
  config.lock()
  tokens = tiny.tokens(4, 16)
  pos, doc = (jnp.tile(x, (4, 1)) for x in tiny.row(16, total=16))
  batch = {'tokens': tokens, 'targets': tokens, 'weight': jnp.ones((4, 16)), 'pos': pos, 'doc': doc, 'row': jnp.arange(4)}
  tx = optax.sgd(0.1)

  def after(spec, n):
    enc = encodings.make(spec, DIMS)
    state = step.init(config, enc, tx)
    new, metrics = jax.jit(step.make(config, enc, tx))(dataclasses.replace(state, step=jnp.int32(n)), batch)
    return new.params['decoder'], metrics['loss']

  for n, same, other in ((0, 'rope', 'nope'), (6, 'rope', 'nope'), (7, 'nope', 'rope')):
    (got, loss), (expected, expected_loss), (_, other_loss) = after('drope', n), after(same, n), after(other, n)
    assert float(loss) == pytest.approx(float(expected_loss), rel=1e-6)
    assert abs(loss - other_loss) > 1e-3 * loss
    assert jax.tree.all(jax.tree.map(lambda a, b: np.allclose(a, b, atol=1e-7), got, expected))


@pytest.mark.parametrize(
  ('spec', 'message'),
  [
    ("log_n(rope, count='rows')", "count is 'visible' or 'document'"),
    ('llama4_temperature(floor_scale=0)', 'floor_scale=0 must be at least 1'),
    ('drope(last=1.0)', 'last=1.0 must be between 0 and 1'),
    ('drope(c=-1.0)', 'c=-1.0 must be at least 0'),
    ('drope(sinusoidal)', "'sinusoidal' cannot stand inside drope"),
    ('log_n(randomized(rope))', r'cannot stand inside log_n\(…\): it draws the positions'),
  ],
)
def test_settings_that_cannot_work_are_refused(spec, message):
  with pytest.raises(ConfigError, match=message):
    encodings.make(spec, DIMS)
