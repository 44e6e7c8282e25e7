"""What holds for every encoding, each property measured on one encoding in a tiny model of two layers.

`PROPERTIES` is {short name: (function, tolerance)}. A function takes a spec and gives its worst error, a number that must not be above
the tolerance (0: equal to the last bit), or a word where what is true is no number, such as 'refused' (tolerance None: always). What is
simply false raises AssertionError. tests/encodings/test_contract.py asserts them one by one, matrix.py there prints them all, and the
self-check asserts those that depend on the backend.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from pe_jax import attention, encodings, loss, model, optim
from pe_jax import cache as kv
from pe_jax.encodings.base import Where
from pe_jax.errors import ConfigError
from pe_jax.selfcheck import tiny

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
  'cope': 'cope(npos_max=6)',
  'randomized': 'randomized(sinusoidal, range=128)',
  'pose': 'pose(sinusoidal, range=128)',
  'shifted': 'shifted(learned(max_length=128), range=128)',
  'stack': 'stack(rope, alibi)',
  'layers': 'layers(rope, alibi)',
  'heads': 'heads(nope, alibi)',
  'log_n': 'log_n(rope)',
  'ssmax': 'ssmax(alibi)',
  'llama4_temperature': 'llama4_temperature(floor_scale=8)',
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
  "log_n(rope, count='document')",
  "ssmax(rope, count='document')",
  'dape(alibi)',
  'stack(rope, learned_sinks)',
  'stack(fox, rope)',
  'layers(fox, cope(npos_max=6))',
  'layers(rope, llama4_temperature(floor_scale=8))',
  'heads(rope, t5(num_buckets=8, max_distance=12))',
  'heads(hard_alibi, nope)',
  'heads(stick_breaking, fox)',
  'heads(rerope(window=5), self_extend(group=2, window=5))',
)
SPECS = [SETTINGS.get(name, name) for name in encodings.names()] + list(MORE)
LENGTH = 24


def quick_jit(function):
  """`jax.jit` for programs of which compilation is nearly all of the time. Other backends need not know the CPU's option."""
  return jax.jit(function, compiler_options={'xla_backend_optimization_level': 0} if jax.default_backend() == 'cpu' else {})


def run(spec, tokens, pos, doc, **options):
  """Logits of the tiny model."""
  return tiny.forward(spec, **options)(tiny.made(spec)[2], tokens, pos, doc)


def pair(a, b):
  """Two rows as one batch: (pos, doc)."""
  return tuple(jnp.concatenate(x) for x in zip(a, b, strict=True))


def worst(pairs):
  """The largest `tiny.error` of pairs (got, expected); NaN if any is."""
  return float(np.max([tiny.error(a, b) for a, b in pairs]))


def the_canonical_string_makes_the_same_encoding_again(spec):
  """What `make` writes into a record is read back as the same text, by `make` and by `parse`."""
  dims = model.dims(tiny.config())
  once = encodings.make(spec, dims).spec
  for text in (encodings.make(once, dims).spec, str(encodings.parse(once))):
    assert text == once, f'{once} comes back as {text}'
  return 'same'


@functools.lru_cache(4)
def attended(spec, method):
  """Attention of two packed documents along one path: its output, and gradients by queries, keys, values and every learned leaf."""
  pos, doc = tiny.row(9, 11, total=LENGTH)
  _, whole, params = tiny.made(spec)
  enc, x = whole.at_layer(1), jax.random.normal(jax.random.PRNGKey(9), (1, LENGTH, 32))
  q, k, v, weight = (jax.random.normal(jax.random.PRNGKey(n), (1, LENGTH, heads, 8)) for n, heads in enumerate((4, 2, 2, 4)))

  def attend(q, k, v, params):
    where = Where.forward(pos, doc)
    tables = whole.tables(params, where)
    where = dataclasses.replace(where, side=enc.token(tables, x) if enc.token else None)
    q, k = enc.rotate(tables, q, k) if enc.rotate else (q, k)
    out = attention.attend(enc, tables, q, k, v, where, method, chunk=10)
    return jnp.sum(out * weight), out

  (_, out), gradient = quick_jit(jax.value_and_grad(attend, argnums=(0, 1, 2, 3), has_aux=True))(q, k, v, params['encoding'])
  return [out, *jax.tree.leaves(gradient)]


def chunked_attention_equals_dense_in_value_and_gradient(spec):
  """Chunks of queries and rows as a whole."""
  return worst(zip(attended(spec, 'chunked'), attended(spec, 'dense'), strict=True))


def blockwise_attention_equals_dense_in_value_and_gradient(spec):
  """Blocks of queries and keys and rows as a whole. What must see whole rows is not taken in blocks."""
  if attention.whole_rows(tiny.made(spec)[1].at_layer(1)):
    return 'rows'
  return worst(zip(attended(spec, 'blockwise'), attended(spec, 'dense'), strict=True))


def cached_decoding_equals_one_forward_under_the_declared_length(spec):
  """In steps of nine tokens and of one, the second prompt padded on the left."""
  declared = 32
  config, enc, params = tiny.made(spec)
  tokens = tiny.tokens(2, LENGTH)
  pos, doc = pair(tiny.row(LENGTH, total=LENGTH), tiny.row(-4, 20, total=LENGTH))
  whole = tiny.forward(spec, length=declared)(params, tokens, pos, doc)
  extend = quick_jit(lambda cache, t, p, d: model.apply(config, enc, params, t, (p, d), cache=cache))
  cache, parts = kv.create(config.model, enc, 2, declared, declared), []
  for start, end in ((0, 9), (9, 10), (10, 11), (11, 20), (20, 21), (21, 22), (22, 23), (23, 24)):
    logits, cache = extend(cache, tokens[:, start:end], pos[:, start:end], doc[:, start:end])
    parts.append(logits)
  decoded = jnp.concatenate(parts, axis=1)
  return worst([(decoded[0], whole[0]), (decoded[1, 4:], whole[1, 4:])])


def a_packed_document_is_as_if_alone(spec):
  """The second of two documents of one row gives the logits it has at the start of a row of its own."""
  tokens = tiny.tokens(1, LENGTH)
  packed = run(spec, tokens, *tiny.row(9, 13, total=LENGTH))
  alone = run(spec, jnp.roll(tokens, -9, axis=1), *tiny.row(13, total=LENGTH))
  return worst([(packed[:, 9:22], alone[:, :13])])


def a_packed_document_does_not_know_its_neighbours(spec):
  """Other tokens in the documents before and after it change nothing in it."""
  tokens, other = tiny.tokens(1, LENGTH), tiny.tokens(1, LENGTH, seed=1)
  pos, doc = tiny.row(9, 6, 7, total=LENGTH)
  mixed = jnp.where(doc == 2, tokens, other)
  a, b = run(spec, tokens, pos, doc), run(spec, mixed, pos, doc)
  assert not np.array_equal(a[:, 15:22], b[:, 15:22]), 'the neighbour itself has not changed'
  return worst([(b[:, 9:15], a[:, 9:15])])


def a_later_token_changes_nothing_before_it(spec):
  """Other tokens from the tenth on change the logits from there on, and none before."""
  tokens, other = tiny.tokens(1, LENGTH), tiny.tokens(1, LENGTH, seed=1)
  pos, doc = tiny.row(LENGTH, total=LENGTH)
  changed = tokens.at[:, 10:].set(other[:, 10:])
  a, b = run(spec, tokens, pos, doc), run(spec, changed, pos, doc)
  assert not np.array_equal(a[:, 10:], b[:, 10:]), 'the later logits have not changed'
  return worst([(b[:, :10], a[:, :10])])


def left_padding_changes_nothing(spec):
  """Six slots of padding before a document, or after it."""
  tokens = tiny.tokens(1, LENGTH)
  right = run(spec, tokens, *tiny.row(18, total=LENGTH))
  left = run(spec, jnp.roll(tokens, 6, axis=1), *tiny.row(-6, 18, total=LENGTH))
  return worst([(left[:, 6:], right[:, :18])])


def rows_of_a_batch_do_not_know_each_other(spec):
  """Two rows together give what each gives alone."""
  pos, doc = pair(tiny.row(LENGTH, total=LENGTH), tiny.row(7, 9, total=LENGTH))
  tokens = tiny.tokens(2, LENGTH)
  together = run(spec, tokens, pos, doc)
  rows = [slice(n, n + 1) for n in range(2)]
  return worst([(together[row], run(spec, tokens[row], pos[row], doc[row])) for row in rows])


def a_common_shift_of_positions_changes_nothing_iff_relative(spec):
  """5000 positions further on for what declares itself relative, 7 for what does not."""
  _, enc, _ = tiny.made(spec)
  tokens = tiny.tokens(1, LENGTH)
  pos, doc = tiny.row(LENGTH, total=LENGTH)
  shift = 5000 if enc.traits.relative else 7
  change = worst([(run(spec, tokens, pos + shift, doc), run(spec, tokens, pos, doc))])
  if enc.traits.relative:
    return change
  assert change > 1e-3, f'declared not relative, and a shift by {shift} changes only {change:.0e}'
  return 'absolute'


def a_prefix_is_a_short_document_iff_the_length_does_not_matter(spec):
  """The first 12 of 24 tokens against the same 12 alone."""
  _, enc, _ = tiny.made(spec)
  tokens = tiny.tokens(1, LENGTH)
  long = run(spec, tokens, *tiny.row(LENGTH, total=LENGTH))[:, :12]
  short = run(spec, tokens, *tiny.row(12, total=LENGTH))[:, :12]
  change = worst([(short, long)])
  if not enc.traits.length_dependent:
    return change
  assert change > 1e-3, f'declared dependent on the length, and half of it changes only {change:.0e}'
  return 'length'


def four_times_the_training_length_is_finite_or_refused(spec):
  """And one token more. What has too few positions says how many."""
  config, enc, params = tiny.made(spec)
  length, rows = 4 * config.train_length + 1, enc.traits.max_length
  tokens = tiny.tokens(1, length)
  pos, doc = tiny.row(length, total=length)
  if rows is None or rows >= length:
    assert np.isfinite(run(spec, tokens, pos, doc)).all(), f'length {length} gives a logit that is not finite'
    return 'finite'
  try:
    model.apply(config, enc, params, tokens, Where.forward(pos, doc))
    said = 'nothing'
  except ConfigError as error:
    said = str(error)
  expected = f'{rows} positions and cannot serve length {length}'
  assert expected in said, f'{expected}; what was said: {said}'
  return 'refused'


def every_learned_leaf_gets_a_finite_gradient_and_it_is_not_zero(spec):
  """Over positions within the training length; the decoder's gradients are finite too."""
  pos, doc = tiny.row(tiny.TRAIN_LENGTH, total=tiny.TRAIN_LENGTH)
  tokens = tiny.tokens(1, tiny.TRAIN_LENGTH)
  params = tiny.made(spec)[2]
  gradient = jax.grad(lambda p: jnp.sum(loss.nll(tiny.forward(spec)(p, tokens, pos, doc), tokens)))(params)
  for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
    assert np.isfinite(leaf).all(), f'the gradient of {jax.tree_util.keystr(path)} is not finite'
  for path, leaf in jax.tree_util.tree_leaves_with_path(gradient['encoding']):
    assert np.abs(leaf).max() > 0, f'the gradient of {jax.tree_util.keystr(path)} is zero'
  return 'flows' if gradient['encoding'] else 'none'


def what_learns_nothing_owns_no_parameters_and_no_optimizer_state(spec):
  """An encoding without `init` has no leaf anywhere; Adam keeps two moments of each leaf of the others, and nothing more."""
  _, enc, params = tiny.made(spec)
  learned = jax.tree.leaves(params['encoding'])
  assert bool(learned) == (enc.init is not None), f'init is {enc.init} and there are {len(learned)} parameters'
  config = tiny.config().copy_and_resolve_references()
  config.unlock()
  config.optim.warmup_steps = 1
  state = jax.eval_shape(optim.make(config).init, params)
  kept = [x.shape for path, x in jax.tree_util.tree_leaves_with_path(state) if "'encoding'" in jax.tree_util.keystr(path)]
  assert kept == 2 * [x.shape for x in learned], f'{len(learned)} parameters, and optimizer state of shapes {kept}'
  return 'learned' if learned else 'none'


def bfloat16_activations_keep_float32_phases_and_biases(spec):
  """The median over five rows of the root mean square of errors: these large weights make attention nearly hard, and keys may swap."""
  _, enc, params = tiny.made(spec)
  pos, doc = tiny.row(LENGTH, total=LENGTH)
  shift = 4096 if enc.traits.relative else 0  # a phase or a bias in bfloat16 would be lost there

  def error(seed):
    tokens = tiny.tokens(1, LENGTH, seed)
    narrow, wide = tiny.forward(spec, dtype='bfloat16')(params, tokens, pos + shift, doc), run(spec, tokens, pos, doc)
    assert narrow.dtype == jnp.float32, f'logits: {narrow.dtype}'
    return np.sqrt(np.mean((narrow - wide) ** 2) / np.mean(wide**2))

  median = float(np.median([error(seed) for seed in range(5)]))
  dtypes = {}
  if enc.embed:
    x = jnp.zeros((1, LENGTH, 32), jnp.bfloat16)
    dtypes['embeddings'] = (enc.embed(params['encoding'], x, Where.forward(pos, doc)).dtype, jnp.bfloat16)
  enc, tables = enc.at_layer(1), enc.tables(params['encoding'], Where.forward(pos, doc))
  if enc.rotate:
    dtypes |= {f'table {n}': (leaf.dtype, jnp.float32) for n, leaf in enumerate(jax.tree.leaves(tables))}
    q, k = jnp.ones((1, LENGTH, 4, 8), jnp.bfloat16), jnp.ones((1, LENGTH, 2, 8), jnp.bfloat16)
    dtypes |= {f'rotated {name}': (x.dtype, jnp.bfloat16) for name, x in zip('qk', enc.rotate(tables, q, k))}
  if enc.distance_bias:
    dtypes['bias'] = (enc.distance_bias(tables, jnp.arange(5)).dtype, jnp.float32)
  for name, (got, expected) in dtypes.items():
    assert got == expected, f'{name}: {got}, not {jnp.dtype(expected)}'
  return median


PROPERTIES = {
  'name': (the_canonical_string_makes_the_same_encoding_again, None),
  'chunked': (chunked_attention_equals_dense_in_value_and_gradient, 1e-5),
  'blocks': (blockwise_attention_equals_dense_in_value_and_gradient, 1e-5),
  'decoded': (cached_decoding_equals_one_forward_under_the_declared_length, 1e-4),
  'packed': (a_packed_document_is_as_if_alone, 1e-5),
  'exact': (a_packed_document_does_not_know_its_neighbours, 0),
  'causal': (a_later_token_changes_nothing_before_it, 0),
  'left pad': (left_padding_changes_nothing, 1e-5),
  'batch': (rows_of_a_batch_do_not_know_each_other, 1e-5),
  'shift': (a_common_shift_of_positions_changes_nothing_iff_relative, 1e-4),
  'prefix': (a_prefix_is_a_short_document_iff_the_length_does_not_matter, 1e-5),
  '4 x': (four_times_the_training_length_is_finite_or_refused, None),
  'gradient': (every_learned_leaf_gets_a_finite_gradient_and_it_is_not_zero, None),
  'state': (what_learns_nothing_owns_no_parameters_and_no_optimizer_state, None),
  'bfloat16': (bfloat16_activations_keep_float32_phases_and_biases, 4e-2),
}


def holds(value, tolerance):
  """Whether what a property's function gave is right. A word is, NaN is not."""
  return isinstance(value, str) or value <= tolerance


def failure(function, value, tolerance):
  """A sentence on what was not right."""
  return f'{function.__doc__} An error of {value:.1e}, and {tolerance} is allowed.'
