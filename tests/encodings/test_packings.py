"""Documents packed in rows in every way, against each document by itself: its formula in float64, or pe_jax on a row of its own.

Hypothesis draws the lengths of documents (one token too), padding before, between and after them, and a common shift of all positions;
each row is taken by models with different numbers of heads and paths through the attention. What is compared is one layer: embedding,
projections, all that a record does, attention. Rows have one length, so that a spec is compiled once for each model.
"""

import dataclasses
import functools
import math

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import tiny
from hypothesis import strategies as st

from pe_jax import attention, encodings
from pe_jax.encodings.base import Dims, Where
from pe_jax.selfcheck.properties import SPECS, quick_jit

TOTAL, TRAIN_LENGTH, WIDTH, HEAD_WIDTH, NUM_LAYERS = 24, 8, 16, 8, 2  # documents are shorter and longer than in training
ROPE = np.asarray(oracle.frequencies(HEAD_WIDTH))


@dataclasses.dataclass(frozen=True)
class Model:
  """Heads of queries and of keys, and the path through the attention."""

  heads: int
  groups: int
  method: str = 'dense'
  contiguous: bool = True


# Each query head its own keys, several heads one key head, all heads one; powers of two and not.
MODELS = [Model(4, 4), Model(6, 2, 'blockwise'), Model(3, 1, 'chunked', contiguous=False)]
EVEN = [Model(4, 4), Model(6, 2, 'blockwise'), Model(2, 1, 'chunked', contiguous=False)]


@dataclasses.dataclass(frozen=True)
class Row:
  """Runs of tokens (negative: padding), and what is added to all positions."""

  runs: tuple
  shift: int

  def arrays(self):
    """(pos, doc), each (1, TOTAL)."""
    pos, doc = tiny.row(*self.runs, total=TOTAL)
    return pos + self.shift, doc

  def documents(self):
    """[(start, length)]"""
    starts = np.cumsum([0, *map(abs, self.runs)])
    return [(int(start), n) for start, n in zip(starts, self.runs) if n > 0]


@st.composite
def rows(draw, farthest):
  """A row with at least one document; shifts up to `farthest`."""
  runs, left = [], TOTAL
  for n in draw(st.lists(st.integers(1, TOTAL) | st.just(1) | st.integers(-4, -1), min_size=3, max_size=8)):
    runs.append(max(min(n, left), -left))
    left -= abs(n)
    if left <= 0:
      break
  hypothesis.assume(any(n > 0 for n in runs))
  return Row(tuple(runs), draw(st.integers(0, farthest)))


@functools.cache
def weights(model):
  """{'query': (D, H, K), 'key': (D, G, K), 'value': (D, G, K)}, float32."""
  rng = np.random.default_rng(0)
  counts = {'query': model.heads, 'key': model.groups, 'value': model.groups}
  return {name: 1.5 * WIDTH**-0.5 * rng.normal(size=(WIDTH, n, HEAD_WIDTH)).astype(np.float32) for name, n in counts.items()}


TOKENS = np.random.default_rng(1).normal(size=(1, TOTAL, WIDTH)).astype(np.float32)


@functools.cache
def made(spec, model):
  """(encoding, parameters of its shapes). Drawn with numpy: jax would compile a generator for every shape."""
  enc = encodings.make(spec, Dims(model.heads, model.groups, HEAD_WIDTH, WIDTH, TRAIN_LENGTH, NUM_LAYERS))
  rng = np.random.default_rng(2)

  def draw(x):
    return jnp.asarray(0.5 * rng.normal(size=x.shape) if x.shape else rng.uniform(1, 8), jnp.float32)

  return enc, jax.tree.map(draw, jax.eval_shape(enc.parameters, jax.random.PRNGKey(1)))


@functools.cache
def compiled(spec, model):
  """Jitted (params, weights, x, pos, doc) -> the heads' outputs in the last layer, or in all that differ; float32 (layers, T, H, K)."""
  enc, _ = made(spec, model)

  def apply(params, weights, x_BTD, pos_BT, doc_BT):
    where = Where.forward(pos_BT, doc_BT, contiguous=model.contiguous)
    x_BTD = enc.embed(params, x_BTD, where) if enc.embed else x_BTD
    tables = enc.tables(params, where)
    qkv = [jnp.einsum('btd,dhk->bthk', x_BTD, weights[name]) for name in ('query', 'key', 'value')]
    return jnp.concatenate([one(enc.at_layer(n), tables, x_BTD, *qkv, where) for n in which(spec)])

  def one(record, tables, x_BTD, q, k, v, where):
    q, k = record.rotate(tables, q, k) if record.rotate else (q, k)
    where = dataclasses.replace(where, side=record.token(tables, x_BTD) if record.token else None)
    return attention.attend(record, tables, q, k, v, where, model.method, chunk=16)

  return quick_jit(apply)


def which(spec):
  """The layers to look at."""
  return range(NUM_LAYERS) if spec.startswith('layers') else [NUM_LAYERS - 1]


def outputs(spec, model, x, row):
  """(layers, TOTAL, H, K)."""
  return np.asarray(compiled(spec, model)(made(spec, model)[1], weights(model), x, *row.arrays()))


@dataclasses.dataclass(frozen=True)
class Document:
  """A document by itself, in float64: its embeddings, positions, and the parameters of its encoding."""

  model: Model
  params: dict
  layer: int
  x: np.ndarray
  pos: np.ndarray

  def projected(self, name):
    """(H, n, K); a key head is repeated for the query heads that it serves."""
    y = np.einsum('nd,dhk->hnk', self.x, weights(self.model)[name].astype(np.float64))
    return np.repeat(y, self.model.heads // len(y), axis=0)

  @property
  def q(self):
    """Queries."""
    return self.projected('query')

  @property
  def k(self):
    """Keys."""
    return self.projected('key')

  @property
  def distance(self):
    """Query position minus key position, (n, n)."""
    return self.pos[:, None] - self.pos[None]

  @property
  def own(self):
    """The parameters of this layer."""
    return self.params[f'layer_{self.layer}']


def dots(d):
  """Scaled scores, (H, n, n)."""
  return np.einsum('hik,hjk->hij', d.q, d.k) / math.sqrt(HEAD_WIDTH)


def at_distance(d, frequency=ROPE, factor=1.0, distance=None):
  """Rotary scores, each from its distance alone: a pair of dimensions is a complex number. The others are not turned."""
  n, distance = len(frequency), d.distance if distance is None else distance
  a, b = (x[..., :n] + 1j * x[..., n : 2 * n] for x in (d.q, d.k))
  turned = np.einsum('hic,hjc,ijc->hij', a, b.conj(), np.exp(1j * distance[..., None] * np.asarray(frequency))).real
  return (factor**2 * turned + np.einsum('hik,hjk->hij', d.q[..., 2 * n :], d.k[..., 2 * n :])) / math.sqrt(HEAD_WIDTH)


def softmax(s, seen=True):
  """Over the keys up to each query."""
  s = np.where(np.tri(s.shape[-1], dtype=bool) & seen, s, -np.inf)
  weight = np.exp(s - s.max(-1, keepdims=True))
  return weight / weight.sum(-1, keepdims=True)


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def alibi(d, heads=None):
  return oracle.alibi_bias(oracle.alibi_slopes(heads or d.model.heads), d.distance)


def t5(d):
  bucket = np.vectorize(lambda x: oracle.t5_bucket(x, 8, 12))
  return np.moveaxis(d.params['table'][bucket(d.distance)], -1, 0)


def fire(d):
  def psi(x):
    return np.log(abs(d.params['c']) * x + 1)

  x = psi(np.maximum(d.distance, 0)) / psi(np.maximum(abs(d.params['threshold']), d.pos))[:, None]
  hidden = np.maximum(x[..., None] * d.params['w1'] + d.params['b1'], 0)
  return np.moveaxis(hidden @ d.params['w2'], -1, 0)


def fox(d):
  kept = np.cumsum(np.log(sigmoid(d.x @ d.own['weight'] + d.own['bias'])), axis=0).T
  return kept[:, :, None] - kept[:, None]


def cope(d):
  s, table = dots(d), d.own['table']
  gate, out = sigmoid(s), dots(d)
  for h, i, j in np.ndindex(s.shape):
    if j <= i:
      place = min(gate[h, i, j : i + 1].sum(), len(table) - 1)
      low, high = math.floor(place), math.ceil(place)
      out[h, i, j] += d.q[h, i] @ (table[low] + (place - low) * (table[high] - table[low]))
  return out


def pope(d):
  q, k = (np.log1p(np.exp(x)) for x in (d.q, d.k))
  delta = np.repeat(np.clip(d.own['delta'], -2 * np.pi, 0), d.model.heads // d.model.groups, axis=0)
  angle = d.distance[..., None] * 10_000.0 ** (-np.arange(HEAD_WIDTH) / HEAD_WIDTH)
  return np.einsum('hic,hjc,hijc->hij', q, k, np.cos(angle[None] - delta[:, None, None])) / math.sqrt(HEAD_WIDTH)


def transformer_xl(d):
  u, v = d.own['u'][:, None], d.own['v'][:, None]
  angle = d.distance[..., None] * np.asarray(oracle.frequencies(WIDTH))
  read = np.einsum('ijd,dhk->hijk', np.concatenate([np.sin(angle), np.cos(angle)], axis=-1), d.own['w'])
  return (np.einsum('hik,hjk->hij', d.q + u, d.k) + np.einsum('hik,hijk->hij', d.q + v, read)) / math.sqrt(HEAD_WIDTH)


def stick_breaking(d):
  share, out = sigmoid(dots(d)), np.zeros_like(dots(d))
  for h, i, j in np.ndindex(out.shape):
    if j < i:
      out[h, i, j] = share[h, i, j] * np.prod(1 - share[h, i, j + 1 : i])
  return out


def sinks(d, first=4, window=TRAIN_LENGTH - 4):
  near = d.distance < window
  distance = np.where(near, d.distance, np.minimum(d.pos, first + window - 1)[:, None] - d.pos[None])
  return softmax(at_distance(d, distance=distance), near | (d.pos < first)[None])


def log_visible(d):
  return np.log(np.arange(1, len(d.pos) + 1))[:, None]


# The weights of each head, from the papers' formulas. A token sees the tokens up to itself.
FORMULAS = {
  'nope': lambda d: softmax(dots(d)),
  'rope': lambda d: softmax(at_distance(d)),
  'rope(fraction=0.5)': lambda d: softmax(at_distance(d, oracle.frequencies(HEAD_WIDTH // 2))),
  'yarn(factor=2)': lambda d: softmax(at_distance(d, *oracle.yarn(ROPE, 2.0, 1e4, TRAIN_LENGTH))),
  'dynamic_ntk(factor=2)': lambda d: softmax(at_distance(d, *oracle.dynamic_ntk(ROPE, 2.0, 1e4, TRAIN_LENGTH, len(d.pos)))),
  'alibi': lambda d: softmax(dots(d) + alibi(d)),
  't5(num_buckets=8, max_distance=12)': lambda d: softmax(dots(d) + t5(d)),
  'fire(threshold=8.0)': lambda d: softmax(dots(d) + fire(d)),
  'sinusoidal': lambda d: softmax(dots(d)),
  'learned(max_length=64)': lambda d: softmax(dots(d)),
  'fox': lambda d: softmax(dots(d) + fox(d)),
  'cope(npos_max=6)': lambda d: softmax(cope(d)),
  'pope': lambda d: softmax(pope(d)),
  'transformer_xl': lambda d: softmax(transformer_xl(d)),
  'stick_breaking': stick_breaking,
  'sinks': sinks,
  'layers(rope, alibi)': lambda d: softmax(at_distance(d) if d.layer == 0 else dots(d) + alibi(d)),
  'heads(nope, alibi)': lambda d: softmax(dots(d) + np.concatenate([np.zeros_like(a := alibi(d, d.model.heads // 2)), a])),
  'log_n(rope)': lambda d: softmax(at_distance(d) * log_visible(d) / math.log(TRAIN_LENGTH)),
  "ssmax(rope, count='document')": lambda d: softmax(
    at_distance(d) * d.params['1'][f'layer_{d.layer}']['strength'][:, None, None] * math.log(len(d.pos))
  ),
}  # fmt: skip
# What is added to the embeddings.
ADDED = {
  'sinusoidal': lambda d: oracle.sinusoidal(d.pos, WIDTH),
  'learned(max_length=64)': lambda d: d.params['table'][d.pos],
}
REST = [spec for spec in SPECS if spec not in FORMULAS]

PHASES = (hypothesis.Phase.generate, hypothesis.Phase.shrink)  # explaining a failure takes a minute
every = hypothesis.settings(derandomize=True, deadline=None, print_blob=False, database=None, phases=PHASES, max_examples=20)
some = hypothesis.settings(every, max_examples=6)


def by_formula(spec, model, row, start, n):
  """(layers, n, H, K), float64."""
  enc, params = made(spec, model)
  params = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
  pos = np.arange(n) + (0 if enc.traits.relative else row.shift)
  out = []
  for layer in which(spec):
    d = Document(model, params, layer, TOKENS[0, start : start + n].astype(np.float64), pos)
    d = dataclasses.replace(d, x=d.x + ADDED[spec](d)) if spec in ADDED else d
    out.append(np.einsum('hij,hjk->ihk', FORMULAS[spec](d), d.projected('value')))
  return np.stack(out)


@pytest.mark.parametrize('spec', [pytest.param(s, marks=pytest.mark.xdist_group(s)) for s in FORMULAS])
def test_every_document_of_a_packed_row_follows_its_formula(spec):
  """Relative encodings at the positions from 0 on, whatever the shift; padding gives exactly 0."""
  models = EVEN if spec.startswith('heads') else MODELS
  farthest = 1_000_000 if made(spec, models[0])[0].traits.relative else 40

  @every
  @hypothesis.given(rows(farthest))
  def holds(row):
    for model in models:
      out = outputs(spec, model, TOKENS, row)
      assert not out[:, np.asarray(row.arrays()[1][0]) == 0].any()
      for start, n in row.documents():
        assert tiny.error(out[:, start : start + n], by_formula(spec, model, row, start, n)) < 1e-5, (model, start, n)

  holds()


@pytest.mark.parametrize('spec', [pytest.param(s, marks=pytest.mark.xdist_group(s)) for s in REST])
def test_every_document_of_a_packed_row_is_as_if_alone(spec):
  """On a row of its own, from the first slot on."""
  model = Model(4, 2)
  farthest = 1_000_000 if made(spec, model)[0].traits.relative else 40

  @some
  @hypothesis.given(rows(farthest))
  def holds(row):
    out = outputs(spec, model, TOKENS, row)
    assert not out[:, np.asarray(row.arrays()[1][0]) == 0].any()
    for start, n in row.documents():
      alone = outputs(spec, model, np.roll(TOKENS, -start, axis=1), Row((n,), row.shift))
      assert tiny.error(out[:, start : start + n], alone[:, :n]) < 1e-5, (start, n)

  holds()
