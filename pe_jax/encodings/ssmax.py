"""SSMax, the scalable softmax: scores times the logarithm of the number of keys, with a learned strength for each layer and head.

    s_ij x strength_h ln n

Nakanishi, 2025, arXiv:2501.19399. `count` says what n is, as in log_n: 'visible' the keys of its own document up to the query,
'document' its document's length. The strength starts at 1 / ln L, where the factor is 1 at the training length L.
"""

import math

import jax.numpy as jnp

from pe_jax.encodings import log_n, stack
from pe_jax.encodings.base import Encoding, Traits
from pe_jax.encodings.combine import each_layer


def encoding(dims, inner='nope', *, count='visible'):
  """The record."""
  log_n.check('ssmax', count, dims)

  own = Encoding(
    init=lambda key: {'strength': jnp.full(dims.num_heads, 1 / math.log(dims.train_length), jnp.float32)},
    prepare=lambda params, where: params['strength'],
    scale=lambda strength_H, where: strength_H[None, :, None, None] * jnp.log(log_n.keys(where, count)),
    traits=Traits(relative=True, length_dependent=count == 'document'),
  )
  return stack.several('ssmax', [inner(dims), each_layer(own, dims.num_layers)], dims.num_layers)
