"""A tiny two-layer model: everything that can go wrong between tokens and positions, in milliseconds.

What is made is kept, since compiled forwards are shared by all properties of an encoding; `forward.cache_clear()` lets them go.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from pe_jax import config as config_lib
from pe_jax import encodings, model
from pe_jax.encodings.base import Where

TRAIN_LENGTH = 16


def config(**changes):
  """A locked config of the tiny model; `changes` are fields of config.model."""
  c = config_lib.default()
  c.train_length = TRAIN_LENGTH
  c.model.update(num_layers=2, embed_dim=32, num_heads=4, num_kv_heads=2, head_dim=8, mlp_dim=48, vocab_size=50, attention_chunk=7)
  c.model.update(changes)
  return c.lock()


@functools.cache
def made(spec, train_length=TRAIN_LENGTH, **changes):
  """(config, encoding, params) with weights large enough that positions matter."""
  c = config(**changes)
  c = c if train_length == TRAIN_LENGTH else _with_length(c, train_length)
  enc = encodings.make(spec, model.dims(c))
  for name in ('attention', 'dtype', 'platform'):
    changes.pop(name, None)
  return c, enc, {'decoder': _decoder(**changes), 'encoding': _moved(enc.parameters(jax.random.PRNGKey(1)))}


def _moved(params):
  """Away from where learning starts: a table of zeros would make every test of it true."""
  rng = np.random.default_rng(2)
  return jax.tree.map(lambda x: x + jnp.asarray(0.3 * rng.normal(size=x.shape), x.dtype), params)


@functools.cache
def _decoder(**changes):
  """Drawn with numpy: jax would compile a generator for every shape. Norm scales near 1, biases near 0."""
  c = config(**changes)
  enc = encodings.make('nope', model.dims(c))
  shapes = jax.eval_shape(lambda key: model.init(c, enc, key), jax.random.PRNGKey(0))['decoder']
  rng = np.random.default_rng(0)

  def draw(path, x):
    if x.ndim > 1:
      fan_in = x.shape[-1] if 'embed' in str(path) else x.shape[0]
      return jnp.asarray(3 * rng.normal(size=x.shape) / fan_in**0.5, jnp.float32)
    return jnp.asarray(('scale' in str(path[-1])) + 0.1 * rng.normal(size=x.shape), jnp.float32)

  return jax.tree_util.tree_map_with_path(draw, shapes)


def _with_length(c, train_length):
  c = c.copy_and_resolve_references()
  c.unlock()
  c.train_length = train_length
  return c.lock()


@functools.cache
def forward(spec, length=None, train_length=TRAIN_LENGTH, contiguous=True, **changes):
  """Jitted (params, tokens, pos, doc) -> logits; `length` is a declared document length."""
  c, enc, _ = made(spec, train_length, **changes)

  def apply(params, tokens_BT, pos_BT, doc_BT):
    return model.apply(c, enc, params, tokens_BT, Where.forward(pos_BT, doc_BT, c.model.causal, contiguous, length))

  return jax.jit(apply)


def tokens(batch, length, seed=0):
  """Random token ids."""
  return jnp.asarray(np.random.default_rng(seed).integers(0, 50, (batch, length)), jnp.int32)


def row(*lengths, total):
  """(pos, doc), each (1, total): documents of these lengths one after the other, then padding. Negative: padding of that length."""
  pos, doc, number = [], [], 0
  for n in lengths:
    number += n > 0
    pos += range(n) if n > 0 else [0] * -n
    doc += [number if n > 0 else 0] * abs(n)
  rest = total - len(pos)
  return jnp.asarray([pos + [0] * rest], jnp.int32), jnp.asarray([doc + [0] * rest], jnp.int32)


def error(a, b):
  """Largest difference relative to the largest entry."""
  a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
  return np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1e-30)
