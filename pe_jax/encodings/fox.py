"""FoX, the forgetting transformer: each token sets, for each head, how much of what came before it is kept.

    b_h(i, j) = sum_{l=j+1..i} ln sigma(w_h . x_l + c_h)

x is what the layer's queries and keys are made from. Lin et al., 2025, arXiv:2503.02130, without the other changes of their block. As in
their code w is drawn with deviation .02 and c starts at 0. A gate that is always open is NoPE, one that is the same for all tokens ALiBi.
"""

import dataclasses

import jax
import jax.numpy as jnp

from pe_jax.encodings.base import Encoding, Traits
from pe_jax.encodings.combine import each_layer


def kept(log_gate_BSH, doc_BS):
  """Sums of ln gate from the start of each document, that token included, each document by itself, to the last bit.

  A pair of float32 (B, S, H), the sum and what its rounding left: of two sums over 32768 tokens the difference of neighbours would be off
  by .005 without it.
  """

  def join(a, b):
    (sum_a, rest_a, begins_a), (sum_b, rest_b, begins_b) = a, b
    high, low = _plus(sum_a, sum_b, rest_a + rest_b)
    return jnp.where(begins_b, sum_b, high), jnp.where(begins_b, rest_b, low), begins_a | begins_b

  begins_BS = jnp.concatenate([jnp.ones_like(doc_BS[:, :1], bool), doc_BS[:, 1:] != doc_BS[:, :-1]], axis=1)
  first = log_gate_BSH, jnp.zeros_like(log_gate_BSH), begins_BS[..., None]
  return jax.lax.associative_scan(join, first, axis=1)[:2]


def _plus(a, b, rest):
  """a + b + rest as a number and what its rounding left; gradients go the way of a + b."""
  total = a + b
  x, y, s = jax.lax.stop_gradient((a, b, total))
  z = s - x
  left = (x - (s - z)) + (y - z) + jax.lax.stop_gradient(rest)  # exact but for the last sum
  high = s + left
  return total + (high - s), left - (high - s)


def bias(kept_BTH, kept_BSH):
  """b of a block of queries and keys, float32 (B, H, T, S), from what is `kept` of each."""
  whole, rest = (t[:, :, None] - s[:, None] for t, s in zip(kept_BTH, kept_BSH))
  return jnp.moveaxis(whole + jax.lax.stop_gradient(rest), -1, 1)


def encoding(dims):
  """The record."""

  def token(tables, x_BTD):
    return jax.nn.log_sigmoid(jnp.einsum('btd,dh->bth', x_BTD.astype(jnp.float32), tables['weight']) + tables['bias'][None, None])

  def sides(tables, where):
    del tables
    sums, own_T = kept(where.side, where.kdoc_BS), where.own_index_T()
    return dataclasses.replace(where, side=sums, qside=jax.tree.map(lambda x_BSH: x_BSH[:, own_T], sums))

  def init(key):
    weight = 0.02 * jax.random.normal(key, (dims.embed_dim, dims.num_heads), jnp.float32)
    return {'weight': weight, 'bias': jnp.zeros(dims.num_heads)}

  record = Encoding(
    init=init,
    prepare=lambda params, where: params,
    token=token,
    sides=sides,
    bias=lambda tables, where: bias(where.qside, where.side),
    traits=Traits(relative=True),
  )
  return each_layer(record, dims.num_layers)
