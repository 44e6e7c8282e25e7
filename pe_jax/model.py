"""A model: pure functions of a config, an encoding's record and a parameter tree, {'decoder': …, 'encoding': …}.

The layers themselves are in decoder.py. Parameters and logits are float32 whatever the model's dtype.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from pe_jax import cache as kv
from pe_jax import loss
from pe_jax.decoder import WATCHED, Decoder
from pe_jax.encodings.base import Dims, Where
from pe_jax.errors import ConfigError


def dims(config):
  """What the encoding may know of this model."""
  m = config.model
  return Dims(m.num_heads, m.num_kv_heads, m.head_dim, m.embed_dim, config.train_length, m.num_layers)


def init(config, enc, key):
  """Fresh parameters {'decoder': …, 'encoding': …}, float32. The decoder's are the same under every encoding."""
  one = jnp.zeros((1, 1), jnp.int32)
  decoder_key, encoding_key = jax.random.split(key)
  params = enc.parameters(encoding_key)
  where = Where.forward(one, one + 1, config.model.causal)
  decoder = Decoder(config.model, enc).init(decoder_key, one, where, where, params, None)
  return {'decoder': decoder.get('params', {}), 'encoding': params}


def apply(config, enc, params, tokens_BT, where, *, key_B=None, cache=None):
  """Next-token logits.

  Args:
    config: a resolved config.
    enc: the encoding's record; it may be another than the one trained with.
    params: as from `init`.
    tokens_BT: int32 token ids.
    where: a `Where` of these tokens; with a cache, the pair (pos_BT, doc_BT) of the new tokens.
    key_B: one random key a row for dropout; None: no dropout.
    cache: a `cache.Cache` to read from and to extend.

  Returns:
    logits_BTV float32; with a cache, (logits_BTV, cache).
  """
  x_BTD, cache = hidden(config, enc, params, tokens_BT, where, key_B=key_B, cache=cache)
  logits_BTV = loss.logits(x_BTD, *head(config, params))
  return logits_BTV if cache is None else (logits_BTV, cache)


def hidden(config, enc, params, tokens_BT, where, *, key_B=None, cache=None, alone=None, join=None):
  """(last hidden states, float32 (B, T, D), after the final norm; the cache): what the head turns into logits.

  `alone` and `join` are for tokens whose keys are not all there are, as with a cache or a text spread over devices: `alone` is the `Where`
  of these tokens among themselves, join(n, (keys, values, side values) of these tokens in layer n) those of all tokens in `where`.
  """
  if cache is not None:
    join = functools.partial(kv.put, cache)
    where, cache, alone = kv.extend(cache, *where)

  check_length(enc, min(where.j_BS.shape[1], where.longest))  # neither padding to devices nor a bound of lengths is text
  decoder = Decoder(config.model, enc, join)
  x_BTD, layers = decoder.apply({'params': params['decoder']}, tokens_BT, where, alone or where, params['encoding'], key_B)
  return x_BTD, None if cache is None else kv.filled(cache, layers)


def watched(config, enc, params, tokens_BT, where):
  """What a forward does inside: (residual stream x_NBTD as it enters each block and, last, after the final norm; for each layer what its
  attention was given: queries and keys as they were rotated, `where` with the side values).
  """
  check_length(enc, where.j_BS.shape[1])
  m = config.model.copy_and_resolve_references()
  m.unlock()
  m.scan_layers, m.remat = False, False  # inside a scan nothing can be watched
  variables = {'params': params['decoder']}
  (x_BTD, _), state = Decoder(m, enc).apply(variables, tokens_BT, where, where, params['encoding'], None, mutable=[WATCHED])
  blocks = [state[WATCHED][f'block_{n}'] for n in range(m.num_layers)]
  x_NBTD = jnp.stack([*(block['entered'][0].astype(jnp.float32) for block in blocks), x_BTD])
  return x_NBTD, [block['attention']['attended'][0] for block in blocks]


def head(config, params):
  """(weights float32 (V, D), bias (V,) or None)."""
  decoder = params['decoder']
  return decoder['embed']['embedding'] if config.model.tie_head else decoder['head']['kernel'].T, decoder.get('head_bias')


def numbered(enc, params, length_X):
  """The parameters with what the record can be given as numbers (`Encoding.numbers`) for documents of these lengths."""
  numbers = enc.numbers(np.unique(length_X)) if enc.numbers else {}
  return {**params, 'encoding': _merged(params['encoding'], numbers)}


def _merged(tree, other):
  """The nested dicts as one."""
  return {**tree, **{key: _merged(tree[key], value) if key in tree else value for key, value in other.items()}}


def check_length(enc, length):
  """Refuses a length that the encoding has no positions for; JAX's gather would answer with the wrong row."""
  rows = enc.traits.max_length
  if rows is not None and length > rows:
    raise ConfigError(
      f"encoding: '{enc.spec}' has {rows} positions and cannot serve length {length} "
      "(learned(overflow='interpolate') and its like study that; init_resize grows the table for training)"
    )


def check_parameters(enc, params):
  """Refuses an encoding whose learned parameters are not those of the checkpoint: they cannot be made up when reading."""
  wanted = jax.tree_util.tree_flatten_with_path(jax.eval_shape(enc.parameters, jax.random.PRNGKey(0)))[0]
  have = {jax.tree_util.keystr(path): leaf.shape for path, leaf in jax.tree_util.tree_flatten_with_path(params['encoding'])[0]}
  for path, leaf in wanted:
    name = jax.tree_util.keystr(path)
    if have.get(name) != leaf.shape:
      there = f'has {have[name]} for it' if name in have else 'does not have it'
      raise ConfigError(
        f"encoding: '{enc.spec}' reads the learned parameter {name} of shape {leaf.shape}, and the checkpoint {there} "
        '(train with this encoding, with init_from to start from the checkpoint)'
      )
