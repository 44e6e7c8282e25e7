"""xPos: RoPE whose pairs also shrink with distance, the fast ones most.

    q x zeta^((i - c) / 512),   k x zeta^((c - j) / 512),   zeta_n = (2n + .4d) / (1.4d),   n < d/2

so that the score of pair n carries zeta_n^(distance / 512). Sun et al., 2022, arXiv:2212.10554. Any common centre c gives the same
score; the middle of the keys' positions keeps both powers small. A float32 still overflows when positions lie more than about 36000 from
it, so lengths above 65536 are refused.
"""

import jax.numpy as jnp
import numpy as np

from pe_jax.encodings import phases, rope
from pe_jax.encodings.base import Encoding, Traits
from pe_jax.errors import ConfigError

LONGEST = 65_536


def decay(head_dim):
  """zeta, float64 (d/2,), fastest pair first."""
  return (np.arange(0, head_dim, 2) + 0.4 * head_dim) / (1.4 * head_dim)


def encoding(dims, *, base=10_000.0, layout='half', scale_base=512.0):
  """The record. `scale_base`: the distance over which the score of pair n falls by zeta_n."""
  if not scale_base > 0:
    raise ConfigError(f'encoding: scale_base={scale_base} must be above 0')
  frequency_F = rope.checked_frequencies(dims.head_dim, base, 1.0, layout)
  log_zeta_F = (np.log(decay(dims.head_dim)) / scale_base).astype(np.float32)

  def phase(position_BT, power_BT):
    cos, sin = phases.cos_sin(position_BT, frequency_F)
    size = jnp.exp(power_BT[..., None] * log_zeta_F[None, None])
    return cos * size, sin * size

  def prepare(params, where):
    del params
    # Documents may stand anywhere in a row: the centre is half way up to the last position of any real key.
    last_B1 = jnp.max(jnp.where(where.kdoc_BS > 0, where.j_BS, 0), axis=1, keepdims=True)
    first_B1 = jnp.min(jnp.where(where.kdoc_BS > 0, where.j_BS, last_B1), axis=1, keepdims=True)
    centre_B1 = (first_B1 + last_B1) // 2
    return tuple(
      phase(position, sign * (position - centre_B1).astype(jnp.float32)) for position, sign in ((where.i_BT, 1), (where.j_BS, -1))
    )

  return Encoding(
    prepare=prepare,
    rotate=lambda tables, q, k: (rope.turn(q, *tables[0], layout), rope.turn(k, *tables[1], layout)),
    traits=Traits(relative=True, max_length=LONGEST, cache='raw'),
  )
