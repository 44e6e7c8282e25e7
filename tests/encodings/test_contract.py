"""What holds for every encoding in the registry: each name through every property. A new file is tested from the moment it exists."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from pe_jax import attention, encodings, loss, model
from pe_jax import cache as kv
from pe_jax.encodings.base import Where
from pe_jax.errors import ConfigError

# Names at settings where they do something at length 24 on a model trained at 16; a name that is not here is tested as it comes.
SETTINGS = {
  'learned': 'learned(max_length=64)',
  'linear': 'linear(factor=2)',
  'ntk': 'ntk(factor=2)',
  'yarn': 'yarn(factor=2)',
  'llama3': 'llama3(factor=2)',
  'ntk_by_parts': 'ntk_by_parts(factor=2)',
  'reversed_by_parts': 'reversed_by_parts(factor=2)',
  'fire': 'fire(threshold=8.0)',
  'longrope': 'longrope(factor=2, short_factor=(1, 1, 1, 1), long_factor=(1, 1.5, 2, 3))',
  't5': 't5(num_buckets=8, max_distance=12)',
}
MORE = (
  'rope(fraction=0.5)',
  "rope(layout='interleaved')",
  'dynamic_ntk(factor=2)',
  "kerple(kind='power')",
  'self_extend(group=2, window=5)',
  'leaky_rerope(window=4, slow=3.0)',
  "learned(overflow='interpolate')",
  "learned(overflow='random')",
)
SPECS = [SETTINGS.get(name, name) for name in encodings.names()] + list(MORE)
LENGTH = 24

# One worker takes all properties of an encoding: compiled forwards are shared.
pytestmark = pytest.mark.parametrize('spec', [pytest.param(s, marks=pytest.mark.xdist_group(s)) for s in SPECS])


def run(spec, tokens, pos, doc, **options):
  return tiny.forward(spec, **options)(tiny.made(spec)[2], tokens, pos, doc)


def pair(a, b):
  """Two rows as one batch: (pos, doc)."""
  return tuple(jnp.concatenate(x) for x in zip(a, b, strict=True))


def test_the_canonical_string_makes_the_same_encoding_again(spec):
  dims = model.dims(tiny.config())
  once = encodings.make(spec, dims).spec
  assert encodings.make(once, dims).spec == once
  assert str(encodings.parse(once)) == once


def test_chunked_attention_equals_dense_in_value_and_gradient(spec):
  pos, doc = tiny.row(9, 11, total=LENGTH)
  _, enc, params = tiny.made(spec)
  q, k, v, weight = (jax.random.normal(jax.random.PRNGKey(n), (1, LENGTH, heads, 8)) for n, heads in enumerate((4, 2, 2, 4)))

  def attend(q, k, v, params, method):
    where = Where.forward(pos, doc)
    tables = enc.tables(params, where)
    q, k = enc.rotate(tables, q, k) if enc.rotate else (q, k)
    out = attention.attend(enc, tables, q, k, v, where, method, chunk=7)
    return jnp.sum(out * weight), out

  both = jax.jit(jax.value_and_grad(attend, argnums=(0, 1, 2, 3), has_aux=True), static_argnums=4)
  (_, dense), dense_gradient = both(q, k, v, params['encoding'], 'dense')
  (_, chunked), chunked_gradient = both(q, k, v, params['encoding'], 'chunked')
  assert tiny.error(chunked, dense) < 1e-5
  for a, b in zip(jax.tree.leaves(chunked_gradient), jax.tree.leaves(dense_gradient), strict=True):
    assert tiny.error(a, b) < 1e-5 or np.abs(b).max() == 0


def test_cached_decoding_equals_one_forward_under_the_declared_length(spec):
  declared = 32
  config, enc, params = tiny.made(spec)
  tokens = tiny.tokens(2, LENGTH)
  pos, doc = pair(tiny.row(LENGTH, total=LENGTH), tiny.row(-4, 20, total=LENGTH))  # the second prompt is padded on the left
  whole = tiny.forward(spec, length=declared)(params, tokens, pos, doc)
  extend = jax.jit(lambda cache, t, p, d: model.apply(config, enc, params, t, (p, d), cache=cache))
  cache, parts = kv.create(config.model, enc, 2, declared, declared), []
  for start, end in ((0, 9), (9, 10), (10, 11), (11, 20), (20, 21), (21, 22), (22, 23), (23, 24)):
    logits, cache = extend(cache, tokens[:, start:end], pos[:, start:end], doc[:, start:end])
    parts.append(logits)
  decoded = jnp.concatenate(parts, axis=1)
  assert tiny.error(decoded[0], whole[0]) < 1e-4
  assert tiny.error(decoded[1, 4:], whole[1, 4:]) < 1e-4


def test_a_packed_document_is_as_if_alone(spec):
  tokens = tiny.tokens(1, LENGTH)
  packed = run(spec, tokens, *tiny.row(9, 13, total=LENGTH))
  alone = run(spec, jnp.roll(tokens, -9, axis=1), *tiny.row(13, total=LENGTH))
  assert tiny.error(packed[:, 9:22], alone[:, :13]) < 1e-5


def test_a_packed_document_does_not_know_its_neighbours(spec):
  tokens, other = tiny.tokens(1, LENGTH), tiny.tokens(1, LENGTH, seed=1)
  pos, doc = tiny.row(9, 6, 7, total=LENGTH)
  mixed = jnp.where(doc == 2, tokens, other)
  a, b = run(spec, tokens, pos, doc), run(spec, mixed, pos, doc)
  assert np.array_equal(a[:, 9:15], b[:, 9:15])
  assert not np.array_equal(a[:, 15:22], b[:, 15:22])


def test_a_later_token_changes_nothing_before_it(spec):
  tokens, other = tiny.tokens(1, LENGTH), tiny.tokens(1, LENGTH, seed=1)
  pos, doc = tiny.row(LENGTH, total=LENGTH)
  changed = tokens.at[:, 10:].set(other[:, 10:])
  a, b = run(spec, tokens, pos, doc), run(spec, changed, pos, doc)
  assert np.array_equal(a[:, :10], b[:, :10])
  assert not np.array_equal(a[:, 10:], b[:, 10:])


def test_left_padding_changes_nothing(spec):
  tokens = tiny.tokens(1, LENGTH)
  right = run(spec, tokens, *tiny.row(18, total=LENGTH))
  left = run(spec, jnp.roll(tokens, 6, axis=1), *tiny.row(-6, 18, total=LENGTH))
  assert tiny.error(left[:, 6:], right[:, :18]) < 1e-5


def test_rows_of_a_batch_do_not_know_each_other(spec):
  pos, doc = pair(tiny.row(LENGTH, total=LENGTH), tiny.row(7, 9, total=LENGTH))
  tokens = tiny.tokens(2, LENGTH)
  together = run(spec, tokens, pos, doc)
  for n in range(2):
    assert tiny.error(together[n : n + 1], run(spec, tokens[n : n + 1], pos[n : n + 1], doc[n : n + 1])) < 1e-5


def test_a_common_shift_of_positions_changes_nothing_iff_relative(spec):
  _, enc, _ = tiny.made(spec)
  tokens = tiny.tokens(1, LENGTH)
  pos, doc = tiny.row(LENGTH, total=LENGTH)
  shift = 5000 if enc.traits.relative else 7
  change = tiny.error(run(spec, tokens, pos + shift, doc), run(spec, tokens, pos, doc))
  assert change < 1e-4 if enc.traits.relative else change > 1e-3


def test_a_prefix_is_a_short_document_iff_the_length_does_not_matter(spec):
  _, enc, _ = tiny.made(spec)
  tokens = tiny.tokens(1, LENGTH)
  long = run(spec, tokens, *tiny.row(LENGTH, total=LENGTH))[:, :12]
  short = run(spec, tokens, *tiny.row(12, total=LENGTH))[:, :12]
  if enc.traits.length_dependent:
    assert tiny.error(short, long) > 1e-3
  else:
    assert tiny.error(short, long) < 1e-5


def test_four_times_the_training_length_is_finite_or_refused(spec):
  config, enc, params = tiny.made(spec)
  length = 4 * config.train_length + 1
  tokens = tiny.tokens(1, length)
  pos, doc = tiny.row(length, total=length)
  if enc.traits.max_length is not None and enc.traits.max_length < length:
    with pytest.raises(ConfigError, match=f'{enc.traits.max_length} positions and cannot serve length {length}'):
      model.apply(config, enc, params, tokens, Where.forward(pos, doc))
  else:
    assert np.isfinite(run(spec, tokens, pos, doc)).all()


def test_every_learned_leaf_gets_a_finite_gradient_and_it_is_not_zero(spec):
  pos, doc = tiny.row(tiny.TRAIN_LENGTH, total=tiny.TRAIN_LENGTH)
  tokens = tiny.tokens(1, tiny.TRAIN_LENGTH)
  _, enc, params = tiny.made(spec)
  gradient = jax.grad(lambda p: jnp.sum(loss.nll(tiny.forward(spec)(p, tokens, pos, doc), tokens)))(params)
  assert bool(params['encoding']) == (enc.init is not None)
  for leaf in jax.tree.leaves(gradient):
    assert np.isfinite(leaf).all()
  for leaf in jax.tree.leaves(gradient['encoding']):
    assert np.abs(leaf).max() > 0


def test_bfloat16_activations_keep_float32_phases_and_biases(spec):
  _, enc, params = tiny.made(spec)
  tokens = tiny.tokens(1, LENGTH)
  pos, doc = tiny.row(LENGTH, total=LENGTH)
  shift = 4096 if enc.traits.relative else 0  # a phase or a bias in bfloat16 would be lost there
  narrow = tiny.forward(spec, dtype='bfloat16')(params, tokens, pos + shift, doc)
  assert narrow.dtype == jnp.float32
  wide = run(spec, tokens, pos, doc)
  # Root mean square: these large weights make attention nearly hard, and bfloat16 scores may swap two keys of one query.
  assert np.sqrt(np.mean((narrow - wide) ** 2) / np.mean(wide**2)) < 4e-2
  if enc.embed:
    x = jnp.zeros((1, LENGTH, 32), jnp.bfloat16)
    assert enc.embed(params['encoding'], x, Where.forward(pos, doc)).dtype == jnp.bfloat16
  if enc.rotate:
    tables = enc.tables(params['encoding'], Where.forward(pos, doc))
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(tables))
    q, k = jnp.ones((1, LENGTH, 4, 8), jnp.bfloat16), jnp.ones((1, LENGTH, 2, 8), jnp.bfloat16)
    assert {x.dtype for x in enc.rotate(tables, q, k)} == {jnp.bfloat16.dtype}
  if enc.distance_bias:
    tables = enc.tables(params['encoding'], Where.forward(pos, doc))
    assert enc.distance_bias(tables, jnp.arange(5)).dtype == jnp.float32
