"""The kernels of this backend against plain attention, in values and gradients."""

import contextlib

import jax
import jax.numpy as jnp

from pe_jax import attention, encodings, kernels
from pe_jax.encodings.base import Dims, Where
from pe_jax.selfcheck import tiny

ENCODINGS = {'splash': ('rope',), 'flash': ('rope', 'alibi', 't5'), 'cudnn': ('rope',)}
DTYPES = {'splash': ('float32', 'bfloat16'), 'flash': ('float32', 'bfloat16'), 'cudnn': ('bfloat16',)}
ALLOWED = {'float32': 1e-3, 'bfloat16': 4e-2}
LENGTH, HEADS, KV_HEADS, WIDTH = 640, 4, 2, 64


def cases():
  """(kernel, encoding, dtype) of those that this backend has."""
  names = kernels.OF[kernels.here()]
  return [(name, spec, dtype) for name in names for spec in ENCODINGS[name] for dtype in DTYPES[name]]


def compared(name, spec, dtype, platform=''):
  """Two rows of packed documents (of one document each where the kernel knows no others), the kernel and all rows at once.

  `platform`: '' is this backend; 'interpret' runs a TPU's kernels as plain JAX.
  """
  enc = encodings.make(spec, Dims(HEADS, KV_HEADS, WIDTH, HEADS * WIDTH, LENGTH))
  single = name == 'cudnn'
  lengths = [(600,), (LENGTH,)] if single else [(200, 301), (7, 600)]
  pos, doc = (jnp.concatenate(x) for x in zip(*(tiny.row(*row, total=LENGTH) for row in lengths)))
  keys = jax.random.split(jax.random.PRNGKey(0), 4)
  shapes = [(2, LENGTH, n, WIDTH) for n in (HEADS, KV_HEADS, KV_HEADS, HEADS)]
  *given, weight = (jax.random.normal(key, shape).astype(dtype) for key, shape in zip(keys, shapes))

  def attend(method):
    def total(q, k, v):
      where = Where.forward(pos, doc, single=single)
      tables = enc.tables(enc.parameters(jax.random.PRNGKey(1)), where)
      q, k = enc.rotate(tables, q, k) if enc.rotate else (q, k)
      out = attention.attend(enc, tables, q, k, v, where, method, platform=platform)
      return jnp.sum((out * weight).astype(jnp.float32)), out

    (_, out), gradient = jax.jit(jax.value_and_grad(total, (0, 1, 2), has_aux=True))(*given)
    return [out, *gradient]

  # Full float32 where that is asked for; a kernel of 16-bit numbers has its own products.
  full = jax.default_matmul_precision('highest') if dtype == 'float32' else contextlib.nullcontext()
  with full:
    got = attend(name)
  with jax.default_matmul_precision('highest'):
    expected = attend('dense')
  error = max(tiny.error(a.astype(jnp.float32), b.astype(jnp.float32)) for a, b in zip(got, expected))
  return {'holds': bool(error <= ALLOWED[dtype]), 'worst': f'{error:.0e}', 'allowed': f'{ALLOWED[dtype]:.0e}'}
