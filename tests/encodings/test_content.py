"""Encodings that look at content, against float64 loops straight from their formulas, and against what they become in a limit."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from pe_jax import attention, encodings
from pe_jax.encodings import cope, dape, fox
from pe_jax.encodings.base import Dims, Where

DIMS = Dims(num_heads=4, num_kv_heads=2, head_dim=6, embed_dim=10, train_length=16, num_layers=2)
LENGTH = 9


def case(spec, seed=0):
  """(output of layer 1 as (T, H, K), q, k, v, x, params of layer 1 in float64) for one document at positions 0 .. 8."""
  rng = np.random.default_rng(seed)
  q, k, v = (jnp.asarray(rng.normal(size=(1, LENGTH, heads, 6)), jnp.float32) for heads in (4, 2, 2))
  x = jnp.asarray(rng.normal(size=(1, LENGTH, 10)), jnp.float32)
  whole = encodings.make(spec, DIMS)
  params = jax.tree.map(lambda p: p + jnp.asarray(0.5 * rng.normal(size=p.shape), jnp.float32), whole.parameters(jax.random.PRNGKey(0)))
  where = Where.forward(*tiny.row(LENGTH, total=LENGTH))
  enc, tables = whole.at_layer(1), whole.tables(params, where)
  where = dataclasses.replace(where, side=enc.token(tables, x) if enc.token else None)
  turned = enc.rotate(tables, q, k) if enc.rotate else (q, k)
  out = attention.attend(enc, tables, *turned, v, where, 'dense')
  own = jax.tree.map(lambda p: np.asarray(p, np.float64), params.get('layer_1', params))
  return np.asarray(out[0]), *(np.asarray(a[0], np.float64) for a in (q, k, v, x)), own


def attended(score, v, sink=None):
  """Softmax over j <= i of score(h, i, j), one query at a time."""
  out = np.zeros((LENGTH, 4, 6))
  for i, h in np.ndindex(LENGTH, 4):
    s = np.array([score(h, i, j) for j in range(i + 1)])
    weight = np.exp(s)
    total = weight.sum() + (np.exp(sink[h]) if sink is not None else 0.0)
    out[i, h] = (weight / total) @ v[: i + 1, h // 2]
  return out


def dot(q, k, h, i, j):
  return q[i, h] @ k[j, h // 2] / np.sqrt(6)


def sigma(z):
  return 1 / (1 + np.exp(-z))


@pytest.mark.parametrize('devices', [1, 8])
def test_cope_equals_a_loop(devices, monkeypatch):
  """One device and several look into the products in forms of their own."""
  monkeypatch.setattr(jax, 'device_count', lambda: devices)
  out, q, k, v, _, p = case('cope(npos_max=4)')
  table = p['table']

  def score(h, i, j):
    count = min(sum(sigma(dot(q, k, h, i, m)) for m in range(j, i + 1)), 3)
    low = int(np.floor(count))
    share = count - low
    return dot(q, k, h, i, j) + q[i, h] @ ((1 - share) * table[low] + share * table[min(low + 1, 3)])

  np.testing.assert_allclose(out, attended(score, v), atol=1e-5)


def test_looking_into_products_has_one_value_and_gradient_in_both_forms(monkeypatch):
  rng = np.random.default_rng(0)
  rows, weight = (jnp.asarray(rng.normal(size=(2, 3, 4, n)), jnp.float32) for n in (7, 9))
  index = jnp.asarray(rng.integers(0, 7, (2, 3, 4, 9)), jnp.int32)
  expected = np.zeros((2, 3, 4, 7))
  np.add.at(expected, (*np.indices(index.shape)[:3], np.asarray(index)), np.asarray(weight, np.float64))
  for devices in (1, 8):
    monkeypatch.setattr(jax, 'device_count', lambda devices=devices: devices)
    got, pull = jax.vjp(lambda rows: cope.found(rows, index), rows)
    np.testing.assert_array_equal(got, np.take_along_axis(np.asarray(rows), np.asarray(index), axis=-1))
    np.testing.assert_allclose(pull(weight)[0], expected, atol=1e-6)


@pytest.mark.parametrize('size', [1, 31, 32, 33, 100])
def test_copes_running_sums_are_those_of_float64(size):
  x = np.random.default_rng(0).uniform(size=(1, 2, 3, size))
  expected = np.cumsum(x[..., ::-1], axis=-1)[..., ::-1]
  np.testing.assert_allclose(cope.sums_from(jnp.asarray(x, jnp.float32)), expected, rtol=1e-6)


def test_cope_with_open_gates_counts_tokens():
  """Scores of +inf open every gate: the count of key j is i - j + 1, and the caps hold."""
  s = jnp.full((1, 1, 5, 5), 1e4)
  visible = jnp.tril(jnp.ones((5, 5), bool))[None, None]
  expected = np.maximum(np.arange(5)[:, None] - np.arange(5) + 1, 0)
  np.testing.assert_array_equal(np.asarray(cope.counts(s, visible))[0, 0], expected)
  q, table = jnp.ones((1, 5, 1, 1)), jnp.asarray([[0.0], [10.0], [20.0]])
  np.testing.assert_array_equal(np.asarray(cope.added(q, s, visible, table))[0, 0], 10 * np.minimum(expected, 2))


def test_fox_equals_a_loop():
  out, q, k, v, x, p = case('fox')
  gate = sigma(x @ p['weight'] + p['bias'])

  def score(h, i, j):
    return dot(q, k, h, i, j) + sum(np.log(gate[m, h]) for m in range(j + 1, i + 1))

  np.testing.assert_allclose(out, attended(score, v), atol=1e-5)


def test_fox_with_one_constant_gate_is_alibi():
  slope = 0.25
  pos, doc = tiny.row(5, 4, total=10)
  gate = jnp.full((1, 10, 1), -slope, jnp.float32)
  kept = fox.kept(gate, doc)
  got = np.asarray(fox.bias(kept, kept))[0, 0]
  same = np.asarray(doc[0][:, None] == doc[0][None])
  expected = -slope * (np.asarray(pos)[0][:, None] - np.asarray(pos)[0])
  np.testing.assert_allclose(got[same], np.broadcast_to(expected, (10, 10))[same], atol=1e-6)


def test_sums_of_gates_are_exact_far_into_a_text():
  """Of float32 sums that have grown to 23000 the difference of neighbours would be off by .005."""
  size, last = 32768, 64
  gate = jax.nn.log_sigmoid(jnp.asarray(np.random.default_rng(0).normal(size=(1, size, 1)), jnp.float32))
  ends = [x[:, -last:] for x in fox.kept(gate, jnp.ones((1, size), jnp.int32))]
  got = np.asarray(fox.bias(ends, ends))[0, 0]
  sums = np.cumsum(np.asarray(gate, np.float64)[0, :, 0])[-last:]
  np.testing.assert_allclose(got, sums[:, None] - sums[None], atol=1e-5)


def test_gradients_of_gates_are_those_of_their_plain_sums():
  gate = jnp.asarray(-np.random.default_rng(0).uniform(size=(1, 40, 2)), jnp.float32)
  _, doc = tiny.row(17, 20, total=40)
  weight = jnp.asarray(np.random.default_rng(1).normal(size=(1, 2, 40, 40)), jnp.float32)

  def plain(gate):
    sums = jnp.concatenate([jnp.cumsum(gate[:, :17], axis=1), jnp.cumsum(gate[:, 17:37], axis=1), jnp.cumsum(gate[:, 37:], axis=1)], axis=1)
    return jnp.vdot(weight, jnp.moveaxis(sums[:, :, None] - sums[:, None], -1, 1))

  got = jax.grad(lambda gate: jnp.vdot(weight, fox.bias(*[fox.kept(gate, doc)] * 2)))(gate)
  np.testing.assert_allclose(got, jax.grad(plain)(gate), atol=1e-4)


def test_dape_over_a_rotation_that_widens_heads_scales_scores_by_the_heads_width():
  """With a network that answers 0 it is the stack of the rotation and the bias alone."""
  q, k, v = (jnp.asarray(np.random.default_rng(n).normal(size=(1, LENGTH, heads, 6)), jnp.float32) for n, heads in enumerate((4, 2, 2)))
  where = Where.forward(*tiny.row(LENGTH, total=LENGTH))

  def out(spec, params):
    whole = encodings.make(spec, DIMS)
    enc, tables = whole.at_layer(1), whole.tables(params, where)
    return attention.attend(enc, tables, *enc.rotate(tables, q, k), v, where, 'dense')

  params = encodings.make('stack(pope, dape(kerple))', DIMS).parameters(jax.random.PRNGKey(0))
  for layer in params['1'].values():
    layer['network']['w_out'] = jnp.zeros_like(layer['network']['w_out'])
  bare = params | {'1': params['1']['layer_1']['inner']}
  np.testing.assert_allclose(out('stack(pope, dape(kerple))', params), out('stack(pope, kerple)', bare), atol=1e-6)
  # And beside it a group of heads that replaces no score.
  params = encodings.make('heads(stack(pope, dape(kerple)), pope)', DIMS).parameters(jax.random.PRNGKey(0))
  for layer in params['0']['1'].values():
    layer['network']['w_out'] = jnp.zeros_like(layer['network']['w_out'])
  bare = params | {'0': params['0'] | {'1': params['0']['1']['layer_1']['inner']}}
  got, want = (out(f'heads(stack(pope, {bias}), pope)', p) for bias, p in (('dape(kerple)', params), ('kerple', bare)))
  np.testing.assert_allclose(got, want, atol=1e-6)


@pytest.mark.parametrize('inner', ['kerple', 'alibi'])
def test_dape_equals_a_loop(inner):
  out, q, k, v, _, p = case(f'dape({inner}, hidden=5)')
  n = p['network']

  def bias(h, distance):
    if inner == 'alibi':
      return -(2.0 ** (-8 * (h + 1) / 4)) * distance
    return -max(p['inner']['p'][h], 0.01) * np.log(1 + max(p['inner']['a'][h], 0.01) * distance)

  def score(h, i, j):
    s = np.array([dot(q, k, g, i, j) for g in range(4)])
    b = np.array([bias(g, i - j) for g in range(4)])
    hidden = n['w_s'] @ s + n['w_b'] @ b + n['b']
    return s[h] + b[h] + np.where(hidden > 0, hidden, 0.01 * hidden) @ n['w_out'][:, h]

  np.testing.assert_allclose(out, attended(score, v), atol=1e-5)


def test_transformer_xl_equals_a_loop():
  out, q, k, v, _, p = case('transformer_xl')
  frequency = 10_000.0 ** (-np.arange(5) / 5)

  def score(h, i, j):
    r = np.concatenate([np.sin((i - j) * frequency), np.cos((i - j) * frequency)])
    return ((q[i, h] + p['u'][h]) @ k[j, h // 2] + (q[i, h] + p['v'][h]) @ (r @ p['w'][:, h])) / np.sqrt(6)

  np.testing.assert_allclose(out, attended(score, v), atol=1e-5)


def test_pope_equals_a_loop():
  out, q, k, v, _, p = case('pope')
  frequency, delta = 10_000.0 ** (-np.arange(6) / 6), np.clip(p['delta'], -2 * np.pi, 0)

  def score(h, i, j):
    size = np.log1p(np.exp(q[i, h])) * np.log1p(np.exp(k[j, h // 2]))
    return np.sum(size * np.cos((i - j) * frequency - delta[h // 2])) / np.sqrt(6)

  assert (delta < 0).any()
  np.testing.assert_allclose(out, attended(score, v), atol=1e-5)


def test_learned_sinks_equal_a_loop():
  out, q, k, v, _, p = case('learned_sinks')
  np.testing.assert_allclose(out, attended(lambda h, i, j: dot(q, k, h, i, j), v, sink=p['sink']), atol=1e-5)


def test_the_distance_term_of_transformer_xl_is_exact_at_any_distance():
  """Angles are added as angles, so position 10^6 is as good as position 10."""
  spec = 'transformer_xl'
  tokens = tiny.tokens(1, 24)
  pos, doc = tiny.row(24, total=24)
  near, far = (tiny.forward(spec)(tiny.made(spec)[2], tokens, pos + shift, doc) for shift in (0, 1_000_000))
  assert tiny.error(far, near) < 1e-4


def test_dape_by_hand():
  """One head, one hidden unit, all weights 1: s = 2 and B = -1 give 2 - 1 + 1 = 2; s = -3 gives -3 - 1 - .04."""
  params = {'w_s': jnp.ones((1, 1)), 'w_b': jnp.ones((1, 1)), 'b': jnp.zeros(1), 'w_out': jnp.ones((1, 1))}
  s, b = jnp.asarray([2.0, -3.0])[None, None, None], jnp.full((1, 1, 1, 2), -1.0)
  np.testing.assert_allclose((s + b + dape.network(params, s, b)).ravel(), [2.0, -4.04], rtol=1e-6)
