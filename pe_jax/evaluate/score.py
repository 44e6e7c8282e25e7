"""Scoring rows: sums of negative log-likelihood over targets, in float64 on the host, with one division left to the caller."""

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from pe_jax import attention, hosts, loss, model, parallel, sequence
from pe_jax.encodings.base import Where

TOKENS_A_BATCH = 16_384
LONG = 32_768  # from here on one text is spread over all devices, instead of one text to each


def as_batch(rows, first=0):
  """The arrays that a step takes, from data.packing.Rows; `first` is the number of the first row."""
  arrays = rows.as_dict()
  del arrays['source']
  return arrays | {'row': np.arange(first, first + len(rows), dtype=np.int32)}


def sums(evaluate, params, rows, batch_size):
  """(sum of nll, targets) over all rows; the last batch is filled up with rows that weigh nothing."""
  # Every process has all rows and takes its share of each batch, so none waits for a batch that another does not have.
  # Dispatched ahead, fetched below.
  parts = [evaluate(params, as_batch(part, n * batch_size)) for n, part in enumerate(rows.batches(batch_size))]
  nll, weight = (np.sum(np.asarray(jax.device_get(column), np.float64)) for column in zip(*parts, strict=True))
  return float(nll), float(weight)


def one_document_each(rows):
  """Whether no row has a second document."""
  return int(rows.doc_BT.max(initial=0)) <= 1


def over_devices(length):
  """Whether a text of this length is spread over devices."""
  return length >= LONG and len(jax.devices()) > 1


def by_position(config, enc, params, rows, advance=lambda tokens: None):
  """(sum of nll, targets) at each position 0 .. T - 1 of the rows' pieces, float64 (T,) each. `advance`: see `batches`."""
  length = rows.tokens_BT.shape[1]
  nll_T, weight_T = np.zeros(length), np.zeros(length)
  for part, nll_BT in batches(config, enc, params, rows, advance):
    position = part.pos_BT.ravel()
    nll_T += np.bincount(position, nll_BT.ravel(), length)
    weight_T += np.bincount(position, part.weight_BT.ravel(), length)
  return nll_T, weight_T


def batches(config, enc, params, rows, advance=lambda tokens: None):
  """Yields (Rows, nll x weight of each of their targets, float64 (B, T)); the last Rows may end with rows of padding.

  Rows are spread over all devices, and a long row by itself (sequence.py). `advance` is told how many tokens each batch had.
  """
  config, length, single = attention.reading(config), rows.tokens_BT.shape[1], one_document_each(rows)
  devices = jax.devices()
  grid = jax.make_mesh((len(devices),), ('data',), axis_types=(AxisType.Auto,))
  params = hosts.place(params, NamedSharding(grid, P()))
  long = over_devices(length)
  size = 1 if long else -(-max(1, min(TOKENS_A_BATCH // length, len(rows))) // len(devices)) * len(devices)
  split = NamedSharding(grid, P()) if long else NamedSharding(grid, P('data'))

  def score(params, batch):
    where = enc.placed(Where.forward(batch['pos'], batch['doc'], config.model.causal, single=single), batch['row'])
    if long:
      return sequence.nll(config, enc, params, batch['tokens'], batch['targets'], where) * batch['weight']
    x_BTD, _ = model.hidden(config, enc, params, batch['tokens'], where)
    return loss.each(x_BTD, *model.head(config, params), batch['targets']) * batch['weight']

  score = jax.jit(score if long else parallel.within(grid, score))

  def fetched(part, scored):
    advance(part.tokens_BT.size)
    return part, np.asarray(hosts.fetch(scored), np.float64)

  waiting = []
  for n, part in enumerate(rows.batches(size)):
    waiting.append((part, hosts.settled(score(params, hosts.place(as_batch(part, n * size), split)))))
    if len(waiting) > 2:
      yield fetched(*waiting.pop(0))
  for part, scored in waiting:
    yield fetched(part, scored)
