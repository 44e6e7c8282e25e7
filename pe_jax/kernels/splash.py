"""JAX's splash attention for TPU, with documents as segment ids: causal or not, without a bias.

jax.experimental.pallas.ops.tpu.splash_attention computes no block beyond the diagonal; it does compute blocks of other documents, and
weighs them with 0. Queries bring the scale with them, in their own dtype.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

from pe_jax.kernels import layout


def attend(q_BTHK, k_BSGK, v_BSGK, where, *, block=512, interpret=False):
  """Attention output, (B, T, H, K) in v's dtype; queries and keys are the same tokens. Arguments as of flash.attend."""
  length, width = q_BTHK.shape[1], v_BSGK.shape[-1]
  block = min(block, layout.up(length))
  doc_BT = jnp.pad(where.qdoc_BT, ((0, 0), (0, -length % block)))
  q_BTHK = (q_BTHK * jnp.float32(width**-0.5)).astype(q_BTHK.dtype)
  q_BHTK, k_BGSK, v_BGSK = (layout.heads_first(x, block) for x in (q_BTHK, k_BSGK, v_BSGK))
  each = layout.by_rows(functools.partial(_attend, where.causal, block, interpret), 4)
  out_BTHK = jnp.moveaxis(each(doc_BT, q_BHTK, k_BGSK, v_BGSK)[:, :, :length, :width], 1, 2)
  # Padding is a document to the kernel.
  return jnp.where(where.qdoc_BT[:, :, None, None] > 0, out_BTHK, 0)


def _attend(causal, block, interpret, doc_BT, q_BHTK, k_BGSK, v_BGSK):
  heads, length = q_BHTK.shape[1:3]
  one = masks.CausalMask((length, length)) if causal else masks.FullMask((length, length))
  backward = {f'block_{name}': block for name in ('q_dkv', 'kv_dkv', 'kv_dkv_compute', 'q_dq', 'kv_dq')}
  sizes = kernel.BlockSizes(block_q=block, block_kv=block, **backward)
  attention = kernel.make_splash_mha_single_device(masks.MultiHeadMask([one] * heads), block_sizes=sizes, interpret=interpret)
  return jax.vmap(attention)(q_BHTK, k_BGSK, v_BGSK, kernel.SegmentIds(doc_BT, doc_BT))
