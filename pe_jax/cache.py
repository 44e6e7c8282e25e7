"""The KV cache: keys and values with their positions and documents, so that decoding is one forward in instalments.

Every layer's slots share one set of positions. Encodings whose rotation depends on a key's own position alone keep rotated keys
(`traits.cache == 'rotated'`); the others keep raw keys and turn them when read. What depends on a document's length uses the length
declared when the cache is made: deeper layers' keys were computed under it, so it cannot change on the way.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from pe_jax import kernels
from pe_jax.encodings.base import Where
from pe_jax.errors import ConfigError


@functools.partial(
  jax.tree_util.register_dataclass,
  data_fields=['k', 'v', 'side', 'pos_BS', 'doc_BS', 'length_B', 'used'],
  meta_fields=['longest', 'causal', 'contiguous'],
)
@dataclasses.dataclass(frozen=True)
class Cache:
  """`k` and `v` hold one array a layer, `side` what `Encoding.token` gives; `used` of S slots are filled.

  Of several rows a head's keys lie side by side, (B, G, S, K), since every step reads all of them; of one row on a CPU a token's heads do,
  (S, G K), for `attention.attend_one`: only an array that is read in the shape in which it is kept is written in place there, and any
  other is copied at each step. Slots of document 0 are seen by nobody. `length_B` is the declared length of each row's documents, none
  above `longest`.
  """

  k: tuple
  v: tuple
  side: tuple
  pos_BS: jax.Array
  doc_BS: jax.Array
  length_B: jax.Array
  used: jax.Array
  longest: int
  causal: bool = True
  contiguous: bool = True

  @property
  def capacity(self):
    """Number of slots."""
    return self.pos_BS.shape[1]


def create(model, enc, batch, capacity, length, longest=0):
  """An empty cache for `config.model`.

  Args:
    model: the config's model.
    enc: the encoding's record.
    batch, capacity: rows, and slots in each.
    length: the declared length of every document, prompt and all that is to come: a number, or one for each row.
    longest: no declared length is above it; 0: the capacity.
  """
  longest = longest or capacity
  if not isinstance(length, jax.core.Tracer) and not 1 <= (worst := int(np.max(length))) <= longest:
    raise ConfigError(f'cache: a declared length of {worst} tokens does not fit {longest} slots (the cache holds the whole document)')
  groups, width = model.num_kv_heads, model.head_dim
  flat = batch == 1 and (model.platform or kernels.here()) == 'cpu'
  shape = (capacity, groups * width) if flat else (batch, groups, capacity, width)
  empty = tuple(jnp.zeros(shape, model.dtype) for _ in range(model.num_layers))
  slots = jnp.zeros((batch, capacity), jnp.int32)
  length_B = jnp.broadcast_to(jnp.asarray(length, jnp.int32), (batch,))
  sides = _empty_sides(model, enc, batch, capacity)
  return Cache(empty, empty, sides, slots, slots, length_B, jnp.int32(0), longest, model.causal, not enc.positions)


def _empty_sides(model, enc, batch, capacity):
  """Room for each layer's side values, of the shapes that `token` gives."""
  one = jnp.ones((1, 1), jnp.int32)

  def sides(key):
    tables = enc.tables(enc.parameters(key), Where.forward(one, one))
    records = [enc.at_layer(n) for n in range(model.num_layers)]
    return tuple(r.token(tables, jnp.zeros((1, 1, model.embed_dim), model.dtype)) if r.token else None for r in records)

  shapes = jax.eval_shape(sides, jax.random.PRNGKey(0))
  return jax.tree.map(lambda x: jnp.zeros((batch, capacity, *x.shape[2:]), x.dtype), shapes)


def extend(cache, pos_BT, doc_BT):
  """Claims slots for new tokens. Returns (where, cache, where of the new tokens among themselves)."""
  new = pos_BT.shape[1]
  if not isinstance(cache.used, jax.core.Tracer) and int(cache.used) + new > cache.capacity:
    # dynamic_update_slice would clamp and overwrite the last slots without a word
    raise ConfigError(f'cache: {int(cache.used)} + {new} tokens do not fit its {cache.capacity} slots (create a larger one)')
  put = functools.partial(jax.lax.dynamic_update_slice_in_dim, start_index=cache.used, axis=1)
  pos_BS, doc_BS = put(cache.pos_BS, pos_BT), put(cache.doc_BS, doc_BT)
  len_BT, len_BS = (jnp.broadcast_to(cache.length_B[:, None], doc.shape) for doc in (doc_BT, doc_BS))
  alone = Where(pos_BT, pos_BT, doc_BT, doc_BT, len_BT, len_BT, 0, cache.longest, cache.causal, cache.contiguous)
  where = dataclasses.replace(alone, j_BS=pos_BS, kdoc_BS=doc_BS, klen_BS=len_BS, offset=cache.used)
  return where, dataclasses.replace(cache, pos_BS=pos_BS, doc_BS=doc_BS, used=cache.used + new), alone


def put(cache, n, new):
  """Layer n's (keys, values, side values) in all slots, (B, S, ...), with those of new tokens, (B, T, ...), from the first free slot on."""

  def written(slots, new, axis):
    return jax.lax.dynamic_update_slice_in_dim(slots, new.astype(slots.dtype), cache.used, axis)

  k, v, side = new
  side = jax.tree.map(lambda slots, x: written(slots, x, 1), cache.side[n], side)
  if cache.k[n].ndim == 2:
    k_SX, v_SX = (written(slots, x[0].reshape(x.shape[1], -1), 0) for slots, x in ((cache.k[n], k), (cache.v[n], v)))
    return k_SX.reshape(1, -1, *k.shape[2:]), v_SX.reshape(1, -1, *v.shape[2:]), side
  k_BGSK, v_BGSK = (written(slots, x.swapaxes(1, 2), 2) for slots, x in ((cache.k[n], k), (cache.v[n], v)))
  return k_BGSK.swapaxes(1, 2), v_BGSK.swapaxes(1, 2), side


def filled(cache, layers):
  """The cache with what `put` gave for every layer."""
  k, v, side = zip(*layers, strict=True)

  def kept(x, like):
    return x.reshape(like.shape) if like.ndim == 2 else x.swapaxes(1, 2)

  return dataclasses.replace(cache, k=tuple(map(kept, k, cache.k)), v=tuple(map(kept, v, cache.v)), side=side)


def rows(cache, row_X, groups):
  """The rows `row_X` as a cache of their own: keys, values, side values, positions, documents and declared lengths together.

  `groups`: heads of keys.
  """

  def by_head(x):
    return x.reshape(1, len(x), groups, -1).swapaxes(1, 2) if x.ndim == 2 else x

  whole = (tuple(map(by_head, cache.k)), tuple(map(by_head, cache.v)), cache.side, cache.pos_BS, cache.doc_BS, cache.length_B)
  k, v, side, pos, doc, length = jax.tree.map(lambda x: x[row_X], whole)
  return dataclasses.replace(cache, k=k, v=v, side=side, pos_BS=pos, doc_BS=doc, length_B=length)


def kept_as(cache, like):
  """A cache of several heads side by side, with keys and values in the shape in which `like` keeps those of as many rows."""
  layers = [(k.swapaxes(1, 2), v.swapaxes(1, 2), side) for k, v, side in zip(cache.k, cache.v, cache.side, strict=True)]
  return filled(dataclasses.replace(cache, k=like.k, v=like.v), layers)
