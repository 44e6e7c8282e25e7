"""Log-n: scores grow with the logarithm of the number of keys, so that more keys do not flatten the softmax.

    s_ij x ln n / ln L

Su Jianlin, 2021 (kexue.fm/archives/8823), and Chiang and Cholak, 2022, arXiv:2202.12172. L is the training length. `count` says what n
is: 'visible' the keys of its own document that are not in its future, i + 1 for token i, whatever a window may hide of them; 'document'
the length of its document (in decoding the declared one). `floor` keeps the factor at or above it: floor=1 leaves everything up to L as
it is, as Qwen does. Biases are scaled too.
"""

import math

import jax.numpy as jnp

from pe_jax.encodings import stack
from pe_jax.encodings.base import Encoding, Traits
from pe_jax.errors import ConfigError


def keys(where, count):
  """n of each query, float32 (B, 1, T, 1). Never a width: padding and other documents do not count."""
  n_BT = where.qlen_BT if count == 'document' else where.count_BT()
  return jnp.maximum(n_BT, 1).astype(jnp.float32)[:, None, :, None]


def check(name, count, dims):
  """Refuses what has no logarithm to divide by, and other words for n."""
  if count not in ('visible', 'document'):
    raise ConfigError(f"encoding: {name}: count is 'visible' or 'document', not {count!r}")
  if dims.train_length < 2:
    raise ConfigError(f'encoding: {name} needs a training length of at least 2, not {dims.train_length}')


def encoding(dims, inner='nope', *, count='visible', floor=0.0):
  """The record."""
  check('log_n', count, dims)

  def scale(tables, where):
    del tables
    return jnp.maximum(jnp.log(keys(where, count)) / math.log(dims.train_length), floor)

  own = Encoding(scale=scale, traits=Traits(relative=True, length_dependent=count == 'document'))
  return stack.several('log_n', [inner(dims), own], dims.num_layers)
