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
  """Sums of ln gate from the start of each document, that token included; float32 (B, S, H). Each document by itself, to the last bit."""

  def join(a, b):
    (sum_a, begins_a), (sum_b, begins_b) = a, b
    return jnp.where(begins_b, sum_b, sum_a + sum_b), begins_a | begins_b

  begins_BS = jnp.concatenate([jnp.ones_like(doc_BS[:, :1], bool), doc_BS[:, 1:] != doc_BS[:, :-1]], axis=1)
  return jax.lax.associative_scan(join, (log_gate_BSH, begins_BS[..., None]), axis=1)[0]


def bias(kept_BTH, kept_BSH):
  """b of a block of queries and keys, float32 (B, H, T, S), from what is `kept` of each."""
  return jnp.moveaxis(kept_BTH[:, :, None] - kept_BSH[:, None], -1, 1)


def encoding(dims):
  """The record."""

  def token(tables, x_BTD):
    return jax.nn.log_sigmoid(jnp.einsum('btd,dh->bth', x_BTD.astype(jnp.float32), tables['weight']) + tables['bias'][None, None])

  def sides(tables, where):
    del tables
    kept_BSH = kept(where.side, where.kdoc_BS)
    return dataclasses.replace(where, side=kept_BSH, qside=kept_BSH[:, where.own_index_T()])

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
