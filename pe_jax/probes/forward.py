"""Forwards of whole rows for the probes: a function of each batch, rows spread over all devices, what it gives on the host."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from pe_jax import attention, hosts, loss, model, parallel
from pe_jax import cache as kv
from pe_jax.encodings.base import Where
from pe_jax.evaluate import memory, score


def reader(subject, enc, read):
  """(tokens_BT, row_B=None) -> what `batches` gives of all rows at once. For what is small."""
  parts = batches(subject, enc, read)
  return lambda tokens_BT, row_B=None: jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts(tokens_BT, row_B))


def batches(subject, enc, read):
  """(tokens_BT, row_B=None) -> an iterator of what read(config, params, tokens_BT, where) gives for one batch of rows after the other.

  That is arrays with the axis B in front, as numpy. A batch that needs more memory than there is is refused.

  Args:
    subject: whose parameters are read.
    enc: the encoding's record at this length.
    read: traced under jit, once for all calls with as many rows of a length.

  Every row is a text of one document. `row_B` are numbers of the rows, on which positions that are drawn depend; by default 0, 1, 2 …
  """
  config = attention.reading(subject.config)
  grid = jax.make_mesh((len(jax.devices()),), ('data',), axis_types=(AxisType.Auto,))
  params, split = hosts.place(subject.params, NamedSharding(grid, P())), NamedSharding(grid, P('data'))

  def run(params, tokens_BT, row_B):
    pos_BT = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1], dtype=jnp.int32)[None], tokens_BT.shape)
    where = enc.placed(Where.forward(pos_BT, jnp.ones_like(tokens_BT), config.model.causal, single=True), row_B)
    return read(config, params, tokens_BT, where)

  run, programs = jax.jit(parallel.within(grid, run)), {}

  def program(batch):
    shape = batch[0].shape
    if shape not in programs:
      programs[shape] = run.lower(params, *batch).compile()
      memory.check(programs[shape], shape[1])
    return programs[shape]

  def go(tokens_BT, row_B=None):
    count, length = tokens_BT.shape
    size = -(-max(1, min(score.TOKENS_A_BATCH // length, count)) // grid.size) * grid.size
    row_B = np.arange(count) if row_B is None else np.asarray(row_B)
    for start in range(0, count, size):
      index = np.minimum(np.arange(start, start + size), count - 1)  # the last batch ends with its last row again and again
      batch = hosts.place((tokens_BT[index].astype(np.int32), row_B[index].astype(np.int32)), split)
      found, real = hosts.fetch(program(batch)(params, *batch)), min(size, count - start)
      yield jax.tree.map(lambda leaf, real=real: np.asarray(leaf)[:real], found)

  return go


def at(subject, spec, length):
  """(record, its name) of a spec at a length."""
  at_length = subject.at_length(spec, length)
  return subject.encoding(at_length, length), str(at_length)


def log_p(subject, enc, ids, last=1):
  """(tokens_BT) -> ln of the probability of each of the `ids` after each of the last `last` tokens of a row, float32 (B, last, ids)."""

  def read(config, params, tokens_BT, where):
    x_BTD, _ = model.hidden(config, enc, params, tokens_BT, where)
    return jax.nn.log_softmax(loss.logits(x_BTD[:, -last:], *model.head(config, params)))[:, :, np.asarray(ids)]

  return reader(subject, enc, read)


def continuations(subject, enc, ids_VS):
  """(prompt_BT) -> ln of the probability of each of V continuations of S tokens, token by token, float32 (B, V, S).

  The prompt is read once into a cache that has room for a continuation, and each of them goes on from there.
  """
  count = ids_VS.shape[1]

  def read(config, params, tokens_BT, where):
    (batch, width), asked = tokens_BT.shape, tokens_BT.shape[1] - count
    pos_BT, doc_BT = where.i_BT, jnp.ones_like(tokens_BT)  # of a text with a continuation: positions may have been drawn

    def go(cache, start, tokens_BT):
      stop = start + tokens_BT.shape[1]
      return model.hidden(config, enc, params, tokens_BT, (pos_BT[:, start:stop], doc_BT[:, start:stop]), cache=cache)

    _, cache = go(kv.create(config.model, enc, batch, width, width), 0, tokens_BT[:, :asked])

    def of_one(ids_S):
      begun_BS = jnp.broadcast_to(ids_S[None, :-1], (batch, count - 1))
      x_BSD, _ = go(cache, asked, jnp.concatenate([tokens_BT[:, asked : asked + 1], begun_BS], axis=1))
      log_p_BSV = jax.nn.log_softmax(loss.logits(x_BSD, *model.head(config, params)))
      return jnp.take_along_axis(log_p_BSV, ids_S[None, :, None], axis=2)[..., 0]

    return jnp.moveaxis(jax.lax.map(of_one, jnp.asarray(ids_VS, jnp.int32)), 0, 1)

  read = reader(subject, enc, read)
  return lambda prompt_BT: read(np.pad(prompt_BT, ((0, 0), (0, count - 1))))


def logits(subject, enc, last=0):
  """(tokens_BT, row_B=None) -> logits after each of the last `last` tokens, after all if it is 0, float32 (B, last, V)."""

  def read(config, params, tokens_BT, where):
    x_BTD, _ = model.hidden(config, enc, params, tokens_BT, where)
    return loss.logits(x_BTD[:, -last:], *model.head(config, params))

  return reader(subject, enc, read)
