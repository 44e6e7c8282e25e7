"""FIRE: a learned function of the distance relative to the query's position, added to the scores.

    b_h(i, j) = f_h(psi(i - j) / psi(max(threshold, i))),   psi(x) = ln(|c| x + 1)

f is a small network 1 -> hidden -> H with a ReLU, without the constant at its output, which the softmax would cancel. Li et al., 2023,
arXiv:2310.04418. The argument stays in [0, 1] at any length, which is what is meant to extrapolate; the bias depends on the query's
position in its document, so a common shift changes it. c (.1 at first) and the threshold (512) are learned. The paper has a network a
layer; here one serves all layers, as T5's table does.
"""

import jax
import jax.numpy as jnp

from pe_jax.encodings import pair_network
from pe_jax.encodings.base import Encoding
from pe_jax.encodings.distances import of_distance
from pe_jax.errors import ConfigError


def psi(c, distance):
  """ln(|c| distance + 1), float32; 0 for keys ahead, which nobody sees."""
  return jnp.log1p(jnp.abs(c) * jnp.maximum(distance, 0).astype(jnp.float32))


def span(c, threshold, position):
  """What distances from a query at a position are measured by: psi(max(threshold, position)), float32, above 0."""
  return jnp.log1p(jnp.abs(c) * jnp.maximum(jnp.abs(threshold), position.astype(jnp.float32))) + 1e-6


def network(params, x_BTS):
  """f, float32 (B, H, T, S)."""
  pairs_B1P = x_BTS.reshape(x_BTS.shape[0], 1, -1)
  f_BHP = pair_network.network(params['w1'][:, None], params['b1'], params['w2'], pairs_B1P)
  return f_BHP.reshape(x_BTS.shape[0], -1, *x_BTS.shape[1:])


def encoding(dims, *, hidden=32, c=0.1, threshold=512.0):
  """The record. `c` and `threshold` are where learning starts."""
  if hidden < 1:
    raise ConfigError(f'encoding: fire needs at least 1 hidden unit, not {hidden}')
  if not (c > 0 and threshold > 0):
    raise ConfigError(f'encoding: fire needs c and threshold above 0, got {c} and {threshold}')

  def init(key):
    a, b = jax.random.split(key)
    return {
      'w1': jax.random.normal(a, (hidden,), jnp.float32),
      'b1': jnp.zeros(hidden),
      'w2': jax.random.normal(b, (hidden, dims.num_heads), jnp.float32) * hidden**-0.5,
      'c': jnp.float32(c),
      'threshold': jnp.float32(threshold),
    }

  def bias(params, where):
    near_BTS = of_distance(lambda c, distance: psi(c, distance)[None], params['c'], where)[:, 0]
    return network(params, near_BTS / span(params['c'], params['threshold'], where.i_BT)[:, :, None])

  return Encoding(init=init, prepare=lambda params, where: params, bias=bias)
