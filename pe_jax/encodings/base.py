"""What an encoding is: a record of pure functions for the places where position can enter a transformer.

The model and the attention ask what a record does (`if enc.rotate:`) and never what it is called. Axis letters, here and everywhere:
B batch, T queries, S keys, H heads, G key-value heads, K head width, D model width, F frequencies, V vocabulary, N layers.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Dims:
  """What an encoding may know of the model it serves."""

  num_heads: int
  num_kv_heads: int
  head_dim: int
  embed_dim: int
  train_length: int


@functools.partial(
  jax.tree_util.register_dataclass,
  data_fields=['i_BT', 'j_BS', 'qdoc_BT', 'kdoc_BS', 'qlen_BT', 'klen_BS', 'offset'],
  meta_fields=['longest', 'causal', 'contiguous'],
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

  @classmethod
  def forward(cls, pos_BT, doc_BT, causal=True, contiguous=True, length=None):
    """Queries and keys are the same tokens. A document is one run of equal ids in its row, as long as that run unless declared."""
    len_BT = run_length(doc_BT) if length is None else jnp.full_like(doc_BT, length)
    longest = max(doc_BT.shape[1], length or 0)
    return cls(pos_BT, pos_BT, doc_BT, doc_BT, len_BT, len_BT, 0, longest, causal, contiguous)

  def distance_BTS(self):
    """Query position minus key position."""
    return self.i_BT[:, :, None] - self.j_BS[:, None, :]

  def visible_BTS(self):
    """True where a query may attend: a real key of its own document that is not in its future."""
    same = (self.qdoc_BT[:, :, None] == self.kdoc_BS[:, None, :]) & (self.kdoc_BS[:, None, :] > 0)
    return same & (self.distance_BTS() >= 0) if self.causal else same

  def queries(self, start, size):
    """The cut to queries start .. start + size - 1."""
    cut = functools.partial(jax.lax.dynamic_slice_in_dim, start_index=start, slice_size=size, axis=1)
    return dataclasses.replace(self, i_BT=cut(self.i_BT), qdoc_BT=cut(self.qdoc_BT), qlen_BT=cut(self.qlen_BT), offset=self.offset + start)


def run_length(doc_BT):
  """Length of the run of equal ids that each token stands in: [1, 1, 2, 0] -> [2, 2, 1, 1]."""
  size = doc_BT.shape[1]
  index_1T = jnp.arange(size, dtype=jnp.int32)[None]
  new_BT = jnp.concatenate([jnp.ones_like(doc_BT[:, :1], bool), doc_BT[:, 1:] != doc_BT[:, :-1]], axis=1)
  last_BT = jnp.concatenate([new_BT[:, 1:], jnp.ones_like(new_BT[:, :1])], axis=1)
  start_BT = jax.lax.cummax(jnp.where(new_BT, index_1T, 0), axis=1)
  end_BT = jax.lax.cummin(jnp.where(last_BT, index_1T, size), axis=1, reverse=True)
  return end_BT - start_BT + 1


def scores(q_BTHK, k_BSGK):
  """q . k / sqrt(K), float32 (B, H, T, S); each key head serves H/G query heads."""
  batch, queries, heads, width = q_BTHK.shape
  q_BTGRK = q_BTHK.reshape(batch, queries, k_BSGK.shape[2], -1, width)
  s_BGRTS = jnp.einsum('btgrk,bsgk->bgrts', q_BTGRK, k_BSGK, preferred_element_type=jnp.float32)
  return s_BGRTS.reshape(batch, heads, queries, -1) * width**-0.5


@dataclasses.dataclass(frozen=True)
class Traits:
  """What an encoding declares about itself; tests/encodings/test_contract.py checks that it is true.

  Attributes:
    relative: a common shift of all positions changes nothing.
    length_dependent: what a token sees depends on the length of its document, so that a prefix is not a short document.
    max_length: positions from here on cannot be served; None: any can.
    cache: 'rotated' if a key's rotation depends on its own position alone and never changes, 'raw' if keys are turned when read.
  """

  relative: bool = False
  length_dependent: bool = False
  max_length: int | None = None
  cache: str = 'rotated'


@dataclasses.dataclass(frozen=True)
class Encoding:
  """The record. Everything but `traits` may be None.

  Attributes:
    init: (key) -> params, the learned parameters.
    embed: (params, x_BTD, where) -> x_BTD, once, after the token embedding.
    prepare: (params, where) -> tables, ONCE a forward: phases, slopes, whatever all layers share. Tables that `distance_bias` uses must not
      depend on `where`, so that blocks can be computed from positions alone.
    rotate: (tables, q_BTHK, k_BSGK) -> q, k, in every layer; they may come out wider.
    distance_bias: (tables, distance, heads) -> float32 (len(heads), *distance.shape), added to the scaled scores.
    bias: (tables, where) -> float32 broadcastable to (B, H, T, S), added like `distance_bias`. Depends on positions.
    score: (tables, q_BTHK, k_BSGK, where) -> float32 (B, H, T, S), instead of q . k / sqrt(K), for whole rows. Depends on content.
    visible: (tables, where) -> bool broadcastable to (B, H, T, S): what else a query may not see.
    normalise: (s_BHTS, visible) -> weights (B, H, T, S), instead of softmax.
    spec: the canonical string that makes this record again.
  """

  traits: Traits = Traits()
  init: Callable | None = None
  embed: Callable | None = None
  prepare: Callable | None = None
  rotate: Callable | None = None
  distance_bias: Callable | None = None
  bias: Callable | None = None
  score: Callable | None = None
  visible: Callable | None = None
  normalise: Callable | None = None
  spec: str = ''

  def parameters(self, key):
    """The learned parameters, {} where there are none."""
    return self.init(key) if self.init else {}

  def tables(self, params, where):
    """`prepare`'s tables, None where there are none."""
    return self.prepare(params, where) if self.prepare else None
