"""DAPE: a bias that a small network adapts to the scores of all heads, one pair of tokens at a time.

    s + B + f([s; B]),   f: 2H -> hidden -> H with a leaky ReLU (slope .01)

s are the scaled scores of the H heads and B the biases of an inner encoding, KERPLE in the paper. Zheng et al., 2024, arXiv:2405.14722.
Each layer has its own network and its own inner parameters, as in the authors' code; f has no constant at its output, which the softmax
would cancel.
"""

import math

import jax
import jax.numpy as jnp

from pe_jax.encodings.base import Encoding, Traits, scores
from pe_jax.encodings.combine import each_layer, refuse
from pe_jax.errors import ConfigError


def network(params, s_BHTS, b_BHTS):
  """f, float32 (B, H, T, S). Eight hidden units at a time: all of them at once would be `hidden` arrays of T x S."""
  batch, heads, together = *s_BHTS.shape[:2], math.gcd(params['b'].size, 8)
  # The rows of a batch are a batch of matrix products in their gradients too, which is what a CPU is fast at.
  pairs_BIP = jnp.concatenate([x.reshape(batch, heads, -1) for x in (s_BHTS, b_BHTS)], axis=1)

  @jax.checkpoint
  def add(total_BHP, units):
    w_UI, b_1U1, out_UH = units
    x_BUP = jnp.einsum('bui,bip->bup', jnp.broadcast_to(w_UI, (batch, *w_UI.shape)), pairs_BIP) + b_1U1
    out_BUH = jnp.broadcast_to(out_UH, (batch, *out_UH.shape))
    return total_BHP + jnp.einsum('buh,bup->bhp', out_BUH, jax.nn.leaky_relu(x_BUP)), None

  w_XI = jnp.concatenate([params['w_s'], params['w_b']], axis=1)
  groups = w_XI.reshape(-1, together, 2 * heads), params['b'].reshape(-1, 1, together, 1), params['w_out'].reshape(-1, together, heads)
  return jax.lax.scan(add, jnp.zeros((batch, heads, pairs_BIP.shape[-1])), groups)[0].reshape(s_BHTS.shape)


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
    s = scores(q, k)
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
