"""RoPE: pairs of query and key dimensions turned by position x frequency, so that a score depends on the distance alone.

    theta_i = base^(-2i/d),   (x_a, x_b) -> (x_a cos - x_b sin, x_a sin + x_b cos),   angle = position theta_i

Su et al., 2021, arXiv:2104.09864. Queries and keys of every layer are turned, values and embeddings never. `layout` says which dimensions
are a pair: 'half' (i, i + d/2: GPT-NeoX, Llama), 'interleaved' (2i, 2i + 1: the paper, GPT-J); a permutation maps one to the other.
`fraction` turns only the first part of a head and takes d from that part. `map` changes the frequencies for longer text
(frequency_maps.py); `yarn(factor=8)` is short for rope(map='yarn', factor=8).
"""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pe_jax.encodings import frequency_maps, phases
from pe_jax.encodings.base import NUMBERS, Encoding, Traits
from pe_jax.errors import ConfigError

INHERITED = ('base', 'fraction', 'layout')  # what a checkpoint's weights were made for, whatever map reads them
PROGRAM = ('fraction', 'layout')  # the fields that decide what is computed; all others are in the numbers that it is computed with


def frequencies(head_dim: int, base: float = 10_000.0) -> np.ndarray:
  """base^(-2i/d) for i < d/2: radians per position, fastest first. float64 on the host: float32 doubles the phase error."""
  if head_dim < 2 or head_dim % 2:
    raise ConfigError(f'encoding: RoPE turns pairs of dimensions and cannot split a width of {head_dim} (make it even)')
  if not base > 1:
    raise ConfigError(f'encoding: base={base} must be above 1 (10000 is usual)')
  return float(base) ** (-np.arange(0, head_dim, 2) / head_dim)


def rotate(
  x_BTHK: jax.Array, position_BT: ArrayLike, frequency_F: ArrayLike, layout: str = 'half', attention_factor: float = 1.0
) -> jax.Array:
  """Turns the first 2F dimensions of each head by position x frequency. Same shape and dtype; computed in float32."""
  cos_BTF, sin_BTF = phases.cos_sin(position_BT, frequency_F)
  return turn(x_BTHK, cos_BTF * attention_factor, sin_BTF * attention_factor, layout)


def turn(x_BTHK, cos_BTF, sin_BTF, layout):
  """`rotate` with phases at hand."""
  rotated = 2 * cos_BTF.shape[-1]
  x = x_BTHK[..., :rotated].astype(jnp.float32)
  cos, sin = cos_BTF[:, :, None, :], sin_BTF[:, :, None, :]
  if layout == 'half':
    a, b = jnp.split(x, 2, axis=-1)
    x = jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)
  else:
    a, b = x[..., ::2], x[..., 1::2]
    x = jnp.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(x.shape)
  return jnp.concatenate([x.astype(x_BTHK.dtype), x_BTHK[..., rotated:]], axis=-1)


def checked_frequencies(head_dim, base, fraction, layout):
  """Frequencies of the rotated part of a head, with the fields that say how it is rotated checked."""
  if layout not in ('half', 'interleaved'):
    raise ConfigError(f"encoding: layout is 'half' or 'interleaved', not {layout!r}")
  if not 0 < fraction <= 1:
    raise ConfigError(f'encoding: fraction={fraction} must be in (0, 1]')
  return frequencies(int(fraction * head_dim), base)


def phase(of, position_BT, length_BT):
  """(cos, sin) of each token, (B, T, F), times the attention factor. `of`: the numbers, one row a length; a document takes its length's."""
  if len(of['length_X']) == 1:
    high, low, factor = of['high_XF'][None], of['low_XF'][None], of['factor_X'][None, :, None]
  else:
    row_BT = jnp.minimum(jnp.searchsorted(jnp.asarray(of['length_X']), length_BT), len(of['length_X']) - 1)
    high, low, factor = (jnp.asarray(of[name])[row_BT] for name in ('high_XF', 'low_XF', 'factor_X'))
    factor = factor[..., None]
  cos, sin = phases.cos_sin_of_words(jnp.asarray(position_BT)[..., None], high, low)
  return cos * factor, sin * factor


def encoding(dims, *, base=10_000.0, fraction=1.0, layout='half', original_length=0, map='', **fields):
  """The record. `original_length` (for maps): the length the frequencies were trained at; 0: the model's training length."""
  frequency_F = checked_frequencies(dims.head_dim, base, fraction, layout)
  given = {'base': base, 'original_length': original_length or dims.train_length}
  dynamic = bool(map) and 'length' in inspect.signature(getattr(frequency_maps, map)).parameters

  def mapped(**more):
    if not map:
      return frequency_F, 1.0
    function = getattr(frequency_maps, map)
    wanted = inspect.signature(function).parameters
    return function(frequency_F, **fields, **{k: v for k, v in {**given, **more}.items() if k in wanted})

  def numbers(length_X):
    """Words of the frequencies and the attention factor for documents of these lengths, from float64 on the host: phases are exact."""
    length_X = np.asarray(length_X)
    frequency_XF, factor_X = mapped(length=length_X)
    high_XF, low_XF = phases.words(np.broadcast_to(frequency_XF, (len(length_X), len(frequency_F))))
    factor_X = np.broadcast_to(np.asarray(factor_X, np.float32), length_X.shape)
    return {NUMBERS: {'length_X': length_X.astype(np.int32), 'high_XF': high_XF, 'low_XF': low_XF, 'factor_X': np.array(factor_X)}}

  def own(longest):
    """Those of every length that a document can have where they depend on it, else of one for all."""
    first = given['original_length']
    return numbers(np.arange(first, max(longest, first) + 1) if dynamic else np.zeros(1, np.int64))

  def prepare(params, where):
    of = (params if NUMBERS in params else own(where.longest))[NUMBERS]
    return phase(of, where.i_BT, where.qlen_BT), phase(of, where.j_BS, where.klen_BS)

  mapped(length=1) if dynamic else mapped()  # wrong settings are refused here, before anything is traced
  return Encoding(
    prepare=prepare,
    numbers=numbers,
    rotate=lambda tables, q, k: (turn(q, *tables[0], layout), turn(k, *tables[1], layout)),
    traits=Traits(relative=True, length_dependent=dynamic, cache='raw' if dynamic else 'rotated'),
  )
