"""Mixtures: several encodings at once, by layer and by head, and the strings that name them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from pe_jax import encodings
from pe_jax.encodings import grammar
from pe_jax.encodings.base import Dims, Where
from pe_jax.errors import ConfigError

DIMS = Dims(num_heads=4, num_kv_heads=2, head_dim=8, embed_dim=32, train_length=16, num_layers=4)
T5 = 't5(num_buckets=8, max_distance=12)'


def run(spec, params=None):
  tokens = tiny.tokens(1, 20)
  return tiny.forward(spec)(params or tiny.made(spec)[2], tokens, *tiny.row(8, 12, total=20))


@pytest.mark.parametrize('spec', ['rope', 'alibi', 'sinks', 'fox', 'pope', 'stick_breaking'])
@pytest.mark.parametrize('wrapper', ['stack', 'heads', 'layers'])
def test_a_mixture_of_one_is_that_one(wrapper, spec):
  params = tiny.made(spec)[2]
  inner = {'0': params['encoding']} if params['encoding'] else {}
  assert tiny.error(run(f'{wrapper}({spec})', params | {'encoding': inner}), run(spec)) < 1e-5


def test_equal_layers_share_their_parameters_as_without_the_list():
  params = tiny.made(T5)[2]
  assert tiny.error(run(f'layers({T5}, {T5})', params | {'encoding': {'0': params['encoding']}}), run(T5)) < 1e-5


def test_layers_are_cycled_over_depth():
  enc = encodings.make('layers(rope, nope, alibi)', DIMS)
  assert [bool(enc.at_layer(n).rotate) for n in range(4)] == [True, False, False, True]
  assert [bool(enc.at_layer(n).distance_bias) for n in range(4)] == [False, False, True, False]


def test_a_layer_without_rope_and_the_other_without_is_neither_rope_nor_nope():
  mixed, back = run('layers(rope, nope)'), run('layers(nope, rope)')
  for other in (run('rope'), run('nope'), back):
    assert tiny.error(mixed, other) > 1e-3


def test_parameters_are_for_the_layers_that_use_them():
  enc = encodings.make('layers(fox, nope)', DIMS)
  assert list(enc.parameters(jax.random.PRNGKey(0))['0']) == ['layer_0', 'layer_1']


def test_heads_have_the_slopes_of_their_own_number():
  """NAPE on 4 heads: no bias on the first two, the slopes of 2 heads, 1/16 and 1/256, on the others."""
  enc = encodings.make('heads(nope, alibi)', DIMS).at_layer(0)
  where = Where.forward(*tiny.row(3, total=3))
  got = enc.distance_bias(encodings.make('heads(nope, alibi)', DIMS).tables({}, where), jnp.arange(3))
  np.testing.assert_allclose(got, [[0, 0, 0], [0, 0, 0], [0, -1 / 16, -2 / 16], [0, -1 / 256, -2 / 256]])


def test_biases_add_up_in_a_stack():
  tokens = tiny.tokens(1, 12)
  row = tiny.row(12, total=12)
  half = 'alibi(slopes=(0.25, 0.125, 0.0625, 0.03125))'
  whole = 'alibi(slopes=(0.5, 0.25, 0.125, 0.0625))'
  a, b = (tiny.forward(s)(tiny.made('nope')[2], tokens, *row) for s in (f'stack({half}, {half})', whole))
  assert tiny.error(a, b) < 1e-5


def test_hard_alibi_sees_its_last_tokens():
  enc = encodings.make('hard_alibi', DIMS)
  seen = np.asarray(enc.visible(None, Where.forward(*tiny.row(6, total=6))))[0] & np.tril(np.ones((6, 6), bool))
  for h in range(4):
    assert seen[h, 5].tolist() == [j > 5 - (h + 1) for j in range(6)]


REFUSED = [
  ('stack(rope, pope)', r"'rope' and 'pope' both turn queries and keys; stack\(…\) takes one"),
  ('stack(cope, rerope)', 'both replace the score'),
  ('stack(learned_sinks, stick_breaking)', 'both replace the softmax'),
  ('stack(rope, randomized(rope))', 'cannot stand inside stack'),
  ('layers(rope, sinusoidal)', "'sinusoidal' cannot stand inside layers"),
  ('layers(rope, rope, rope, rope, nope)', 'lists 5 encodings and the model has 4 layers'),
  ('heads(nope, alibi, rope)', '4 heads cannot be shared out equally'),
  ('heads(nope, nope, nope, rope)', r"'rope' needs keys of its own and 2 key-value heads cannot be shared out among 4"),
  ('heads(learned, nope)', "'learned' cannot stand inside heads"),
  ('dape(rope)', "'rope' is not just one"),
  ('rope(alibi)', 'rope takes no encoding inside and got 1'),
  ('stack', r'stack needs encodings inside, as in stack\(rope, alibi\)'),
  ('hard_alibi(windows=(1, 2))', '2 windows for 4 heads'),
  ('hard_alibi(windows=(0, 1, 2, 3))', 'at least 1'),
  ('stack(rope, alibbi)', r"'alibbi' is unknown \(did you mean 'alibi'\?\)"),
  ('stack(rope, 3)', 'cannot be read'),
]


@pytest.mark.parametrize(('spec', 'message'), REFUSED, ids=[s for s, _ in REFUSED])
def test_what_cannot_be_mixed_is_refused(spec, message):
  with pytest.raises(ConfigError, match=message):
    encodings.make(spec, DIMS)


def test_heads_of_different_widths_are_refused_before_compilation():
  with pytest.raises(ConfigError, match=r'turn heads of 8 into different widths \[8, 16\]'):
    run(
      'heads(pope, rope)', tiny.made('nope')[2] | {'encoding': encodings.make('heads(pope, rope)', DIMS).parameters(jax.random.PRNGKey(0))}
    )


def test_cope_beside_a_rotation_that_widens_heads_is_refused_before_compilation():
  params = tiny.made('nope')[2] | {'encoding': encodings.make('stack(pope, cope)', DIMS).parameters(jax.random.PRNGKey(0))}
  with pytest.raises(ConfigError, match='cope has embeddings of head_dim=8, and beside it queries are 16 wide'):
    run('stack(pope, cope)', params)


@pytest.mark.parametrize(
  ('text', 'canonical'),
  [
    ('stack( rope ,alibi )', 'stack(rope, alibi)'),
    ('randomized(sinusoidal, range=2048)', 'randomized(sinusoidal)'),
    ('layers(rope(base=10000), rope, yarn(factor=8), nope)', 'layers(rope, rope, yarn(factor=8), nope)'),
    ('log_n(rope(map="yarn", factor=2))', 'log_n(yarn(factor=2))'),
    ('dape', 'dape(kerple)'),
    ('heads(layers(rope, nope), alibi)', 'heads(layers(rope, nope), alibi)'),
  ],
)
def test_a_mixture_has_one_canonical_string(text, canonical):
  spec = encodings.parse(text)
  assert str(spec) == canonical
  assert encodings.parse(str(spec)) == spec
  assert grammar.parse(canonical) == spec


def test_maps_inside_a_mixture_take_the_factor_of_the_length():
  spec = encodings.at_length(encodings.parse('layers(yarn, nope)'), 64, 16)
  assert str(spec) == 'layers(yarn(factor=4), nope)'


@pytest.mark.parametrize(
  ('asked', 'trained', 'read'),
  [
    # A rotary encoding by itself stands where one stood, and what has encodings inside is read as it is written.
    ('yarn(factor=8)', 'layers(rope(base=500000), nope)', 'layers(yarn(factor=8, base=500000), nope)'),
    ('layers(yarn(factor=8))', 'layers(rope(base=500000), nope)', 'layers(yarn(factor=8, base=500000))'),
    ('rope', 'layers(rope(base=500000), nope)', 'layers(rope(base=500000), nope)'),
    ('yarn', 'stack(rope(base=500), hard_alibi(windows=(7, 7)))', 'stack(yarn(base=500), hard_alibi(windows=(7, 7)))'),
    ('self_extend', 'stack(rope(base=500), alibi)', 'stack(self_extend(base=500), alibi)'),
    ('stack(rope)', 'stack(rope(base=500), alibi)', 'stack(rope(base=500))'),
    ('ntk', 'layers(rope(base=100), stack(rope(base=200), alibi))', 'layers(ntk(base=100), stack(ntk(base=200), alibi))'),
    ('yarn', 'layers(log_n(rope(base=500)), nope)', 'layers(log_n(yarn(base=500)), nope)'),
    ('yarn', 'heads(nope, alibi)', 'yarn'),
    ('alibi', 'stack(rope, alibi)', 'alibi'),
    ('yarn', 'pose(rope(base=500))', 'yarn(base=500)'),
    ('layers(yarn, nope)', 'layers(rope(base=500000), nope)', 'layers(yarn(base=500000), nope)'),
    ('log_n(rope)', 'rope(fraction=0.5)', 'log_n(rope(fraction=0.5))'),
    ('layers(rope, ntk)', 'layers(rope(base=100), rope(base=200))', 'layers(rope(base=100), ntk(base=200))'),
  ],
)
def test_what_is_left_open_comes_from_training_part_by_part(asked, trained, read):
  assert str(encodings.inherit(encodings.check_name(asked), encodings.parse(trained))) == read


@pytest.mark.parametrize(
  ('read', 'trained', 'left_out'),
  [
    ('yarn(factor=4)', 'rope', []),
    ('self_extend', 'rope(base=500)', []),
    ('layers(yarn)', 'layers(rope, nope)', ['nope']),
    ('rope', 'stack(rope, hard_alibi(windows=(7, 7)))', ['hard_alibi(windows=(7, 7))']),
    ('nope', 'stack(rope, alibi)', ['alibi', 'rope']),
  ],
)
def test_what_a_reading_leaves_out_of_the_trained_encoding_is_told(read, trained, left_out):
  assert encodings.left_out(encodings.parse(read), encodings.parse(trained)) == left_out
