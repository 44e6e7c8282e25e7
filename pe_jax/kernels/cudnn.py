"""cuDNN's attention for NVIDIA GPUs, through jax.nn.dot_product_attention: rows of one document each, without a bias.

It knows no documents, and a bias would be an array of queries x keys in 16 bits, where distances above 256 are no longer exact. Rows of
several documents and records with a bias go blockwise.
"""

import jax
import jax.numpy as jnp

from pe_jax.errors import ConfigError


def attend(q_BTHK, k_BSGK, v_BSGK, where):
  """Attention output, (B, T, H, K) in v's dtype, for the same tokens as queries and keys, in rows that begin with their only document."""
  if not where.single:
    raise ConfigError("model.attention: 'cudnn' cannot honour documents, and rows may hold several (data.packing='pad' puts one in each)")
  width = v_BSGK.shape[-1]
  real_BT = where.qdoc_BT > 0
  # Padding comes last: no real query sees it behind a causal mask. Without one the lengths hide it; a row of none counts one.
  length_B = None if where.causal else jnp.maximum(jnp.sum(real_BT, axis=1, dtype=jnp.int32), 1)
  v_BSGK = jnp.pad(v_BSGK, ((0, 0),) * 3 + ((0, q_BTHK.shape[-1] - width),))  # queries may be wider than values
  out_BTHK = jax.nn.dot_product_attention(
    q_BTHK,
    k_BSGK,
    v_BSGK,
    scale=width**-0.5,
    is_causal=where.causal,
    query_seq_lengths=length_B,
    key_value_seq_lengths=length_B,
    implementation='cudnn',
  )
  return jnp.where(real_BT[:, :, None, None], out_BTHK[..., :width], 0)
