"""The decoder's fields, and what the literature predicts of order without positions."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from pe_jax import cache as kv
from pe_jax import decoder, encodings, loss, model
from pe_jax.encodings.base import Where
from pe_jax.errors import ConfigError


def logits(spec, tokens, length=None, **changes):
  pos, doc = tiny.row(tokens.shape[1], total=tokens.shape[1])
  return tiny.forward(spec, length=length, **changes)(tiny.made(spec, **changes)[2], tokens, pos, doc)


def test_without_positions_and_mask_a_permuted_input_permutes_the_output():
  tokens = tiny.tokens(1, 12)
  order = np.random.default_rng(0).permutation(12)
  a, b = (logits('nope', t, causal=False) for t in (tokens, tokens[:, order]))
  assert tiny.error(b, a[:, order]) < 1e-5


def test_one_causal_layer_without_positions_cannot_tell_the_order_of_what_came_before_and_two_can():
  """Source document 003, B62: keep the last token, permute the prefix."""
  tokens = tiny.tokens(1, 12)
  order = np.r_[np.random.default_rng(0).permutation(11), 11]
  for layers, blind in ((1, True), (2, False)):
    a, b = (logits('nope', t, num_layers=layers)[:, -1] for t in (tokens, tokens[:, order]))
    assert tiny.error(b, a) < 1e-5 if blind else tiny.error(b, a) > 1e-3


@pytest.mark.parametrize('spec', ['rope', 'alibi', 't5(num_buckets=8, max_distance=12)', 'sinusoidal', 'learned'])
def test_every_explicit_encoding_tells_the_order_in_one_layer(spec):
  tokens = tiny.tokens(1, 12)
  order = np.r_[np.random.default_rng(0).permutation(11), 11]
  a, b = (logits(spec, t, num_layers=1)[:, -1] for t in (tokens, tokens[:, order]))
  assert tiny.error(b, a) > 1e-3


FIELDS = [
  {'norm': 'layer', 'norm_bias': True, 'qkv_bias': True, 'attention_out_bias': True, 'mlp_bias': True, 'head_bias': True},
  {'parallel_block': True, 'tie_head': False, 'mlp': 'gelu_exact'},
  {'parallel_block': True, 'shared_block_norm': True, 'embed_norm': True},
  {'mlp': 'swiglu', 'qk_norm': 'head', 'head_dim': 6, 'num_kv_heads': 1},
  {'mlp': 'geglu', 'qk_norm': 'full', 'num_kv_heads': 4, 'embed_scale': 2.0, 'remat': True},
]


@pytest.mark.parametrize('fields', FIELDS, ids=lambda f: ' '.join(f))
def test_every_field_keeps_decoding_equal_to_one_forward_and_causal(fields):
  config, enc, params = tiny.made('rope', **fields)
  tokens = tiny.tokens(1, 12)
  whole = logits('rope', tokens, **fields)
  pos, doc = tiny.row(12, total=12)
  extend = jax.jit(lambda cache, t, p, d: model.apply(config, enc, params, t, (p, d), cache=cache))
  cache, parts = kv.create(config.model, enc, 1, 12, 12), []
  for start, end in ((0, 4), (4, 8), (8, 12)):
    part, cache = extend(cache, tokens[:, start:end], pos[:, start:end], doc[:, start:end])
    parts.append(part)
  assert tiny.error(jnp.concatenate(parts, axis=1), whole) < 1e-5
  changed = logits('rope', tokens.at[:, 6].add(1) % 50, **fields)
  assert np.array_equal(changed[:, :6], whole[:, :6])


@pytest.mark.parametrize('fields', FIELDS, ids=lambda f: ' '.join(f))
def test_every_field_changes_the_parameters_or_the_output(fields):
  """A field that did nothing would pass every other test."""
  tokens = tiny.tokens(1, 12)
  for field, value in fields.items():
    if field in ('remat', 'shared_block_norm', 'norm_bias'):  # needs another field, or changes no number
      continue
    shapes = [jax.tree.map(jnp.shape, tiny.made('rope', **f)[2]) for f in ({}, {field: value})]
    assert shapes[0] != shapes[1] or tiny.error(logits('rope', tokens, **{field: value}), logits('rope', tokens)) > 1e-6, field


@pytest.mark.parametrize('fields', [{'remat': True}, {'scan_layers': True}, {'scan_layers': True, 'remat': True}], ids=' '.join)
def test_recomputed_and_scanned_blocks_change_no_number(fields):
  """Under every option the parameters keep their names, so that a checkpoint fits all of them."""
  tokens = tiny.tokens(1, 12)
  pos, doc = tiny.row(12, total=12)
  params = tiny.made('rope', **fields)[2]
  assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, tiny.made('rope')[2])

  def gradient(**fields):
    return jax.grad(lambda p: jnp.sum(loss.nll(tiny.forward('rope', **fields)(p, tokens, pos, doc), tokens)))(params)

  for a, b in zip(jax.tree.leaves(gradient()), jax.tree.leaves(gradient(**fields)), strict=True):
    assert tiny.error(a, b) < 1e-5


def test_scanned_layers_are_compiled_once():
  """The program grows with the number of layers only where it stacks their parameters."""

  def attentions(scan_layers):
    config, enc, params = tiny.made('rope', num_layers=6, scan_layers=scan_layers)
    pos, doc = tiny.row(12, total=12)
    where = Where.forward(pos, doc)
    return jax.jit(lambda p, t: model.apply(config, enc, p, t, where)).lower(params, tiny.tokens(1, 12)).as_text().count('exponential')

  assert attentions(True) * 6 == attentions(False)


@pytest.mark.parametrize('spec', ['rope', 'yarn(factor=4)', 'rerope'])
def test_cosines_of_positions_are_computed_once_and_not_in_every_layer(spec, monkeypatch):
  """XLA fuses them into whatever uses them if it can: a tenth of a training step's time."""
  monkeypatch.setattr(jax, 'device_count', lambda: 1)

  def cosines(num_layers):
    config, enc, params = tiny.made(spec, num_layers=num_layers)
    where = Where.forward(*tiny.row(12, total=12))
    f = jax.jit(jax.grad(lambda p, t: jnp.sum(model.apply(config, enc, p, t, where))))
    return f.lower(params, tiny.tokens(1, 12)).compile().as_text().count(' cosine(')

  assert cosines(3) == cosines(1)


def test_logits_and_losses_are_float32_in_a_bfloat16_model_and_parameters_too():
  """Field case P21: the loss of a bfloat16 model must not be quantised by its head."""
  tokens = tiny.tokens(1, 12)
  narrow = logits('rope', tokens, dtype='bfloat16')
  assert narrow.dtype == jnp.float32
  assert len(np.unique(np.asarray(narrow))) > 0.9 * narrow.size
  config, enc, _ = tiny.made('rope', dtype='bfloat16')
  shapes = jax.eval_shape(lambda key: model.init(config, enc, key), jax.random.PRNGKey(0))
  assert {x.dtype for x in jax.tree.leaves(shapes)} == {jnp.float32.dtype}


def test_the_decoder_starts_from_the_same_weights_under_every_encoding():
  """Pairs of runs that differ in the encoding alone are paired."""
  config = tiny.config()
  trees = [
    model.init(config, encodings.make(spec, model.dims(config)), jax.random.PRNGKey(0))
    for spec in ('nope', 't5(max_distance=32)', 'learned')
  ]
  for a, b in itertools.pairwise(trees):
    assert jax.tree.all(jax.tree.map(lambda x, y: np.array_equal(x, y), a['decoder'], b['decoder']))


def test_embeddings_are_scaled_by_the_root_of_the_width_only_where_a_table_is_added():
  tokens = tiny.tokens(1, 12)
  root = 32**0.5
  assert tiny.error(logits('sinusoidal', tokens, embed_scale=root), logits('sinusoidal', tokens)) < 1e-6
  assert tiny.error(logits('rope', tokens, embed_scale=1.0), logits('rope', tokens)) < 1e-6
  assert tiny.error(logits('rope', tokens, embed_scale=root), logits('rope', tokens)) > 1e-3


def test_a_cache_refuses_what_does_not_fit():
  """Field case P02: dynamic_update_slice would overwrite the last slots."""
  config, enc, params = tiny.made('rope')
  tokens = tiny.tokens(1, 4)
  pos, doc = tiny.row(4, total=4)
  cache = kv.create(config.model, enc, 1, 6, 6)
  _, cache = model.apply(config, enc, params, tokens, (pos, doc), cache=cache)
  with pytest.raises(ConfigError, match='4 \\+ 4 tokens do not fit its 6 slots'):
    model.apply(config, enc, params, tokens, (pos + 4, doc), cache=cache)
  with pytest.raises(ConfigError, match='declared length of 7 tokens does not fit 6 slots'):
    kv.create(config.model, enc, 1, 6, 7)


def test_a_new_token_at_position_zero_is_another_answer():
  """Source document 003, B31: wrong ids still generate, and differ."""
  config, enc, params = tiny.made('rope')
  tokens = tiny.tokens(1, 8)
  pos, doc = tiny.row(8, total=8)
  cache = kv.create(config.model, enc, 1, 8, 8)
  _, cache = model.apply(config, enc, params, tokens[:, :7], (pos[:, :7], doc[:, :7]), cache=cache)
  right, _ = model.apply(config, enc, params, tokens[:, 7:], (pos[:, 7:], doc[:, 7:]), cache=cache)
  wrong, _ = model.apply(config, enc, params, tokens[:, 7:], (pos[:, :1], doc[:, :1]), cache=cache)
  assert tiny.error(wrong, right) > 1e-3


def test_nll_is_minus_log_softmax_in_float32():
  rng = np.random.default_rng(0)
  x, y = rng.normal(size=(2, 5, 7)) * 20, rng.integers(0, 7, (2, 5))
  expected = -np.take_along_axis(x - np.log(np.exp(x).sum(-1, keepdims=True)), y[..., None], -1)[..., 0]
  np.testing.assert_allclose(loss.nll(jnp.asarray(x, jnp.float32), jnp.asarray(y)), expected, atol=1e-4)


def test_dropout_depends_on_the_rows_own_key_alone():
  config, enc, params = tiny.made('rope', dropout=0.3)
  tokens = tiny.tokens(4, 8)
  pos, doc = (jnp.tile(x, (4, 1)) for x in tiny.row(8, total=8))
  keys = jax.random.split(jax.random.PRNGKey(3), 4)
  apply = jax.jit(lambda t, p, d, k: model.apply(config, enc, params, t, Where.forward(p, d), key_B=k))
  whole, half = apply(tokens, pos, doc, keys), apply(tokens[2:], pos[2:], doc[2:], keys[2:])
  assert tiny.error(half, whole[2:]) < 1e-5
  assert tiny.error(apply(tokens, pos, doc, None), whole) > 1e-3


def test_a_long_text_goes_through_the_mlp_in_pieces_with_the_same_result(monkeypatch):
  tokens = tiny.tokens(2, 12)
  whole = logits('rope', tokens)
  monkeypatch.setattr(decoder, 'PIECE', 5)  # 5, 5 and 2 positions
  assert tiny.error(logits('rope', tokens, dropout=0.1), whole) < 1e-6


def test_the_hidden_units_of_a_long_text_are_never_whole(monkeypatch):
  """By the compiler's account of the memory that a forward works in."""
  config, enc, params = tiny.made('rope', embed_dim=64, mlp_dim=1024, head_dim=16, num_heads=4)
  row = jax.ShapeDtypeStruct((1, 2**16), jnp.int32)

  def need():
    def forward(params, tokens, pos, doc):
      return model.hidden(config, enc, params, tokens, Where.forward(pos, doc))[0]

    return jax.jit(forward).lower(params, row, row, row).compile().memory_analysis().temp_size_in_bytes

  in_pieces = need()
  monkeypatch.setattr(decoder, 'PIECE', 2**16)
  assert in_pieces < need() - 2**16 * 1024 * 4 / 2
