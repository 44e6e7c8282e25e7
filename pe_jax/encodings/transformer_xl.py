"""Transformer-XL: scores with a term for the distance, read by the query through a learned matrix.

    (q_i + u) . k_j + (q_i + v) . W R_(i-j),   all over sqrt(K);   R_d = [sin(d w_n), cos(d w_n)],   w_n = 10000^(-2n/D)

Dai et al., 2019, arXiv:1901.02860; without its recurrence. u, v and W belong to each layer (XLNet, and `untie_r` in the authors' code).
With a = W_sin' (q + v) and b = W_cos' (q + v) the second term is a product of a vector of the query and one of the key,

    sum_n (a_n sin i w_n + b_n cos i w_n) cos j w_n + (b_n sin i w_n - a_n cos i w_n) sin j w_n,

so queries and keys grow from K to K + D, nothing of size queries x keys is made, and phases are exact at any distance.
"""

import jax
import jax.numpy as jnp

from pe_jax.encodings import phases, sinusoidal
from pe_jax.encodings.base import Encoding, Traits
from pe_jax.encodings.combine import each_layer


def encoding(dims):
  """The record."""
  frequency_F = sinusoidal.frequencies(dims.embed_dim)
  shape = (dims.num_heads, dims.head_dim)

  def init(key):
    w, u, v = jax.random.split(key, 3)
    return {
      'w': jax.random.normal(w, (dims.embed_dim, *shape), jnp.float32) * dims.embed_dim**-0.5,
      'u': 0.02 * jax.random.normal(u, shape, jnp.float32),
      'v': 0.02 * jax.random.normal(v, shape, jnp.float32),
    }

  def rotate(tables, q_BTHK, k_BSGK):
    params, (cos_q, sin_q), (cos_k, sin_k) = tables
    q = q_BTHK.astype(jnp.float32)
    read_BTHD = jnp.einsum('bthk,dhk->bthd', q + params['v'][None, None], params['w'])
    a, b = jnp.split(read_BTHD, 2, axis=-1)
    cos_q, sin_q = cos_q[:, :, None], sin_q[:, :, None]
    q = jnp.concatenate([q + params['u'][None, None], a * sin_q + b * cos_q, b * sin_q - a * cos_q], axis=-1)
    key_BSD = jnp.concatenate([cos_k, sin_k], axis=-1)
    key_BSGD = jnp.broadcast_to(key_BSD[:, :, None], (*k_BSGK.shape[:3], key_BSD.shape[-1]))
    return q.astype(q_BTHK.dtype), jnp.concatenate([k_BSGK, key_BSGD.astype(k_BSGK.dtype)], axis=-1)

  record = Encoding(
    init=init,
    prepare=lambda params, where: (params, phases.cos_sin(where.i_BT, frequency_F), phases.cos_sin(where.j_BS, frequency_F)),
    rotate=rotate,
    traits=Traits(relative=True, cache='raw'),
  )
  return each_layer(record, dims.num_layers)
