"""Attention kernels of accelerators, and what each can serve. The numbers are those of every other path.

- splash (TPU): JAX's own, with documents as segment ids; for records that only turn queries and keys.
- flash (TPU): ours, with the bias made inside; for records with a bias by distance too, and for queries that look into a cache.
- cudnn (NVIDIA): cuDNN's, through jax.nn.dot_product_attention, which knows no documents; for rows of one document each.

A kernel is a path of attention.py like any other: `attention.choose` asks here what a kernel would refuse.
"""

import dataclasses
import importlib

import jax
import jax.numpy as jnp

from pe_jax.encodings.base import Where
from pe_jax.kernels import layout

OF = {'tpu': ('splash', 'flash'), 'interpret': ('splash', 'flash'), 'cuda': ('cudnn',), 'cpu': ()}  # in the order of preference
NAMES = ('splash', 'flash', 'cudnn')
BLOCK = 512
SLOTS = {
  'score': 'replaces the score',
  'normalise': 'replaces the softmax',
  'visible': 'hides keys',
  'bias': 'adds a bias that is not by distance alone',
  'distance_bias': 'adds a bias',
}


@dataclasses.dataclass(frozen=True)
class Case:
  """What, beside the record, decides whether a kernel can serve.

  Attributes:
    width: of a head's queries and keys, after they are turned.
    dtype: of values.
    contiguous, single, same: as of a `Where`.
  """

  width: int = 64
  dtype: str = 'float32'
  contiguous: bool = True
  single: bool = False
  same: bool = True

  @classmethod
  def of_arrays(cls, q_BTHK, v_BSGK, where):
    """That of a call of attention."""
    return cls(q_BTHK.shape[-1], v_BSGK.dtype.name, where.contiguous, where.single, where.same)

  @classmethod
  def of_config(cls, config, enc, n, single=False, same=True):
    """That of layer n in a forward under the config."""
    m, record = config.model, enc.at_layer(n)
    one = jnp.ones((1, 1), jnp.int32)

    def turned(key):
      x = jnp.zeros((1, 1, m.num_heads, m.head_dim)), jnp.zeros((1, 1, m.num_kv_heads, m.head_dim))
      return record.rotate(enc.tables(enc.parameters(key), Where.forward(one, one)), *x)[0] if record.rotate else x[0]

    width = jax.eval_shape(turned, jax.random.PRNGKey(0)).shape[-1]
    return cls(width, m.dtype, not enc.positions, single, same)


def here():
  """The platform of this process's devices: a key of `OF`."""
  platform = jax.default_backend()
  if platform == 'gpu':
    # ROCm calls itself gpu too, and cuDNN's attention begins with Ampere.
    device = jax.devices()[0]
    capable = 'cuda' in device.client.platform_version and float(device.compute_capability) >= 8
    return 'cuda' if capable else 'cpu'
  return platform if platform in OF else 'cpu'


def refusal(name, enc, case):
  """Why the kernel cannot serve the record of a layer, as the end of a sentence; '' where it can."""
  for slot, does in SLOTS.items():
    if getattr(enc, slot) and not (name == 'flash' and slot == 'distance_bias'):
      return f"cannot serve '{enc.spec}', which {does}"
  if enc.distance_bias and not case.contiguous:
    return f"cannot serve '{enc.spec}' at positions that do not rise by one, where the bias is no function of index differences"
  if enc.distance_bias and enc.scale:
    return f"cannot serve '{enc.spec}', which has a temperature over a bias"
  if name == 'splash' and not case.same:
    return 'cannot let queries look into a cache'
  if name == 'cudnn':
    return _cudnn_refusal(case)
  return ''


def _cudnn_refusal(case):
  if not case.single or not case.same:
    return "cannot honour documents, and rows may hold several (data.packing='pad' puts one in each)"
  if case.dtype not in ('bfloat16', 'float16'):
    return f"takes 16-bit numbers and no {case.dtype} (model.dtype='bfloat16')"
  if case.width > 128 or case.width % 8:
    return f'takes heads of up to 128 numbers in multiples of 8, and not of {case.width} (model.head_dim)'
  return ''


def attend(name, enc, tables, q_BTHK, k_BSGK, v_BSGK, where, chunk=0, interpret=False):
  """Attention output, (B, T, H, K) in v's dtype, by the kernel; what it refuses must have been refused.

  `chunk`: queries and keys a block, made a multiple of 128; 0: 512. `interpret`: run a TPU's kernel as plain JAX.
  """
  if enc.scale:
    # Where nothing is added, a temperature of the scores is one of the query.
    scale_BTH1 = jnp.moveaxis(jnp.broadcast_to(enc.scale(tables, where), (*jnp.moveaxis(q_BTHK, 1, 2).shape[:3], 1)), 1, 2)
    q_BTHK = (q_BTHK * scale_BTH1).astype(q_BTHK.dtype)
  kernel = importlib.import_module(f'pe_jax.kernels.{name}').attend
  if name == 'cudnn':
    return kernel(q_BTHK, k_BSGK, v_BSGK, where)
  options = {'block': layout.up(chunk or BLOCK), 'interpret': interpret}
  if enc.distance_bias:
    options['distance_bias'] = lambda distance_X: enc.distance_bias(tables, distance_X)
  return kernel(q_BTHK, k_BSGK, v_BSGK, where, **options)
