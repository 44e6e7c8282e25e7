"""The loss of a large vocabulary in pieces: the same numbers as all logits at once, in less memory."""

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from pe_jax import loss, model
from pe_jax.encodings.base import Where


def draw(batch=2, length=11, width=6, vocabulary=40, bias=True, dtype=jnp.float32):
  rng = np.random.default_rng(0)
  x, head = rng.normal(size=(batch, length, width)), 3 * rng.normal(size=(vocabulary, width))
  targets = jnp.asarray(rng.integers(0, vocabulary, (batch, length)))
  weight = jnp.asarray(rng.integers(0, 2, (batch, length)), jnp.float32)
  b = jnp.asarray(rng.normal(size=vocabulary), jnp.float32) if bias else None
  return jnp.asarray(x, dtype), jnp.asarray(head, jnp.float32), b, targets, weight


@pytest.mark.parametrize('bias', [True, False])
@pytest.mark.parametrize('piece', [1, 4, 11, 16])
def test_pieces_change_neither_the_sum_nor_its_gradients(piece, bias):
  x, head, b, targets, weight = draw(bias=bias)

  def both(piece):
    return jax.value_and_grad(lambda x, head, b: 2 * loss.weighted_sum(x, head, b, targets, weight, piece), (0, 1, 2) if bias else (0, 1))

  whole, parts = both(0)(x, head, b), both(piece)(x, head, b)
  for got, expected in zip(jax.tree.leaves(parts), jax.tree.leaves(whole), strict=True):
    assert tiny.error(got, expected) < 1e-6
  np.testing.assert_allclose(loss.each(x, head, b, targets, piece), loss.each(x, head, b, targets), rtol=1e-5, atol=1e-5)


def test_a_place_without_weight_gets_no_gradient():
  x, head, b, targets, weight = draw()
  gradient = jax.grad(lambda x: loss.weighted_sum(x, head, b, targets, weight, 4))(x)
  assert np.array_equal(np.abs(gradient).sum(-1) > 0, weight > 0)


def test_a_large_vocabulary_never_has_all_its_logits_at_once():
  x, head, _, targets, weight = draw(batch=4, length=2048, width=2, vocabulary=8192, bias=False)
  largest = []

  def walk(jaxpr):
    for eqn in jaxpr.eqns:
      largest.extend(np.prod(out.aval.shape) for out in eqn.outvars if hasattr(out.aval, 'shape'))
      for inner in jax.extend.core.jaxprs_in_params(eqn.params):
        walk(inner)

  walk(jax.make_jaxpr(jax.value_and_grad(lambda x, head: loss.weighted_sum(x, head, None, targets, weight), (0, 1)))(x, head).jaxpr)
  assert max(largest) == loss.PIECE == 4 * 8192 * 512


@pytest.mark.parametrize(
  'fields', [{}, {'tie_head': False}, {'head_bias': True}, {'tie_head': False, 'head_bias': True, 'dtype': 'bfloat16'}]
)
def test_hidden_states_and_head_are_the_models_logits(fields):
  config, enc, params = tiny.made('rope', **fields)
  tokens = tiny.tokens(2, 12)
  pos, doc = (jnp.tile(x, (2, 1)) for x in tiny.row(12, total=12))
  where = Where.forward(pos, doc)
  expected = loss.nll(model.apply(config, enc, params, tokens, where), tokens)
  x, _ = model.hidden(config, enc, params, tokens, where)
  assert x.dtype == jnp.float32
  np.testing.assert_allclose(loss.each(x, *model.head(config, params), tokens, piece=5), expected, rtol=1e-5, atol=1e-5)
