"""Kernels of accelerators against attention over whole rows, run as plain JAX; what they refuse; and each device on its own rows."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import tiny_runs as runs
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from pe_jax import attention, encodings, evaluate, kernels, model, optim, parallel, resolve, step
from pe_jax.data import packing
from pe_jax.encodings import kerple
from pe_jax.encodings.base import Dims, Encoding, Where
from pe_jax.errors import ConfigError
from pe_jax.kernels import cudnn, flash, layout, splash

DIMS = Dims(4, 2, 8, 32, 16)
NOPE = Encoding()
T5 = 't5(num_buckets=8, max_distance=12)'


@pytest.fixture(autouse=True, scope='module')
def quick():
  with runs.quick_compiles():
    yield


def draw(batch, length, width=8, wide=8, keys=None):
  """Queries, keys, values of two key heads for four, and weights that make a number of the output."""
  rng, keys = np.random.default_rng(0), keys or length
  shapes = ((batch, length, 4, wide), (batch, keys, 2, wide), (batch, keys, 2, width), (batch, length, 4, width))
  return [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]


def rows(length):
  """Two rows of packed documents with padding at the end, and at the start."""
  pair = tiny.row(9, 11, total=length), tiny.row(-3, length - 10, total=length)
  return tuple(jnp.concatenate(x) for x in zip(*pair, strict=True))


def check(got, expected, tolerance=2e-6):
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
    assert np.isfinite(a).all()
    assert tiny.error(a, b) < tolerance


def compare(attend, reference, args, weight, tolerance=2e-6):
  """Output and gradients for every leaf of `args`, of both."""

  def of(f):
    def total(*args):
      out = f(*args)
      return jnp.sum(out * weight), out

    (_, out), gradients = jax.jit(jax.value_and_grad(total, tuple(range(len(args))), has_aux=True))(*args)
    return [out, gradients]

  got = of(attend)
  check(got, of(reference), tolerance)
  return got


@pytest.mark.parametrize(('spec', 'causal'), [('alibi', True), (T5, True), ('kerple', True), ('nope', True), (T5, False)])
def test_flash_equals_whole_rows_in_value_and_gradient(spec, causal):
  """Packed documents, padding, grouped key heads, a length that blocks do not divide; gradients of learned tables too."""
  enc, (pos, doc) = encodings.make(spec, DIMS), rows(40)
  q, k, v, weight = draw(2, 40)

  def attend(kernel, q, k, v, params):
    where = Where.forward(pos, doc, causal)
    tables = enc.tables(params, where)
    if not kernel:
      return attention.attend(enc, tables, q, k, v, where, 'dense')
    bias = (lambda distance: enc.distance_bias(tables, distance)) if enc.distance_bias else None
    return flash.attend(q, k, v, where, bias, block=16, interpret=True)

  args = (q, k, v, enc.parameters(jax.random.PRNGKey(0)))
  out, gradients = compare(functools.partial(attend, True), functools.partial(attend, False), args, weight)
  padding = np.asarray(doc) == 0
  assert padding.any()
  for x in (out, *gradients[:3]):
    assert np.array_equal(x[padding], np.zeros_like(x[padding]))  # exactly 0, as what sees nothing and is seen by nobody


def test_the_kernel_takes_a_formula_of_positions_and_gives_its_parameters_their_gradient():
  """KERPLE, from the two numbers of each head."""
  q, k, v, weight = draw(2, 40)
  where = Where.forward(*rows(40))

  def formula(row_1X, i_1T, j_S1):
    return -row_1X[:, :1] * jnp.log1p(row_1X[:, 1:] * jnp.abs(i_1T - j_S1))

  def attend(q, k, v, row_HX):
    return flash.attend(q, k, v, where, bias=formula, rows_HX=row_HX, block=16, interpret=True)

  def reference(q, k, v, row_HX):
    enc = Encoding(distance_bias=lambda tables, distance: kerple.bias(row_HX[:, 0], row_HX[:, 1], distance))
    return attention.attend(enc, None, q, k, v, where, 'dense')

  numbers_HX = jnp.linspace(0.1, 1.5, 8).reshape(4, 2)
  compare(attend, reference, (q, k, v, numbers_HX), weight)


def test_toeplitz_is_a_shift_a_row_and_its_gradient_sums_diagonals():
  for size in (8, 24, 48):
    at, values = jnp.arange(size), jax.random.normal(jax.random.PRNGKey(0), (1, 2 * size))
    distance = at[None] - at[:, None] + size - 1
    weight = jax.random.normal(jax.random.PRNGKey(1), (size, size))
    compare(lambda x: flash.toeplitz(x, at[None], at[:, None]), lambda x: x[0, distance], (values,), weight)  # noqa: B023


def test_queries_may_look_into_more_keys_than_there_are_queries():
  """As of a prompt in a cache: the offset is not known before the program runs."""
  enc = encodings.make('alibi', DIMS)
  pos, doc = rows(40)
  q, k, v, weight = draw(2, 12, keys=40)

  def where(start):
    return Where.forward(pos, doc).queries(start, 12)

  def attend(q, k, v):
    bias = functools.partial(enc.distance_bias, None)
    return jax.jit(lambda start: flash.attend(q, k, v, where(start), bias, block=8, interpret=True))(19)

  compare(attend, lambda q, k, v: attention.attend(enc, None, q, k, v, where(19), 'dense'), (q, k, v), weight)


def test_blocks_that_nobody_can_see_are_not_computed():
  """Values of another document, or of the future, that are no numbers would be in every sum that they are in."""
  pos, doc = tiny.row(8, 8, 16, total=32)
  q, k, v, weight = draw(1, 32)
  attend = jax.jit(lambda q, v: flash.attend(q, k, v, Where.forward(pos, doc), block=8, interpret=True))
  for hidden, seen in ((slice(0, 16), slice(16, 32)), (slice(24, 32), slice(0, 24))):
    out, pull = jax.vjp(attend, q, v.at[:, hidden].set(jnp.nan))
    assert np.isfinite(out[:, seen]).all()
    assert np.isfinite(pull(weight.at[:, hidden].set(0))[0][:, seen]).all()


@pytest.mark.parametrize(('spec', 'causal'), [('rope', True), ('pope', True), ('log_n(nope)', True), ('rope', False)])
def test_splash_equals_whole_rows_in_value_and_gradient(spec, causal):
  """Through attention.attend, with what turns queries and keys, widens them, or sets their temperature."""
  enc, (pos, doc) = encodings.make(spec, DIMS), rows(150)
  q, k, v, weight = draw(2, 150)

  def attend(method, q, k, v):
    where = Where.forward(pos, doc, causal)
    tables = enc.tables(params, where)
    q, k = enc.at_layer(0).rotate(tables, q, k) if enc.at_layer(0).rotate else (q, k)
    return attention.attend(enc.at_layer(0), tables, q, k, v, where, method, 128, 'interpret')

  params = enc.parameters(jax.random.PRNGKey(0))
  where = Where.forward(pos, doc, causal)
  assert attention.choose(enc.at_layer(0), 150, 150, 'auto', 'tpu', kernels.Case.of_arrays(q, v, where)) == 'splash'
  compare(functools.partial(attend, 'auto'), functools.partial(attend, 'dense'), (q, k, v), weight)


@pytest.mark.parametrize('kernel', [flash.attend, splash.attend])
def test_bfloat16_goes_in_and_out_and_scores_are_float32(kernel):
  pos, doc = rows(150)
  *qkv, _ = draw(2, 150)
  narrow = [x.astype(jnp.bfloat16) for x in qkv]
  where = Where.forward(pos, doc)
  out = jax.jit(lambda q, k, v: kernel(q, k, v, where, block=128, interpret=True))(*narrow)
  assert out.dtype == jnp.bfloat16
  assert tiny.error(out, attention.attend(NOPE, None, *qkv, where, 'dense')) < 2e-2


def test_heads_are_padded_to_whole_lanes():
  x = jnp.ones((2, 40, 4, 8))
  assert layout.heads_first(x, 16).shape == (2, 4, 48, 128)
  assert float(layout.heads_first(x, 16).sum()) == x.size


@pytest.mark.parametrize('causal', [True, False])
def test_cudnn_is_asked_for_what_equals_whole_rows(monkeypatch, causal):
  """What stands in for it is JAX's own attention, asked with the same arguments."""
  xla = functools.partial(jax.nn.dot_product_attention)

  def stand_in(*args, implementation, **options):
    assert implementation == 'cudnn'
    return xla(*args, implementation='xla', **options)

  monkeypatch.setattr(jax.nn, 'dot_product_attention', stand_in)
  pos, doc = (jnp.concatenate(x) for x in zip(tiny.row(40, total=40), tiny.row(25, total=40), tiny.row(total=40), strict=True))
  q, k, v, weight = draw(3, 40, wide=16)  # queries and keys are wider than values
  where = Where.forward(pos, doc, causal, single=True)
  compare(
    lambda q, k, v: cudnn.attend(q, k, v, where), lambda q, k, v: attention.attend(NOPE, None, q, k, v, where, 'dense'), (q, k, v), weight
  )


CHOICES = {
  # encoding: on a TPU; there over a cache; on NVIDIA, rows of one document each
  'nope': ('splash', 'flash', 'cudnn'),
  'rope': ('splash', 'flash', 'cudnn'),
  'log_n(rope)': ('splash', 'flash', 'cudnn'),
  'alibi': ('flash', 'flash', 'blockwise'),
  't5': ('flash', 'flash', 'blockwise'),
  'kerple': ('flash', 'flash', 'blockwise'),
  'stack(rope, alibi)': ('flash', 'flash', 'blockwise'),
  'ssmax(alibi)': ('blockwise', 'blockwise', 'blockwise'),
  'fire': ('blockwise', 'blockwise', 'blockwise'),
  'hard_alibi': ('blockwise', 'blockwise', 'blockwise'),
  'cope': ('chunked', 'chunked', 'chunked'),
}


@pytest.mark.parametrize('spec', CHOICES)
def test_the_path_follows_from_what_a_record_does(spec):
  record = encodings.make(spec, DIMS).at_layer(0)
  case = functools.partial(kernels.Case, dtype='bfloat16', single=True)
  choose = functools.partial(attention.choose, record, 4096, 4096, 'auto')
  assert (choose('tpu', case()), choose('tpu', case(same=False)), choose('cuda', case())) == CHOICES[spec]
  assert choose('cpu', case()) in ('blockwise', 'chunked')
  assert attention.choose(record, 1, 4096, 'auto', 'tpu', case(same=False)) == 'dense'


@pytest.mark.parametrize('case', [{'single': False}, {'dtype': 'float32'}, {'width': 136}, {'width': 12}, {'same': False}])
def test_what_cudnn_cannot_do_goes_blockwise(case):
  assert attention.choose(NOPE, 4096, 4096, 'auto', 'cuda', kernels.Case(**({'dtype': 'bfloat16', 'single': True} | case))) == 'blockwise'


@pytest.mark.parametrize(
  ('changes', 'match'),
  [
    (
      {'encoding': 'alibi', 'model__attention': 'splash'},
      r"^model.attention: 'splash' cannot serve 'alibi', which adds a bias;",
    ),
    ({'encoding': 'cope', 'model__attention': 'flash'}, "'flash' cannot serve 'cope.*', which replaces the score"),
    ({'encoding': 'layers(rope, fire)', 'model__attention': 'flash', 'model__num_layers': 2}, "'fire', which adds a bias that is not by"),
    ({'encoding': 'randomized(alibi, range=64)', 'model__attention': 'flash'}, 'at positions that do not rise by one'),
    ({'encoding': 'ssmax(alibi)', 'model__attention': 'flash'}, 'a temperature over a bias'),
    ({'encoding': 'rope', 'model__attention': 'cudnn'}, r"'cudnn' cannot honour documents, .*data.packing='pad' puts one in each"),
    ({'encoding': 'rope', 'model__attention': 'cudnn', 'data__packing': 'pad'}, 'takes 16-bit numbers and no float32'),
    (
      {'encoding': 'rope', 'model__attention': 'splash', 'model__platform': 'cuda'},
      "'splash' is no kernel of this platform, .* cuda",
    ),
  ],
)
def test_a_kernel_that_cannot_serve_refuses_before_anything_is_compiled(changes, match):
  with pytest.raises(ConfigError, match=match):
    resolve.resolve(runs.config(**changes))


def test_a_kernel_of_another_platform_refuses_when_it_is_called_and_not_when_a_checkpoint_is_read():
  config = resolve.resolve(runs.config(encoding='rope', model__attention='splash'))
  enc = encodings.make('rope', model.dims(config))
  tokens, (pos, doc) = tiny.tokens(1, 32), tiny.row(32, total=32)
  params = jax.eval_shape(lambda: model.init(config, enc, jax.random.PRNGKey(0)))
  with pytest.raises(ConfigError, match="'splash' is no kernel of this platform, which is cpu"):
    jax.eval_shape(lambda p: model.apply(config, enc, p, tokens, Where.forward(pos, doc)), params)
  assert attention.reading(config).model.attention == 'auto'
  with pytest.raises(ConfigError, match="'cudnn' cannot honour documents"):
    cudnn.attend(*draw(1, 16)[:3], Where.forward(pos, doc))


def test_evaluation_knows_whether_rows_hold_one_document_each():
  one, several = (packing.windows([np.arange(n) for n in sizes], 8, None) for sizes in ((17, 9), (17, 4, 4)))
  assert [evaluate.score.one_document_each(rows) for rows in (one, several)] == [True, False]


# --- each device on its own rows ---


def made(devices, platform, spec='kerple', count=8, **changes):
  """(spread, state, batch) of a run on texts long enough for a kernel."""
  base = {'encoding': spec, 'train_length': 150, 'batch_size': count, 'model__platform': platform}
  c = resolve.resolve(runs.config(**(base | changes)))
  enc, tx = encodings.make(c.encoding, model.dims(c)), optim.make(c)
  spread = parallel.make(c, step.make(c, enc, tx), step.make_eval(c, enc), devices)
  rng = np.random.default_rng(0)
  batch = (
    packing.windows([rng.integers(0, 256, n).astype(np.int32) for n in rng.integers(60, 400, 24)], 150, 256).take(range(count)).as_dict()
  )
  del batch['source']
  state = spread.put_state(step.init(c, enc, tx))
  return spread, state, batch | {'row': np.arange(count, dtype=np.int32)}


def one_step(count, platform, **changes):
  """What a step makes of a state, and the sums of an evaluation."""
  spread, state, batch = made(jax.devices()[:count], platform, **changes)
  state, metrics = spread.step(state, spread.put_batch(batch))
  state = spread.get_state(state)
  sums = spread.evaluate(state.params, batch)
  return jax.device_get((metrics['loss'], metrics['gradient_norm'], sums, state.params))


def test_a_step_with_a_kernel_is_the_same_on_eight_devices():
  whole, spread = one_step(1, 'cpu', mesh__data=1), one_step(8, 'interpret', mesh__data=4, mesh__fsdp=2)
  for a, b in zip(jax.tree.leaves(spread), jax.tree.leaves(whole), strict=True):
    np.testing.assert_allclose(a, b, atol=3e-4, rtol=1e-4)


@pytest.mark.parametrize('spec', ['kerple', 'rope'])
def test_no_device_gets_the_rows_of_others(spec):
  """The kernels of the training step for eight TPUs take two of sixteen rows each."""
  spread, state, batch = made(jax.devices(), 'tpu', spec, 16, mesh__data=4, mesh__fsdp=2)
  rows = NamedSharding(parallel.mesh(resolve.resolve(runs.config(mesh__data=4, mesh__fsdp=2)), jax.devices()), P(('data', 'fsdp')))
  batch = {name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rows) for name, x in batch.items()}
  text = spread.step.trace(state, batch).lower(lowering_platforms=('tpu',)).as_text()
  calls = re.findall(r'custom_call @tpu_custom_call.*?kernel_name = "(\w+)".* : \((.*)\) ->', text)
  assert len(calls) == 3
  for name, operands in calls:
    sizes = re.findall(r'tensor<(\d+)x\d+x256x128xf32>', operands)
    assert sizes, name
    assert set(sizes) == {'2'}, (name, operands)
