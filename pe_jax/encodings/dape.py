"""DAPE: a bias that a small network adapts to the scores of all heads, one pair of tokens at a time.

    s + B + f([s; B]),   f: 2H -> hidden -> H with a leaky ReLU (slope .01)

s are the scaled scores of the H heads and B the biases of an inner encoding, KERPLE in the paper. Zheng et al., 2024, arXiv:2405.14722.
Each layer has its own network and its own inner parameters, as in the authors' code; f has no constant at its output, which the softmax
would cancel.
"""

import jax
import jax.numpy as jnp

from pe_jax.encodings import pair_network
from pe_jax.encodings.base import Encoding, Traits, scores
from pe_jax.encodings.combine import each_layer, refuse
from pe_jax.errors import ConfigError


def network(params, s_BHTS, b_BHTS):
  """f, float32 (B, H, T, S)."""
  pairs_BIP = jnp.concatenate([x.reshape(*x.shape[:2], -1) for x in (s_BHTS, b_BHTS)], axis=1)
  w_UI = jnp.concatenate([params['w_s'], params['w_b']], axis=1)
  return pair_network.network(w_UI, params['b'], params['w_out'], pairs_BIP, slope=0.01).reshape(s_BHTS.shape)


def encoding(dims, inner='kerple', *, hidden=32):
  """The record. `inner` gives the biases."""
  biased = inner(dims)
  refuse(biased, 'dape', 'embed', 'positions', 'schedule', 'layer')
  if not (biased.distance_bias or biased.bias) or biased.rotate or biased.score or biased.normalise or biased.scale:
    raise ConfigError(f"encoding: dape adapts a bias, and '{biased.spec}' is not just one (as kerple, alibi and fire are)")
  if hidden < 1:
    raise ConfigError(f'encoding: dape needs at least 1 hidden unit, not {hidden}')
  heads = dims.num_heads

  def init(key):
    key, *keys = jax.random.split(key, 5)
    draw = [jax.random.normal(k, (hidden, heads), jnp.float32) for k in keys[:3]]
    network = {'w_s': draw[0] * (2 * heads) ** -0.5, 'w_b': draw[1] * (2 * heads) ** -0.5, 'w_out': draw[2] * hidden**-0.5}
    return {'network': network | {'b': jnp.zeros(hidden)}, 'inner': biased.parameters(key)}

  def score(tables, q, k, where):
    s = scores(q, k, dims.head_dim)
    b = jnp.broadcast_to(biased.added(tables['inner'], where), s.shape)
    return s + b + network(tables['network'], s, b)

  record = Encoding(
    init=init,
    prepare=lambda params, where: {'network': params['network'], 'inner': biased.tables(params['inner'], where)},
    score=score,
    visible=biased.visible and (lambda tables, where: biased.visible(tables['inner'], where)),
    traits=Traits(relative=biased.traits.relative, length_dependent=biased.traits.length_dependent),
  )
  return each_layer(record, dims.num_layers)
