"""Field cases: which position a token has, and what is made of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from attending import alone, dims, turned

from pe_jax import cache as kv
from pe_jax import decode, encodings, model, prompts
from pe_jax.encodings import frequency_maps, learned, phases, rope, sinusoidal
from pe_jax.encodings.base import Where, scores
from pe_jax.errors import ConfigError
from pe_jax.selfcheck import properties


def test_p01_a_position_without_a_row_is_refused_and_every_other_answer_has_a_name():
  """A learned table of 4 rows refuses length 5 before anything is traced; clamping and its like are named in the encoding, and so in rows.

  More: tests/test_claims_shown.py::test_a_table_of_rows_that_is_read_past_its_end_answers_in_jax
  """
  enc = encodings.make('learned(max_length=4)', dims())
  model.check_length(enc, 4)
  with pytest.raises(ConfigError, match='has 4 positions and cannot serve length 5'):
    model.check_length(enc, 5)
  table_PD, at_BT = jnp.arange(4.0)[:, None], jnp.asarray([[0, 3, 4, 100]])
  for policy, rows in {'clip': [0, 3, 3, 3], 'wrap': [0, 3, 0, 0], 'mean': [0, 3, 1.5, 1.5]}.items():
    assert learned.lookup(table_PD, at_BT, overflow=policy)[0, :, 0].tolist() == rows
    assert policy in encodings.make(f"learned(max_length=4, overflow='{policy}')", dims()).spec


def test_p02_a_full_cache_refuses_and_phases_at_an_offset_are_rows_of_the_one_table():
  """A fifth token does not fit four slots and is refused; phases are made from positions, so that no table is sliced past its end.

  More: tests/test_model.py::test_a_cache_refuses_what_does_not_fit
  """
  config, enc, _ = tiny.made('rope')
  where = alone(4)
  _, cache, _ = kv.extend(kv.create(config.model, enc, 1, 4, 4), where.i_BT, where.qdoc_BT)
  with pytest.raises(ConfigError, match=r'cache: 4 \+ 1 tokens do not fit its 4 slots'):
    kv.extend(cache, jnp.asarray([[4]]), jnp.asarray([[1]]))
  whole = phases.cos_sin(jnp.arange(1002), rope.frequencies(64))
  for start in (0, 1, 15, 16, 1000):
    for part, table in zip(phases.cos_sin(jnp.arange(start, start + 2), rope.frequencies(64)), whole):
      np.testing.assert_allclose(part, table[start : start + 2], rtol=0, atol=2e-7)


def test_p08_phases_are_float32_whatever_the_dtype_of_the_model():
  """The angle is exact whatever the model's dtype: cos is within 1e-6 of float64 at 32767, within .002 after a cast to bfloat16.

  More: tests/encodings/test_values.py::test_phases_are_right_to_a_millionth_up_to_a_million
  """
  at_T = np.asarray([255, 1023, 4095, 32_767])
  exact_TF = np.cos(np.outer(at_T, rope.frequencies(64)))
  cos_TF, _ = phases.cos_sin(jnp.asarray(at_T), rope.frequencies(64))
  assert np.abs(cos_TF - exact_TF).max() < 1e-6
  assert np.abs(np.asarray(cos_TF.astype(jnp.bfloat16), np.float64) - exact_TF).max() <= 0.002
  x = jnp.ones((1, 4, 1, 64), jnp.bfloat16)
  _, tables, q, _ = turned('rope', dims(), alone(4), x, x)
  assert {leaf.dtype.name for leaf in jax.tree.leaves(tables)} == {'float32'}
  assert q.dtype == jnp.bfloat16


def test_p09_a_prompt_padded_on_the_left_goes_on_as_it_would_alone():
  """Prompts of 3 and 7 tokens in one batch: each goes on at its own next position and gives the tokens that it gives alone.

  More: tests/test_decode.py::test_a_batch_gives_what_each_prompt_gives_alone
  """
  given = tiny.made('learned(max_length=64)')
  rows = [np.asarray(tiny.tokens(1, n, seed=n)[0]) for n in (3, 7)]
  both = decode.generate(*given, *prompts.padded(rows), new_tokens=5)
  assert both.position_BL[0, :8].tolist() == list(range(8))
  for n, row in enumerate(rows):
    one = decode.generate(*given, row[None], new_tokens=5)
    assert both.tokens[n].tolist() == one.tokens[0].tolist()
    np.testing.assert_allclose(both.logp[n], one.logp[0], atol=1e-4)


def test_p18_the_two_layouts_turn_other_pairs_and_a_permutation_maps_one_to_the_other():
  """[1, 2, 3, 4] at position 1 has the two printed results; the layout is a field of the encoding, and a permutation leads across.

  More: tests/encodings/test_maps.py::test_a_layout_is_a_permutation_of_the_other
  """
  x, one, across = jnp.asarray([1.0, 2, 3, 4]).reshape(1, 1, 1, 4), jnp.asarray([[1]]), jnp.asarray([0, 2, 1, 3])
  half, interleaved = (rope.rotate(x, one, rope.frequencies(4), layout).ravel() for layout in ('half', 'interleaved'))
  np.testing.assert_allclose(half, [-1.984111, 1.959901, 2.462378, 4.0198], atol=1e-5)
  np.testing.assert_allclose(interleaved, [-1.14264, 1.922076, 2.959851, 4.0298], atol=1e-5)
  moved = rope.rotate(x[..., across], one, rope.frequencies(4), 'interleaved').ravel()
  np.testing.assert_allclose(moved, half[across], atol=1e-6)
  assert str(encodings.parse("rope(layout='interleaved')")) == "rope(layout='interleaved')"


def test_p34_every_layer_sees_the_same_positions_and_no_slot_is_left_out():
  """Three layers, 9 tokens and then 4 one at a time: slots 0 .. 12 without a hole in every layer, and the logits of one forward.

  More: tests/test_decode.py::test_every_layer_fills_slot_after_slot_at_positions_that_rise_by_one
  """
  config, enc, params = tiny.made('sinusoidal', num_layers=3)
  tokens, (pos, doc) = tiny.tokens(1, 13), tiny.row(13, total=13)
  extend = properties.quick_jit(lambda cache, t, p, d: model.apply(config, enc, params, t, (p, d), cache=cache))
  cache, parts = kv.create(config.model, enc, 1, 13, 13), []
  for a, b in ((0, 9), (9, 10), (10, 11), (11, 12), (12, 13)):
    logits, cache = extend(cache, tokens[:, a:b], pos[:, a:b], doc[:, a:b])
    parts.append(logits)
  assert cache.pos_BS[0].tolist() == list(range(13))
  assert all((np.abs(k).max(1) > 0).all() for k in cache.k)
  assert tiny.error(jnp.concatenate(parts, axis=1), tiny.forward('sinusoidal', num_layers=3)(params, tokens, pos, doc)) < 1e-4


@pytest.mark.parametrize('heads', [3, 5])
def test_p35_tokens_are_turned_and_not_heads_and_once(heads):
  """Position 0 changes no head, a common shift by 7 no score, also with as many heads as tokens; [1, 0] at 1 is turned once.

  More: tests/encodings/test_values.py::test_rope_equals_its_formula
  """
  x = jnp.asarray(np.random.default_rng(0).normal(size=(1, 5, heads, 4)), jnp.float32)
  near, far = (rope.rotate(x, alone(5, start).i_BT, rope.frequencies(4)) for start in (0, 7))
  np.testing.assert_array_equal(near[:, 0], x[:, 0])
  assert not np.allclose(near[:, 1], x[:, 1])
  np.testing.assert_allclose(scores(near, near), scores(far, far), atol=1e-5)
  unit = rope.rotate(jnp.asarray([1.0, 0]).reshape(1, 1, 1, 2), jnp.asarray([[1]]), rope.frequencies(2))
  np.testing.assert_allclose(unit.ravel(), [0.540302, 0.841471], atol=1e-6)


def test_p36_a_quarter_of_a_head_has_the_frequencies_of_its_own_width():
  """16 of 64 dimensions turn at 1, 10^-1/2, 10^-1 …: frequencies of a width of 16, pairs inside it, and the other 48 stay to the bit.

  More: tests/encodings/test_values.py::test_a_quarter_of_head_dim_sixty_four_turns_at_the_printed_frequencies
  """
  printed = [1, 0.316228, 0.1, 0.0316228, 0.01, 0.00316228, 0.001, 0.000316228]
  np.testing.assert_allclose(rope.checked_frequencies(64, 1e4, 0.25, 'half'), printed, rtol=1e-5)
  x = jnp.asarray(np.random.default_rng(0).normal(size=(1, 3, 1, 64)), jnp.float32)
  *_, q, _ = turned('rope(fraction=0.25)', dims(), alone(3), x, x)
  np.testing.assert_array_equal(q[..., 16:], x[..., 16:])
  np.testing.assert_allclose(q[0, 1, 0, 0], x[0, 1, 0, 0] * np.cos(1) - x[0, 1, 0, 8] * np.sin(1), atol=1e-6)


def test_p41_the_orders_of_a_sinusoidal_table_are_named():
  """Width 8, position 1: the paper's order, the same numbers with all sines first, and another encoding whose denominator is half - 1.

  More: tests/encodings/test_values.py::test_sinusoidal_equals_its_formula
  """
  paper = [0.841471, 0.540302, 0.099833, 0.995004, 0.01, 0.99995, 0.001, 1]
  rows = {layout: sinusoidal.table(jnp.asarray(1), 8, layout=layout) for layout in ('interleaved', 'concat', 'tensor2tensor')}
  np.testing.assert_allclose(rows['interleaved'], paper, atol=1e-6)
  np.testing.assert_allclose(rows['concat'], paper[::2] + paper[1::2], atol=1e-6)
  np.testing.assert_allclose(rows['tensor2tensor'][:4], [0.841471, 0.046399, 0.002154, 0.0001], atol=1e-6)
  with pytest.raises(ConfigError, match='needs an even width, not 7'):
    sinusoidal.table(jnp.asarray(1), 7)


def test_p43_interpolated_positions_keep_their_fractions():
  """At s = 4 position 400 turns as 100 does and 402 as 100.5: cos of the first pair .999521, and not the .862319 of 100.

  More: tests/encodings/test_values.py::test_linear_puts_position_402_at_100_and_a_half
  """
  plain_F = rope.frequencies(64)
  mapped_F, factor = frequency_maps.linear(plain_F, factor=4)
  assert factor == 1
  for mapped, plain in zip(phases.cos_sin(jnp.asarray([400]), mapped_F), phases.cos_sin(jnp.asarray([100]), plain_F)):
    np.testing.assert_allclose(mapped, plain, atol=1e-6)
  assert float(phases.cos_sin(jnp.asarray([402]), mapped_F)[0][0, 0]) == pytest.approx(0.999521, abs=2e-6)


def test_p46_small_heads_work_odd_ones_are_refused_and_padding_changes_no_scale():
  """Widths 4 and 8 turn, 5 is refused; a head of 64 padded to 128 keeps the scale 1/8 and its scores.

  More: tests/test_kernels.py::test_heads_are_padded_to_whole_lanes
  """
  for width in (4, 8):
    encodings.make('rope', dims(width=width))
  with pytest.raises(ConfigError, match='cannot split a width of 5'):
    encodings.make('rope', dims(width=5))
  q, k = jnp.asarray(np.random.default_rng(0).normal(size=(2, 1, 3, 1, 64)), jnp.float32)
  wide = [jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, 64))) for x in (q, k)]
  np.testing.assert_allclose(scores(*wide, width=64), scores(q, k), atol=1e-5)
  assert float(scores(jnp.ones((1, 1, 1, 64)), jnp.ones((1, 1, 1, 64)))[0, 0, 0, 0]) == 64 * 0.125


def test_p49_drawn_positions_rise_within_each_document_and_evaluation_can_repeat_them():
  """Two documents in a row, range 64: strictly rising ids below 64 in each, the same draw at every evaluation; xPos decodes as it reads.

  More: tests/encodings/test_draws.py::test_randomized_is_drawn_anew_in_training_and_fixed_at_evaluation
  """
  enc = encodings.make('randomized(sinusoidal, range=64)', dims(train_length=16))
  pos, doc = tiny.row(7, 9, total=16)
  drawn = enc.placed(Where.forward(pos, doc))
  for number in (1, 2):
    ids = drawn.i_BT[doc == number]
    assert (np.diff(ids) > 0).all()
    assert 0 <= ids[0] <= ids[-1] < 64
  np.testing.assert_array_equal(drawn.i_BT, enc.placed(Where.forward(pos, doc)).i_BT)
  assert enc.traits.positions == '1 seeded draw of increasing positions below 64'
  assert properties.cached_decoding_equals_one_forward_under_the_declared_length('xpos') < 1e-4
