"""Field cases: who attends to whom, in which precision, and how much memory and compiling that takes."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from attending import alone, attended, dims, largest, turned

from pe_jax import attention, encodings, loss, model
from pe_jax.encodings.base import Where, scores
from pe_jax.evaluate import score
from pe_jax.selfcheck import properties

PACKED = tiny.row(3, 2, total=8)


@pytest.mark.parametrize('spec', ['rope', 'learned', 'alibi'])
def test_p04_a_packed_document_is_as_if_alone(spec):
  """Row [A A A | B B | padding]: other tokens in A change the logits of B by exactly 0, and they are those of B in a row of its own.

  More: tests/encodings/test_contract.py::test_a_packed_document_does_not_know_its_neighbours
  """
  tokens, other = tiny.tokens(1, 8), tiny.tokens(1, 8, seed=1)
  run = tiny.forward(spec)
  params = tiny.made(spec)[2]
  logits = run(params, tokens, *PACKED)
  np.testing.assert_array_equal(run(params, jnp.where(PACKED[1] == 1, other, tokens), *PACKED)[:, 3:5], logits[:, 3:5])
  alone_ = run(params, jnp.roll(tokens, -3, axis=1), *tiny.row(2, total=8))
  assert tiny.error(alone_[:, :2], logits[:, 3:5]) < 1e-5


def test_p04_the_gradient_of_a_packed_row_is_the_sum_of_the_gradients_of_its_documents():
  """Two documents in one row, and in a row each: the same gradient of every parameter."""
  params, run = tiny.made('rope')[2], tiny.forward('rope')
  tokens = tiny.tokens(1, 8)

  def gradient(tokens, pos, doc):
    def total(params):
      nll = loss.nll(run(params, tokens, pos, doc)[:, :-1], tokens[:, 1:])
      return jnp.sum(nll * ((doc[:, 1:] == doc[:, :-1]) & (doc[:, 1:] > 0)))

    return properties.quick_jit(jax.grad(total))(params)

  rows = properties.pair(tiny.row(3, total=8), tiny.row(2, total=8))
  apart = gradient(jnp.concatenate([tokens, jnp.roll(tokens, -3, axis=1)]), *rows)
  for a, b in zip(jax.tree.leaves(gradient(tokens, *PACKED)), jax.tree.leaves(apart)):
    assert tiny.error(a, b) < 1e-5


def test_p05_a_query_sees_the_keys_up_to_its_own_position_wherever_it_stands_in_an_array():
  """One query at the end of 5 equal keys with values 0 .. 4 gives 2.0, two give 1.5 and 2.0.

  More: tests/test_attention.py::test_a_query_at_the_end_of_longer_keys_sees_them_all
  """
  v = jnp.arange(5.0).reshape(1, 5, 1, 1)
  for queries, expected in ((1, [2.0]), (2, [1.5, 2.0])):
    where = alone(5).queries(5 - queries, queries)
    out = attended('nope', jnp.ones((1, queries, 1, 1)), jnp.ones((1, 5, 1, 1)), v, where)
    np.testing.assert_allclose(out.ravel(), expected, atol=1e-6)


def test_p11_a_row_that_sees_nothing_is_zero_and_costs_no_gradient():
  """Three queries, the third of them padding: its output is exactly 0, and every gradient is that of the two alone.

  More: tests/test_attention.py::test_a_row_without_visible_keys_is_zero_and_its_gradient_finite
  """
  q, k, v = jnp.asarray(np.random.default_rng(0).normal(size=(3, 1, 3, 1, 4)), jnp.float32)
  where = Where.forward(jnp.asarray([[0, 1, 0]]), jnp.asarray([[1, 1, 0]]))
  out = attended('nope', q, k, v, where)
  np.testing.assert_array_equal(out[:, 2], 0)
  three = jax.grad(lambda *x: jnp.sum(attended('nope', *x, where)[:, :2] ** 2), (0, 1, 2))(q, k, v)
  two = jax.grad(lambda *x: jnp.sum(attended('nope', *x, alone(2)) ** 2), (0, 1, 2))(q[:, :2], k[:, :2], v[:, :2])
  for a, b in zip(three, two):
    np.testing.assert_array_equal(a[:, 2], 0)
    np.testing.assert_allclose(a[:, :2], b, atol=1e-6)


def test_p21_logits_losses_and_weights_are_float32_in_a_bfloat16_model():
  """Hidden states in bfloat16, 1000 targets: the mean loss is that of float64 to 1e-3, and scores and weights of attention are float32.

  More: tests/test_model.py::test_logits_and_losses_are_float32_in_a_bfloat16_model_and_parameters_too
  """
  rng = np.random.default_rng(0)
  x_BTD = jnp.asarray(rng.normal(size=(1, 1000, 32)), jnp.bfloat16)
  head_VD, targets_BT = jnp.asarray(rng.normal(size=(50, 32)), jnp.float32), jnp.asarray(rng.integers(50, size=(1, 1000)))
  nll_BT = loss.nll(loss.logits(x_BTD, head_VD, None), targets_BT)
  exact_TV = np.asarray(x_BTD[0], np.float64) @ np.asarray(head_VD, np.float64).T
  exact_T = np.log(np.exp(exact_TV).sum(1)) - exact_TV[np.arange(1000), targets_BT[0]]
  assert nll_BT.dtype == jnp.float32
  assert abs(float(nll_BT.mean()) - exact_T.mean()) < 1e-3
  q = jnp.ones((1, 4, 2, 8), jnp.bfloat16)
  by_head = q.swapaxes(1, 2)
  assert scores(q, q).dtype == jnp.float32
  assert attention.weights(encodings.make('alibi', dims(2, 8)), None, by_head, by_head, alone(4), 8).dtype == jnp.float32


def test_p23_padding_is_no_document_and_a_token_may_have_any_id():
  """Documents [1 1 1 2 2 0 0 0]: 9 pairs are visible, 6 and 3; padding sees nothing and is seen by nobody.

  More: tests/data/test_packing.py::test_P23_a_token_with_the_id_of_padding_is_trained_on
  """
  visible = np.asarray(Where.forward(*PACKED).visible_BTS()[0])
  assert visible.sum() == 9
  assert not visible[5:].any()
  assert not visible[:, 5:].any()


def test_p32_no_array_of_queries_by_keys_and_none_of_all_logits():
  """16384 positions under ALiBi with 8 heads, 32768 targets of 50257 words: the largest array of the program is a small part of either.

  More: tests/test_attention.py::test_long_texts_never_need_an_array_of_queries_by_keys
  """
  length, enc = 16_384, encodings.make('alibi', dims(8, 16))

  def attend(q, k, v, pos, doc):
    return jnp.sum(attention.attend(enc, None, q, k, v, Where.forward(pos, doc)))

  row, heads = jax.ShapeDtypeStruct((1, length), jnp.int32), jax.ShapeDtypeStruct((1, length, 8, 16), jnp.float32)
  assert largest(jax.grad(attend, (0, 1, 2)), heads, heads, heads, row, row) < 8 * length**2 / 100
  length, words = 32_768, 50_257
  x, head = jax.ShapeDtypeStruct((1, length, 4), jnp.float32), jax.ShapeDtypeStruct((words, 4), jnp.float32)
  targets, weight = jax.ShapeDtypeStruct((1, length), jnp.int32), jax.ShapeDtypeStruct((1, length), jnp.float32)
  gradient = jax.grad(lambda x, head, t, w: loss.weighted_sum(x, head, None, t, w), (0, 1))
  assert largest(gradient, x, head, targets, weight) < length * words / 50


def test_p33_one_compilation_a_length_whatever_the_documents(caplog):
  """Seven documents of seven lengths scored at three lengths: three compilations.

  More: tests/test_decode.py::test_a_generation_compiles_two_programs_and_another_like_it_none
  """
  from pe_jax.data import packing

  config, enc, params = tiny.made('nope')
  documents = [np.arange(n, dtype=np.int32) % 49 for n in (5, 11, 17, 23, 31, 40, 47)]
  with jax.log_compiles():
    for length in (8, 16, 24):
      score.by_position(config, enc, params, packing.windows(documents, length, 49))
  names = [m.group(1) for r in caplog.records if (m := re.match(r'Compiling (?:jit\()?(\w+)\)? ', r.getMessage()))]
  assert [name for name in names if name in ('inside', 'score')] == ['inside'] * 3


@pytest.mark.parametrize('spec', ['nope', 'sinusoidal', 'learned', 'rope', 'alibi', 't5'])
def test_p39_a_bfloat16_model_stays_bfloat16_between_blocks_with_float32_parameters_and_losses(spec):
  """Tables, phases and biases do not turn the stream of a bfloat16 model into float32; parameters, logits and losses are float32.

  More: tests/encodings/test_contract.py::test_bfloat16_activations_keep_float32_phases_and_biases
  """
  config, enc, _ = tiny.made(spec, dtype='bfloat16')
  where, narrow = alone(6), jnp.ones((1, 6, 4, 8), jnp.bfloat16)
  params = jax.eval_shape(lambda key: model.init(config, enc, key), jax.random.PRNGKey(0))
  assert {leaf.dtype.name for leaf in jax.tree.leaves(params)} == {'float32'}
  if enc.embed:
    assert enc.embed(enc.parameters(jax.random.PRNGKey(0)), jnp.ones((1, 6, 32), jnp.bfloat16), where).dtype == jnp.bfloat16
  _, tables, q, k = turned(spec, dims(4, 8, 16), where, narrow, narrow)
  assert attention.attend(enc, tables, q, k, narrow, where).dtype == jnp.bfloat16
  tokens = jnp.zeros((1, 6), jnp.int32)
  assert jax.eval_shape(lambda p: model.apply(config, enc, p, tokens, where), params).dtype == jnp.float32
