"""What an encoding is: a record of pure functions for the places where position can enter a transformer.

The model and the attention ask what a record does (`if enc.rotate:`) and never what it is called. Axis letters, here and everywhere:
B batch, T queries, S keys, H heads, G key-value heads, K head width, D model width, F frequencies, V vocabulary, N layers.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from pe_jax.encodings.distances import of_distance

NUMBERS = 'numbers'  # where in the tree of parameters a record finds those it is given (`Encoding.numbers`)


@dataclasses.dataclass(frozen=True)
class Dims:
  """What an encoding may know of the model it serves."""

  num_heads: int
  num_kv_heads: int
  head_dim: int
  embed_dim: int
  train_length: int
  num_layers: int = 1


@functools.partial(
  jax.tree_util.register_dataclass,
  data_fields=['i_BT', 'j_BS', 'qdoc_BT', 'kdoc_BS', 'qlen_BT', 'klen_BS', 'offset', 'qside', 'side'],
  meta_fields=['longest', 'causal', 'contiguous', 'same', 'single'],
)
@dataclasses.dataclass(frozen=True)
class Where:
  """Where queries and keys stand. A pytree that can be cut in blocks of queries and of keys.

  Attributes:
    i_BT, j_BS: int32 position of each query and key in its document, as the model sees them.
    qdoc_BT, kdoc_BS: int32 document of each; 0 is padding or an empty cache slot.
    qlen_BT, klen_BS: int32 length its document is treated as having: its own in a forward, the declared one in decoding.
    offset: int32 scalar, index of the first query minus index of the first key in their common row.
    longest: no document's length is above this; known before tracing.
    causal: a query sees only keys at positions up to its own.
    contiguous: within a document positions rise by one with the index, so that distance = index difference.
    same: queries and keys are the same tokens, in the same order.
    single: each row begins with its only document, and the rest is padding; for kernels that know no documents.
    side: what `Encoding.token` gave for each key, leading axes (B, S); after `Encoding.sides` what a key brings to each pair.
    qside: what a query brings to each pair, leading axes (B, T); set by `Encoding.sides`.
  """

  i_BT: jax.Array
  j_BS: jax.Array
  qdoc_BT: jax.Array
  kdoc_BS: jax.Array
  qlen_BT: jax.Array
  klen_BS: jax.Array
  offset: jax.Array | int
  longest: int
  causal: bool = True
  contiguous: bool = True
  same: bool = False
  single: bool = False
  side: object = None
  qside: object = None

  @classmethod
  def forward(cls, pos_BT, doc_BT, causal=True, contiguous=True, length=None, single=False):
    """Queries and keys are the same tokens. A document is one run of equal ids in its row, as long as that run unless declared."""
    len_BT = run_length(doc_BT) if length is None else jnp.full_like(doc_BT, length)
    longest = max(doc_BT.shape[1], length or 0)
    return cls(pos_BT, pos_BT, doc_BT, doc_BT, len_BT, len_BT, 0, longest, causal, contiguous, True, single)

  def distance_BTS(self):
    """Query position minus key position."""
    return self.i_BT[:, :, None] - self.j_BS[:, None, :]

  def visible_BTS(self):
    """True where a query may attend: a real key of its own document that is not in its future."""
    same = (self.qdoc_BT[:, :, None] == self.kdoc_BS[:, None, :]) & (self.kdoc_BS[:, None, :] > 0)
    return same & (self.distance_BTS() >= 0) if self.causal else same

  def at(self, pos_BT, contiguous=False):
    """The same tokens of a forward at other positions, which rise within a document."""
    return dataclasses.replace(self, i_BT=pos_BT, j_BS=pos_BT, contiguous=contiguous)

  def queries(self, start, size):
    """The cut to queries start .. start + size - 1."""
    cut = functools.partial(jax.lax.dynamic_slice_in_dim, start_index=start, slice_size=size, axis=1)
    cuts = {name: jax.tree.map(cut, getattr(self, name)) for name in ('i_BT', 'qdoc_BT', 'qlen_BT', 'qside')}
    return dataclasses.replace(self, offset=self.offset + start, same=False, **cuts)

  def keys(self, start, size):
    """The cut to keys start .. start + size - 1."""
    cut = functools.partial(jax.lax.dynamic_slice_in_dim, start_index=start, slice_size=size, axis=1)
    cuts = {name: jax.tree.map(cut, getattr(self, name)) for name in ('j_BS', 'kdoc_BS', 'klen_BS', 'side')}
    return dataclasses.replace(self, offset=self.offset - start, same=False, **cuts)

  def own_index_T(self):
    """Index of each query among the keys: a query is a key too. Padding beyond the last key stands at the last."""
    return jnp.clip(self.offset + jnp.arange(self.i_BT.shape[1]), 0, self.j_BS.shape[1] - 1)

  def count_BT(self):
    """Number of keys that each query sees of its own document, from where it stands in it; 0 for padding."""
    own_T = self.own_index_T()
    count_BT = own_T[None] - run_start(self.kdoc_BS)[:, own_T] + 1 if self.causal else run_length(self.kdoc_BS)[:, own_T]
    return jnp.where(self.qdoc_BT > 0, count_BT, 0)


def run_start(doc_BT):
  """Index of the first token of the run of equal ids that each token stands in: [1, 1, 2, 0] -> [0, 0, 2, 3]."""
  index_1T = jnp.arange(doc_BT.shape[1], dtype=jnp.int32)[None]
  return jax.lax.cummax(jnp.where(_begins(doc_BT), index_1T, 0), axis=1)


def run_length(doc_BT):
  """Length of the run of equal ids that each token stands in: [1, 1, 2, 0] -> [2, 2, 1, 1]."""
  size = doc_BT.shape[1]
  index_1T = jnp.arange(size, dtype=jnp.int32)[None]
  last_BT = jnp.concatenate([_begins(doc_BT)[:, 1:], jnp.ones_like(doc_BT[:, :1], bool)], axis=1)
  end_BT = jax.lax.cummin(jnp.where(last_BT, index_1T, size), axis=1, reverse=True)
  return end_BT - run_start(doc_BT) + 1


def _begins(doc_BT):
  return jnp.concatenate([jnp.ones_like(doc_BT[:, :1], bool), doc_BT[:, 1:] != doc_BT[:, :-1]], axis=1)


def scores(q_BTHK, k_BSGK, width=0):
  """q . k / sqrt(width), float32 (B, H, T, S); each key head serves H/G query heads. `width`: 0 is that of the vectors given."""
  return head_scores(q_BTHK.swapaxes(1, 2), k_BSGK.swapaxes(1, 2), width)


def head_scores(q_BHTK, k_BGSK, width=0):
  """`scores` of vectors that lie head by head."""
  batch, heads, queries, given = q_BHTK.shape
  q_BGRTK = q_BHTK.reshape(batch, k_BGSK.shape[1], -1, queries, given)
  s_BGRTS = jnp.einsum('bgrtk,bgsk->bgrts', q_BGRTK, k_BGSK, preferred_element_type=jnp.float32)
  return s_BGRTS.reshape(batch, heads, queries, -1) * (width or given) ** -0.5


@dataclasses.dataclass(frozen=True)
class Traits:
  """What an encoding declares about itself; tests/encodings/test_contract.py checks that it is true.

  Attributes:
    relative: a common shift of all positions changes nothing.
    length_dependent: what a token sees depends on the length of its document, so that a prefix is not a short document.
    max_length: positions from here on cannot be served; None: any can.
    cache: 'rotated' if a key's rotation depends on its own position alone and never changes, 'raw' if keys are turned when read.
    positions: which ids the model sees, in words for result rows.
  """

  relative: bool = False
  length_dependent: bool = False
  max_length: int | None = None
  cache: str = 'rotated'
  positions: str = 'from 0 in each window'


@dataclasses.dataclass(frozen=True)
class Encoding:
  """The record. Everything but `traits` may be None.

  Attributes:
    init: (key) -> params, the learned parameters.
    positions: (key_B, where, training) -> where, other ids than 0, 1, 2 ...: drawn in training, and some at evaluation too.
    embed: (params, x_BTD, where) -> x_BTD, once, after the token embedding.
    prepare: (params, where) -> tables, ONCE a forward: phases, slopes, whatever all layers share. Tables that `distance_bias` uses must not
      depend on `where`, so that blocks can be computed from positions alone.
    numbers: (length_X) -> NumPy arrays for documents of these lengths, rising, laid out like `params`: frequencies and the like, which
      `prepare` makes itself or finds under NUMBERS in `params`. Given so they are no part of what is compiled, and one program serves all
      records that differ in nothing else (`encodings.program`).
    layer: (n) -> the record of layer n, whose functions take the same tables; None: this record serves every layer.
    token: (tables, x_BTD) -> arrays (B, T, ...), what a layer's tokens bring to scores later; kept beside their keys, as `where.side`.
    sides: (tables, where) -> where, once a layer, before pairs are looked at: from the side values of all keys to those that a pair needs.
    rotate: (tables, q_BTHK, k_BSGK) -> q, k, in every layer; they may come out wider, and scores are still divided by sqrt(head width).
    distance_bias: (tables, distance) -> float32 (H, *distance.shape), added to the scaled scores.
    bias: (tables, where) -> float32 broadcastable to (B, H, T, S), added like `distance_bias`. Depends on positions or side values.
    score: (tables, q_BTHK, k_BSGK, where) -> float32 (B, H, T, S), instead of q . k / sqrt(K), for whole rows. Depends on content.
    visible: (tables, where) -> bool broadcastable to (B, H, T, S): what else a query may not see.
    scale: (tables, where) -> float32 broadcastable to (B, H, T, 1), multiplies scores and biases: the temperature of a query's softmax.
    normalise: (tables, s_BHTS, visible) -> weights (B, H, T, S), instead of softmax.
    schedule: pairs (share of the training steps, record), in order: the record that training uses from there on. Evaluation uses this one.
    spec: the canonical string that makes this record again.
  """

  traits: Traits = Traits()
  init: Callable | None = None
  positions: Callable | None = None
  embed: Callable | None = None
  prepare: Callable | None = None
  numbers: Callable | None = None
  layer: Callable | None = None
  token: Callable | None = None
  sides: Callable | None = None
  rotate: Callable | None = None
  distance_bias: Callable | None = None
  bias: Callable | None = None
  score: Callable | None = None
  visible: Callable | None = None
  scale: Callable | None = None
  normalise: Callable | None = None
  schedule: tuple = ()
  spec: str = ''

  def parameters(self, key):
    """The learned parameters, {} where there are none."""
    return self.init(key) if self.init else {}

  def tables(self, params, where):
    """`prepare`'s tables, None where there are none."""
    return self.prepare(params, where) if self.prepare else None

  def at_layer(self, n):
    """The record of layer n, under the whole's name where it has none of its own. Keys are cached as the whole declares."""
    if not self.layer:
      return self
    record = self.layer(n)
    traits = dataclasses.replace(record.traits, cache=self.traits.cache)
    return dataclasses.replace(record, spec=record.spec or self.spec, traits=traits)

  def placed(self, where, row_B=None, key=None):
    """`where` with the ids that the model is to see.

    Args:
      where: positions from 0.
      row_B: each row's number, on which its draw depends; by default 0, 1, 2 ...
      key: training's random key; None: evaluation, with a fixed one.
    """
    if not self.positions:
      return where
    row_B = jnp.arange(where.i_BT.shape[0], dtype=jnp.int32) if row_B is None else row_B
    key_B = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.PRNGKey(0) if key is None else key, row_B)
    return self.positions(key_B, where, key is not None)

  def added(self, tables, where):
    """All that is added to the scores, broadcastable to (B, H, T, S); None where nothing is."""
    terms = [of_distance(self.distance_bias, tables, where)] if self.distance_bias else []
    terms += [self.bias(tables, where)] if self.bias else []
    return sum(terms[1:], terms[0]) if terms else None
