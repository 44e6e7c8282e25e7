"""Scoring rows: sums of negative log-likelihood over targets, in float64 on the host, with one division left to the caller."""

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from pe_jax import attention, encodings, hosts, loss, model, parallel, sequence
from pe_jax.encodings.base import Where
from pe_jax.evaluate import memory

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


def by_position(config, enc, params, rows, advance=lambda tokens: None, programs=None):
  """(sum of nll, targets) at each position 0 .. T - 1 of the rows' pieces, float64 (T,) each. For the rest see `batches`."""
  length = rows.tokens_BT.shape[1]
  nll_T, weight_T = np.zeros(length), np.zeros(length)
  for part, nll_BT in batches(config, enc, params, rows, advance, programs):
    position = part.pos_BT.ravel()
    nll_T += np.bincount(position, nll_BT.ravel(), length)
    weight_T += np.bincount(position, part.weight_BT.ravel(), length)
  return nll_T, weight_T


def batches(config, enc, params, rows, advance=lambda tokens: None, programs=None):
  """Yields (Rows, nll x weight of each of their targets, float64 (B, T)); the last Rows may end with rows of padding.

  Rows are spread over all devices, and a long row by itself (sequence.py).

  Args:
    config, enc, params: the model; what the record can be given as numbers is given, so that it is no part of the program.
    rows: what is scored.
    advance: is told how many tokens each batch had.
    programs: {what is computed: compiled}, to be looked into and added to; one for each config.
  """
  config, length = attention.reading(config), rows.tokens_BT.shape[1]
  devices = jax.devices()
  grid = jax.make_mesh((len(devices),), ('data',), axis_types=(AxisType.Auto,))
  params = hosts.place(model.numbered(enc, params, rows.piece_lengths()), NamedSharding(grid, P()))
  long = over_devices(length)
  size = 1 if long else -(-max(1, min(TOKENS_A_BATCH // length, len(rows))) // len(devices)) * len(devices)
  split = NamedSharding(grid, P()) if long else NamedSharding(grid, P('data'))
  programs = {} if programs is None else programs

  def run(part, n):
    batch = hosts.place(as_batch(part, n * size), split)
    key = (program(enc, length), one_document_each(rows), len(devices), _shapes((params['encoding'], batch)))
    if key not in programs:
      compiled = _jitted(config, enc, grid, key[1], long).lower(params, batch).compile()
      memory.check(compiled, length)
      programs[key] = compiled
    return hosts.settled(programs[key](params, batch))

  def fetched(part, scored):
    advance(part.tokens_BT.size)
    return part, np.asarray(hosts.fetch(scored), np.float64)

  waiting = []
  for n, part in enumerate(rows.batches(size)):
    waiting.append((part, run(part, n)))
    if len(waiting) > 2:
      yield fetched(*waiting.pop(0))
  for part, scored in waiting:
    yield fetched(part, scored)


def _jitted(config, enc, grid, single, long):
  """(params, batch) -> nll x weight of each target. `long`: one row, spread over the devices."""

  def score(params, batch):
    where = enc.placed(Where.forward(batch['pos'], batch['doc'], config.model.causal, single=single), batch['row'])
    if long:
      return sequence.nll(config, enc, params, batch['tokens'], batch['targets'], where) * batch['weight']
    x_BTD, _ = model.hidden(config, enc, params, batch['tokens'], where)
    return loss.each(x_BTD, *model.head(config, params), batch['targets']) * batch['weight']

  return jax.jit(score if long else parallel.within(grid, score))


def program(enc, length):
  """What is computed for a record, apart from the numbers it is given."""
  computed = encodings.program(encodings.parse(enc.spec)) if enc.numbers else enc.spec
  # A text over several devices meets the others' keys turned or not.
  return computed, enc.traits.cache if over_devices(length) else ''


def _shapes(tree):
  return tuple((jax.tree_util.keystr(path), leaf.shape) for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0])
