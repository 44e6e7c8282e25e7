"""Attention over positions: which keys a query sees and with what bias, from the same `Where` in every path.

Scores, biases and the softmax are float32 whatever the model's dtype. A query that sees no key gets exactly 0. All paths give the same
numbers:

- dense: all rows at once. For short texts, and for the few queries of a decoding step; of one query a CPU reads all heads in one product.
- chunked: rows in chunks of queries, against the keys up to the end of the chunk's group; for records that look at content and need whole
  rows, and for training at usual lengths. Where there are many, rows are made again in the backward pass.
- blockwise: blocks of queries and keys, in memory that grows with the length (blockwise.py).
- splash, flash, cudnn: kernels of accelerators, for records and rows that they can serve (kernels/).
"""

import functools

import jax
import jax.numpy as jnp

from pe_jax import blockwise, kernels
from pe_jax.encodings.base import head_scores
from pe_jax.errors import ConfigError
from pe_jax.kept import kept

GROUPS = 8  # of chunks; each sees the keys up to its end, so that 1/2 + 1/16 of all pairs are computed where 1/2 is visible
FEW = 16  # queries, as of a decoding step: never worth more than rows as they are
CHUNK, BLOCK = 128, (512, 512)  # queries, and queries x keys: the best of those tried on a CPU
KEPT = 2**24  # weights that a layer may keep for its backward pass, 64 MiB; beyond that rows are made again
LONG = 1024  # from here on blockwise is as fast and takes less memory


def choose(enc, queries, keys, method='auto', platform='', case=None):
  """The path: `method`, or for 'auto' what the record allows and the number of queries and keys asks for.

  A kernel that is asked for by name serves texts or refuses; few queries, and those that look into a cache, go as under 'auto'.
  `platform` is a key of `kernels.OF`, '' that of this process's devices; `case` a `kernels.Case`.
  """
  platform, case = platform or kernels.here(), case or kernels.Case()
  if method in kernels.NAMES:
    if case.same and queries > FEW:
      refuse(method, enc, platform, case)
      return method
    method = 'auto'
  if method != 'auto':
    return 'chunked' if method == 'blockwise' and whole_rows(enc) else method
  if queries * keys <= CHUNK**2 or queries <= FEW:
    return 'dense'
  for name in kernels.OF[platform]:
    if not kernels.refusal(name, enc, case):
      return name
  return 'chunked' if whole_rows(enc) or keys < LONG else 'blockwise'


def refuse(name, enc, platform, case):
  """Refuses a kernel that cannot serve the record. `platform`: '' where it is not known yet."""
  if platform and name not in kernels.OF[platform]:
    raise ConfigError(f"model.attention: '{name}' is no kernel of this platform, which is {platform} (use 'auto')")
  if why := kernels.refusal(name, enc, case):
    raise ConfigError(f"model.attention: '{name}' {why}; 'auto' takes a path that can")


def check(config, enc, single):
  """Refuses a kernel asked for by name that cannot serve a forward under the config. `single` is that of its `Where`."""
  m = config.model
  for record in [record for _, record in enc.schedule] or [enc]:
    for n in range(m.num_layers if m.attention in kernels.NAMES else 0):
      refuse(m.attention, record.at_layer(n), m.platform, kernels.Case.of_config(config, record, n, single))


def paths(config, enc, length, single=False, same=True):
  """What `choose` takes in the layers of a forward over a text, for records: 'blockwise', or 'blockwise, chunked' where layers differ.

  `single` and `same` are those of its `kernels.Case`.
  """
  m = config.model

  def path(n):
    return choose(enc.at_layer(n), length, length, m.attention, m.platform, kernels.Case.of_config(config, enc, n, single, same))

  return ', '.join(sorted({path(n) for n in range(m.num_layers)}))


def reading(config):
  """The config with the path chosen anew: a kernel is the choice of who trains, and a checkpoint is read on any machine."""
  c = config.copy_and_resolve_references()
  c.unlock()
  c.model.attention = 'auto' if c.model.attention in kernels.NAMES else c.model.attention
  c.model.platform = c.model.platform if c.model.platform == 'interpret' else ''
  return c.lock()


def whole_rows(enc):
  """Whether the record must see all keys of a query at once."""
  return bool(enc.score or enc.normalise)


def attend(enc, tables, q_BTHK, k_BSGK, v_BSGK, where, method='auto', chunk=0, platform=''):
  """Attention output, (B, T, H, K) in v's dtype.

  Args:
    enc: the `Encoding` of this layer; what it adds, hides and normalises is asked of it. Queries and keys come already rotated.
    tables: what its `prepare` returned.
    where: the positions, documents and lengths of queries and keys, with what `token` gave for the keys.
    method: 'dense', 'chunked', 'blockwise', a kernel's name, or 'auto' (`choose`).
    chunk: queries a chunk or a block; 0: 128 and 512.
    platform: what the program is made for; '': this process's devices.
  """
  if enc.sides:
    where = enc.sides(tables, where)
  case = kernels.Case.of_arrays(q_BTHK, v_BSGK, where)
  path = choose(enc, q_BTHK.shape[1], k_BSGK.shape[1], method, platform, case)
  if path in kernels.NAMES:
    return kernels.attend(path, enc, tables, q_BTHK, k_BSGK, v_BSGK, where, chunk, platform == 'interpret')
  if q_BTHK.shape[:2] == (1, 1) and (platform or kernels.here()) == 'cpu':
    return attend_one(enc, tables, q_BTHK, k_BSGK, v_BSGK, where)
  # Head by head: what is cut from it, and multiplied, lies as products want it.
  by_head = [x.swapaxes(1, 2) for x in (q_BTHK, k_BSGK, v_BSGK)]
  if path == 'dense':
    out_BHTK = attend_rows(enc, tables, *by_head, where)
  elif path == 'blockwise':
    out_BHTK = blockwise.attend(enc, tables, *by_head, where, (chunk, chunk) if chunk else BLOCK)
  else:
    out_BHTK = attend_chunks(enc, tables, *by_head, where, chunk or CHUNK)
  return out_BHTK.swapaxes(1, 2)


def attend_chunks(enc, tables, q_BHTK, k_BGSK, v_BGSK, where, chunk):
  """Rows in chunks, (B, H, T, K). Where queries and keys are the same tokens, a group of chunks sees only the keys up to its end."""
  queries, keys = q_BHTK.shape[2], k_BGSK.shape[2]
  chunks = -(-queries // chunk)
  same = where.causal and where.same
  groups = min(chunks, GROUPS) if same else 1
  again = whole_rows(enc) or q_BHTK.shape[0] * q_BHTK.shape[1] * queries * keys > KEPT
  out = []
  for g in range(groups):
    first, last = (chunks * n // groups * chunk for n in (g, g + 1))
    last = min(last, queries)
    seen = last if same else keys
    whole = (last - first) // chunk * chunk
    near = where.keys(0, seen) if seen < keys else where
    rows = functools.partial(_chunk, again, enc, tables, q_BHTK, k_BGSK[:, :, :seen], v_BGSK[:, :, :seen], near)
    if whole == chunk:
      out.append(rows(chunk, first))
    elif whole:
      part_XBHCK = jax.lax.map(functools.partial(rows, chunk), first + chunk * jnp.arange(whole // chunk))
      part_BHXCK = jnp.moveaxis(part_XBHCK, 0, 2)
      out.append(part_BHXCK.reshape(*part_BHXCK.shape[:2], whole, -1))
    if rest := last - first - whole:
      out.append(rows(rest, first + whole))
  return jnp.concatenate(out, axis=2)


def _chunk(again, enc, tables, q_BHTK, k_BGSK, v_BGSK, where, size, start):
  def rows(start):
    q_BHCK = jax.lax.dynamic_slice_in_dim(q_BHTK, start, size, axis=2)
    return attend_rows(enc, tables, q_BHCK, k_BGSK, v_BGSK, where.queries(start, size))

  return (jax.checkpoint(rows) if again else rows)(start)


def attend_rows(enc, tables, q_BHTK, k_BGSK, v_BGSK, where):
  """Whole rows of attention for the queries given, (B, H, T, K)."""
  batch, heads, queries, _ = q_BHTK.shape
  groups, width = k_BGSK.shape[1], v_BGSK.shape[-1]
  weight_BHTS = weights(enc, tables, q_BHTK, k_BGSK, where, width)
  weight_BGRTS = weight_BHTS.reshape(batch, groups, heads // groups, queries, -1).astype(v_BGSK.dtype)
  out_BGRTK = jnp.einsum('bgrts,bgsk->bgrtk', weight_BGRTS, v_BGSK, preferred_element_type=jnp.float32)
  return out_BGRTK.reshape(batch, heads, queries, width).astype(v_BGSK.dtype)


def attend_one(enc, tables, q_B1HK, k_BSGK, v_BSGK, where):
  """Attention of one query of one row, (1, 1, H, K).

  The heads' keys are one row a token, and a head's query is 0 outside of its own part of it, so that one product of two plain matrices
  reads every key once; so with values, of which a head then keeps its own part. Head by head it took four times as long on a CPU, most of
  it for copies of the cache (cache.py).
  """
  heads, (keys, groups, width) = q_B1HK.shape[2], v_BSGK.shape[1:]
  own_H = jnp.arange(heads) // (heads // groups)
  if enc.score:
    s_BHTS = enc.score(tables, q_B1HK, k_BSGK, where)
  else:
    own_HG = own_H[:, None] == jnp.arange(groups)[None]
    q_HX = jnp.where(own_HG[:, :, None], q_B1HK[0, 0, :, None], 0).reshape(heads, -1)
    s_HS = jnp.einsum('hx,sx->hs', q_HX, k_BSGK.reshape(keys, -1), preferred_element_type=jnp.float32)
    s_BHTS = s_HS[None, :, None] * width**-0.5
  weight_HS = weighed(enc, tables, s_BHTS, where)[0, :, 0].astype(v_BSGK.dtype)
  out_HX = jnp.einsum('hs,sx->hx', weight_HS, v_BSGK.reshape(keys, -1), preferred_element_type=jnp.float32)
  return out_HX.reshape(heads, groups, width)[jnp.arange(heads), own_H][None, None].astype(v_BSGK.dtype)


def weights(enc, tables, q_BHTK, k_BGSK, where, width):
  """What each query takes of each key, float32 (B, H, T, S); `width` is that of a head. `where` is as after `Encoding.sides`."""
  if enc.score:
    s_BHTS = enc.score(tables, q_BHTK.swapaxes(1, 2), k_BGSK.swapaxes(1, 2), where)
  else:
    s_BHTS = head_scores(q_BHTK, k_BGSK, width)
  return weighed(enc, tables, s_BHTS, where)


def weighed(enc, tables, s_BHTS, where):
  """The weights that scores make."""
  s_BHTS, visible = completed(enc, tables, s_BHTS, where)
  return enc.normalise(tables, s_BHTS, visible) if enc.normalise else softmax(s_BHTS, visible)


def completed(enc, tables, s_BHTS, where):
  """(scores with biases and temperature, what is visible): all that stands between q . k and the weights."""
  added = enc.added(tables, where)
  if added is not None:
    s_BHTS = s_BHTS + added
  if enc.scale:
    s_BHTS = s_BHTS * kept(enc.scale)(tables, where)
  visible = where.visible_BTS()[:, None]
  return s_BHTS, visible & enc.visible(tables, where) if enc.visible else visible


def softmax(s_BHTS, visible):
  """Softmax over visible keys; a row without any is exactly 0, and its gradient is finite."""
  # Hidden scores are replaced before exp, not after: 0 x inf in the backward pass is NaN. No peak is as low as they are, so that they weigh
  # nothing in a row that sees nothing either.
  s_BHTS = jnp.where(visible, s_BHTS, blockwise.HIDDEN)
  peak = jax.lax.stop_gradient(jnp.maximum(jnp.max(s_BHTS, axis=-1, keepdims=True), blockwise.HIDDEN / 2))
  weight = jnp.exp(s_BHTS - peak)
  total = jnp.sum(weight, axis=-1, keepdims=True)
  return weight / jnp.where(total > 0, total, 1.0)
