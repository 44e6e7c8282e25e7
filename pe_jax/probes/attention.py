"""Attention of each layer and head at each length: how spread it is, and where it goes.

For a query i with weights a_0 .. a_i (nats; natural logarithm):

    entropy       H = - sum_j a_j ln a_j
    share         H / ln(i + 1), 1 where all keys are alike
    effective     e^H, keys that it comes down to
    sink          sum of a over the first 4 keys
    recent        sum of a over the last 16 keys, the query's own among them
    beyond        sum of a over keys L and more back, L the training length
    total         sum of a, 1 for a softmax; less where a record lets a query attend to nothing

averaged over the last queries of each text and over texts. The texts of all lengths end with the same tokens, so that the content of the
queries is the same and the length alone differs. `slope` is that of H against ln n, the mean over documents with a 95 % t interval; ln n is
the mean of ln(i + 1) over the same queries, so that it is exactly 1 where all keys are alike:

    all keys alike                   H = ln n, slope 1
    a window or a steep penalty      H constant, slope 0; ALiBi by itself: `of_alibi`
    logits of normal law             H = ln n - s^2/2, slope 1, as long as s^2 < 2 ln n

Weights come from attention.weights, the function that whole rows of attention use, for the chosen queries alone: memory is queries x keys.
"""

import math

import jax.numpy as jnp
import numpy as np

from pe_jax import attention, model
from pe_jax.errors import ConfigError
from pe_jax.probes import forward, text
from pe_jax.statistics import paired

SINK, RECENT = 4, 16
NUMBERS = ('entropy', 'share', 'effective', 'sink', 'recent', 'beyond', 'total')


def check(subject, lengths, options):
  """Refuses a length that leaves no quarter for queries."""
  del subject, options
  if lengths[0] < 4:
    raise ConfigError(f'attention: length {lengths[0]} has no last quarter to look at (ask for 4 and more)')


def measure(subject, spec, lengths, options):
  """Yields one dict for each length; that of the longest has the slopes where there are several."""
  text_of, document_B = text.ends(subject, lengths, options.segments, options.seed)
  queries = min(options.queries, lengths[0] // 4)
  train, entropies = subject.config.train_length, []
  for length in lengths:
    enc, name = forward.at(subject, spec, length)
    found_BNHX = forward.reader(subject, enc, statistics(enc, queries, train))(text_of[length]).astype(np.float64)
    entropies.append(found_BNHX[..., 0])
    heads = [
      {'layer': n, 'head': h} | dict(zip(NUMBERS, map(float, found_BNHX[:, n, h].mean(0))))
      for n in range(found_BNHX.shape[1])
      for h in range(found_BNHX.shape[2])
    ]
    if length == lengths[-1] and len(lengths) > 1:
      slope_BNH = slopes(np.stack(entropies), lengths, queries)
      for head in heads:
        head |= interval(slope_BNH[:, head['layer'], head['head']], document_B)
    means = {name: float(np.mean([head[name] for head in heads])) for name in NUMBERS}
    yield {'length': length, 'encoding': name, 'queries': queries, 'texts': len(document_B), **means, 'heads': heads}


def statistics(enc, queries, train):
  """A reader for `forward.reader`: NUMBERS of the last queries, float32 (B, N, H, numbers)."""

  def read(config, params, tokens_BT, where):
    first, given = tokens_BT.shape[1] - queries, model.watched(config, enc, params, tokens_BT, where)[1]
    return jnp.stack([of_weights(w, first, train) for w in rows(config, enc, params, where, given, first, queries)], axis=1)

  return read


def rows(config, enc, params, where, given_N, start, queries):
  """Yields for each layer the weights of the queries start, start + 1 …, float32 (B, H, queries, S); `given_N` as from `model.watched`."""
  tables = enc.tables(params['encoding'], where)
  for n, (q_BTHK, k_BSGK, given) in enumerate(given_N):
    record = enc.at_layer(n)
    given = record.sides(tables, given) if record.sides else given
    q_BHTK, k_BGSK = q_BTHK[:, start : start + queries].swapaxes(1, 2), k_BSGK.swapaxes(1, 2)
    yield attention.weights(record, tables, q_BHTK, k_BGSK, given.queries(start, queries), config.model.head_dim)


def of_weights(weight_BHTS, first, train):
  """NUMBERS of rows of weights, means over the queries, (B, H, numbers). `first` is the index of the first query among the keys."""
  queries, keys = weight_BHTS.shape[2:]
  back_TS = first + jnp.arange(queries)[:, None] - jnp.arange(keys)[None]

  def mass(seen_TS):
    return jnp.sum(weight_BHTS, axis=-1, where=seen_TS[None, None]).mean(-1)

  entropy_BHT = -jnp.sum(jnp.where(weight_BHTS > 0, weight_BHTS * jnp.log(jnp.maximum(weight_BHTS, 1e-37)), 0.0), axis=-1)
  count_T = jnp.log(first + 1.0 + jnp.arange(queries))
  sink_TS = jnp.broadcast_to((jnp.arange(keys) < SINK)[None], back_TS.shape)
  recent_TS, beyond_TS, all_TS = (back_TS >= 0) & (back_TS < RECENT), back_TS >= train, back_TS > -keys
  found = [entropy_BHT.mean(-1), (entropy_BHT / count_T[None, None]).mean(-1), jnp.exp(entropy_BHT).mean(-1)]
  return jnp.stack([*found, *map(mass, (sink_TS, recent_TS, beyond_TS, all_TS))], axis=-1)


def slopes(entropy_XB, lengths, queries):
  """Least squares of the entropy against ln n for each text and head; axis 0 is the lengths, `queries` the last that were averaged."""
  x_X = np.asarray([np.log(np.arange(n - queries, n) + 1.0).mean() for n in lengths])
  x_X = x_X - x_X.mean()
  return np.tensordot(x_X / (x_X**2).sum(), entropy_XB, axes=1)


def interval(slope_B, document_B):
  """The mean slope, with a t interval over documents (over texts where there is one document)."""
  groups = document_B if document_B.max() else np.arange(len(document_B))
  slope_U = np.bincount(groups, slope_B) / np.bincount(groups)
  found = {'slope': float(slope_U.mean())}
  if len(slope_U) > 1:
    low, high = paired.bounds(slope_U, 0.025)
    found |= {'slope_low': low, 'slope_high': high}
  return found


def of_alibi(slope, keys):
  """Entropy of weights proportional to e^(-slope d) for d = 0 .. keys - 1, in nats.

  With r = e^-slope and Z = (1 - r^n) / (1 - r): H = ln Z + slope E[d], E[d] = r / (1 - r) - n r^n / (1 - r^n). For n to infinity it is
  finite, about 1 - ln slope where the slope is small: the effective number of keys e / slope does not grow with the text.
  """
  r = math.exp(-slope)
  z, far = (1 - r**keys) / (1 - r), r**keys
  return math.log(z) + slope * (r / (1 - r) - keys * far / (1 - far))
