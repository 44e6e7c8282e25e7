"""Attention against a float64 loop, and the places where attention code usually goes wrong."""

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from pe_jax import attention, blockwise, encodings, model
from pe_jax.encodings.base import Dims, Traits, Where, run_length
from pe_jax.encodings.base import Encoding as Record
from pe_jax.encodings.distances import skew

DIMS = Dims(4, 2, 8, 32, 16)
NOPE = Record(traits=Traits(relative=True))


def draw(batch, length, heads=4, groups=2, width=8, seed=0):
  rng = np.random.default_rng(seed)
  shapes = ((batch, length, heads, width), (batch, length, groups, width), (batch, length, groups, width))
  return [jnp.asarray(rng.normal(size=s), jnp.float32) for s in shapes]


def loop(q, k, v, pos, doc, bias):
  """One query at a time, in float64; bias(h, distance)."""
  q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
  out = np.zeros((*q.shape[:3], v.shape[-1]))
  repeat = q.shape[2] // k.shape[2]
  for b, t, h in np.ndindex(q.shape[:3]):
    seen = [s for s in range(k.shape[1]) if doc[b, s] == doc[b, t] != 0 and pos[b, s] <= pos[b, t]]
    if seen:
      score = np.array([q[b, t, h] @ k[b, s, h // repeat] / np.sqrt(q.shape[-1]) + bias(h, pos[b, t] - pos[b, s]) for s in seen])
      weight = np.exp(score - score.max())
      out[b, t, h] = (weight / weight.sum()) @ v[b, seen, h // repeat]
  return out


@pytest.mark.parametrize('method', ['dense', 'chunked', 'blockwise'])
@pytest.mark.parametrize('contiguous', [True, False])
def test_attention_equals_a_float64_loop(method, contiguous):
  pos, doc = tiny.row(5, 8, -1, total=17)
  q, k, v = draw(1, 17)
  enc = encodings.make('alibi', DIMS)
  out = attention.attend(enc, None, q, k, v, Where.forward(pos, doc, contiguous=contiguous), method, chunk=5)
  slopes = [0.25, 0.0625, 0.015625, 0.00390625]
  expected = loop(q, k, v, np.asarray(pos), np.asarray(doc), lambda h, d: -slopes[h] * d)
  assert tiny.error(out, expected) < 1e-6


def test_one_query_at_a_time_equals_the_float64_loop():
  """As in a step of decoding, where all heads' keys are read in one product."""
  pos, doc = tiny.row(5, 8, -1, total=17)
  q, k, v = draw(1, 17)
  where, enc = Where.forward(pos, doc), encodings.make('alibi', DIMS)
  slopes = [0.25, 0.0625, 0.015625, 0.00390625]
  expected = loop(q, k, v, np.asarray(pos), np.asarray(doc), lambda h, d: -slopes[h] * d)
  for t in range(17):
    for platform in ('cpu', 'tpu'):  # head by head elsewhere
      out = attention.attend(enc, None, q[:, t : t + 1], k, v, where.queries(t, 1), platform=platform)
      assert tiny.error(out, expected[:, t : t + 1]) < 1e-6, (t, platform)
      assert out.dtype == v.dtype


def test_the_scale_is_that_of_the_head_width_and_the_bias_comes_after_it():
  # q = k = 0, query 3, slope .25: exp(-.25 d) normalised, whatever the head width.
  for width in (4, 64):
    q = jnp.zeros((1, 4, 1, width))
    v = jnp.eye(4)[None, :, None, :]
    enc = encodings.make('alibi(slopes=(0.25,))', Dims(1, 1, width, width, 4))
    pos, doc = tiny.row(4, total=4)
    out = attention.attend(enc, None, q, q, v, Where.forward(pos, doc))
    np.testing.assert_allclose(out[0, 3, 0], [0.165296, 0.212244, 0.272527, 0.349932], atol=1e-6)


def test_nine_pairs_are_visible_and_padding_sees_nothing():
  """Field case P23: 15 if zeros match each other, 36 if documents are ignored."""
  doc = jnp.asarray([[1, 1, 1, 2, 2, 0, 0, 0]])
  pos = jnp.asarray([[0, 1, 2, 0, 1, 0, 1, 2]])
  assert int(Where.forward(pos, doc).visible_BTS().sum()) == 9


def test_a_query_at_the_end_of_longer_keys_sees_them_all():
  """Field case P05: the mask comes from positions, so one query at position 4 averages v = 0 .. 4."""
  k = jnp.ones((1, 5, 1, 4))
  v = jnp.arange(5.0)[None, :, None, None]
  pos, doc = tiny.row(5, total=5)
  where = Where.forward(pos, doc).queries(3, 2)
  out = attention.attend(NOPE, None, jnp.ones((1, 2, 1, 4)), k, v, where)
  np.testing.assert_allclose(out.ravel(), [1.5, 2.0])


@pytest.mark.parametrize('method', ['dense', 'chunked', 'blockwise'])
def test_a_row_without_visible_keys_is_zero_and_its_gradient_finite(method):
  """Field case P11."""
  pos, doc = tiny.row(3, total=8)
  q, k, v = draw(1, 8)

  def total(q, k, v, doc):
    return jnp.sum(attention.attend(NOPE, None, q, k, v, Where.forward(pos, doc), method, chunk=3)[:, :3] ** 2)

  out = attention.attend(NOPE, None, q, k, v, Where.forward(pos, doc), method, chunk=3)
  assert np.array_equal(out[:, 3:], np.zeros_like(out[:, 3:]))
  for padded, alone in zip(jax.grad(total, (0, 1, 2))(q, k, v, doc), draw(1, 8), strict=True):
    assert np.isfinite(padded).all()
    assert np.array_equal(padded[:, 3:], np.zeros_like(alone[:, 3:]))


def test_fully_random_masks_give_finite_gradients():
  rng = np.random.default_rng(0)
  q, k, v = draw(1, 12)
  for _ in range(5):
    doc = jnp.asarray(rng.integers(0, 4, (1, 12)))
    pos = jnp.asarray(rng.integers(0, 12, (1, 12)))
    where = Where.forward(pos, doc, contiguous=False)
    enc = encodings.make('t5', DIMS)
    params = enc.parameters(jax.random.PRNGKey(0))
    gradient = jax.grad(lambda p, q: jnp.sum(attention.attend(enc, p['table'], q, k, v, where) ** 2), (0, 1))(params, q)  # noqa: B023
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradient))


@pytest.mark.parametrize('method', ['chunked', 'blockwise'])
def test_long_texts_never_need_an_array_of_queries_by_keys(method):
  length = 64
  q, k, v = draw(1, length)
  enc = encodings.make('t5', DIMS)
  table = enc.parameters(jax.random.PRNGKey(0))['table']

  def total(q, k, v, table):
    pos, doc = tiny.row(length, total=length)
    return jnp.sum(attention.attend(enc, table, q, k, v, Where.forward(pos, doc), method, chunk=8) ** 2)

  def square(jaxpr):
    for eqn in jaxpr.eqns:
      for out in eqn.outvars:
        assert sum(n >= length for n in getattr(out.aval, 'shape', ())) < 2, (eqn.primitive, out.aval)
      for sub in jax.extend.core.jaxprs_in_params(eqn.params):
        square(sub)

  square(jax.make_jaxpr(jax.grad(total, (0, 1, 2, 3)))(q, k, v, table).jaxpr)


@pytest.mark.parametrize(
  ('lengths', 'first', 'last'),
  [
    ((32,), [0, 0, 0, 0], [1, 2, 3, 4]),  # the diagonal is where a causal row of blocks ends
    ((8, 8, 8, 8), [0, 1, 2, 3], [1, 2, 3, 4]),  # nothing of other documents
    ((4, 16, 12), [0, 0, 0, 2], [1, 2, 3, 4]),
    ((10,), [0, 0, 4, 4], [1, 2, 0, 0]),  # padding needs nothing: the range is empty
  ],
)
def test_only_blocks_that_some_query_can_see_are_computed(lengths, first, last):
  where = Where.forward(*tiny.row(*lengths, total=32))
  got = blockwise.needed(where, 8, 8)
  assert got[1].tolist() == last
  assert [max(a, b) if b == 0 else a for a, b in zip(got[0].tolist(), last, strict=True)] == first


@pytest.mark.parametrize('lengths', [(32,), (8, 8, 8, 8), (4, 16, 12), (12, 20), (10,), (3, 29)])
@pytest.mark.parametrize('causal', [True, False])
def test_blocks_without_a_mask_are_those_whose_every_pair_is_visible(lengths, causal):
  where = Where.forward(*tiny.row(*lengths, total=32), causal=causal)
  visible = np.asarray(where.visible_BTS())[0]
  for size in (8, 1):  # with single keys an end that is off by one shows
    first, last = blockwise.whole(where, 4, size)
    for n in range(8):
      whole = [m for m in range(32 // size) if visible[4 * n : 4 * n + 4, size * m : size * (m + 1)].all()]
      assert list(range(int(first[n]), int(last[n]))) == whole


def test_without_a_causal_mask_blocks_go_to_the_documents_end():
  where = Where.forward(*tiny.row(12, 20, total=32), causal=False)
  assert [x.tolist() for x in blockwise.needed(where, 8, 8)] == [[0, 0, 1, 1], [2, 4, 4, 4]]
  q, k, v = draw(1, 32)
  outs = [attention.attend(encodings.make('alibi', DIMS), None, q, k, v, where, m, chunk=8) for m in ('dense', 'chunked', 'blockwise')]
  assert tiny.error(outs[1], outs[0]) < 1e-6
  assert tiny.error(outs[2], outs[0]) < 1e-6


def test_the_path_is_chosen_by_what_a_record_does_and_by_length():
  alibi, cope = encodings.make('alibi', DIMS), encodings.make('cope', DIMS).at_layer(0)
  assert attention.choose(alibi, 64, 64) == attention.choose(alibi, 1, 100_000) == 'dense'
  assert (
    attention.choose(alibi, 512, 512) == attention.choose(cope, 32_768, 32_768) == attention.choose(cope, 64, 64, 'blockwise') == 'chunked'
  )
  assert attention.choose(alibi, 32_768, 32_768) == 'blockwise'
  config = tiny.config()
  mixed = encodings.make('layers(alibi, cope)', model.dims(config))
  assert attention.paths(config, mixed, 32_768) == 'blockwise, chunked'


def test_at_the_default_length_no_chunk_is_multiplied_with_keys_that_none_of_its_queries_sees():
  """Of 512 x 512 pairs in chunks of 128, 10 of 16."""
  enc = encodings.make('alibi', DIMS)
  pos, doc = tiny.row(512, total=512)
  where, x = Where.forward(pos, doc), jnp.zeros((1, 512, 4, 8))

  def flops(method):
    def out(x):
      return attention.attend(enc, enc.tables({}, where), x, x, x, where, method)

    return jax.jit(out).lower(x).compile().cost_analysis()['flops']

  assert 0.6 < flops('chunked') / flops('dense') < 0.66


def test_skew_is_a_toeplitz_matrix():
  for queries, keys in ((1, 1), (1, 5), (5, 1), (4, 6), (6, 4)):
    values = jnp.arange(2 * (queries + keys - 1), dtype=jnp.float32).reshape(2, -1)
    out = skew(values, queries, keys)
    for t in range(queries):
      assert np.array_equal(out[:, t], values[:, queries - 1 - t : queries - 1 - t + keys])


def test_run_length():
  doc = jnp.asarray([[1, 1, 2, 0, 0], [3, 3, 3, 3, 3], [1, 2, 3, 1, 1]])
  assert run_length(doc).tolist() == [[2, 2, 1, 2, 2], [5] * 5, [1, 1, 1, 2, 2]]
