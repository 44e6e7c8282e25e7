"""T5: one learned scalar per head and bucket of distances, added to the scores; one table for all layers.

    distance < N/2: its own bucket;   else  N/2 + floor(N/2 ln(distance / (N/2)) / ln(max_distance / (N/2))),  at most N - 1

Raffel et al., 2019, arXiv:1910.10683, in the causal form: N = num_buckets, all future distances fall in bucket 0 (under
`bidirectional` half of the buckets serve the future). T5 itself has no 1/sqrt(d); here scores keep the usual scaling and the bias is
added after it. All distances from about .88 max_distance on (N = 32, max_distance = 128) share the last bucket, so set max_distance below
the training length if the last bucket is to be trained.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from pe_jax.encodings.base import Encoding, Traits
from pe_jax.errors import ConfigError


def bucket(distance: ArrayLike, num_buckets: int = 32, max_distance: int = 128, bidirectional: bool = False) -> jax.Array:
  """int32 bucket of each distance (query position - key position), same shape."""
  distance = jnp.asarray(distance)
  future = 0
  if bidirectional:
    num_buckets //= 2
    future = jnp.where(distance < 0, num_buckets, 0)
    distance = jnp.abs(distance)
  # The first distance of every bucket, found on the host: float32 logarithms may round a boundary to the wrong side.
  exact = num_buckets // 2
  start_N = starts(num_buckets, max_distance).reshape((-1,) + (1,) * distance.ndim)
  near = jnp.clip(distance, 0, exact - 1)
  far = jnp.sum(distance[None] >= start_N[exact:], axis=0)
  return (near + far + future).astype(jnp.int32)


def starts(num_buckets, max_distance):
  """The smallest distance of each bucket (of the next one, where none falls into it), int32 (num_buckets,)."""
  exact = num_buckets // 2
  distances = np.arange(exact, max_distance + 1)
  steps = np.log(distances / exact) / np.log(max_distance / exact) * (num_buckets - exact)
  number = np.minimum(exact + np.floor(steps + 1e-9).astype(int), num_buckets - 1)  # 1e-9: a whole step may come out as 2.9999
  far = [distances[number >= n][0] for n in range(exact, num_buckets)]
  return np.concatenate([np.arange(exact), far]).astype(np.int32)


def encoding(dims, *, num_buckets=32, max_distance=128, bidirectional=False):
  """The record."""
  per_side = num_buckets // 2 if bidirectional else num_buckets
  if per_side < 2 or per_side % 2:
    raise ConfigError(f'encoding: t5 needs an even number of buckets a direction, at least 2, not {per_side}')
  if max_distance <= per_side // 2:
    raise ConfigError(f'encoding: t5 max_distance={max_distance} must exceed the {per_side // 2} distances with a bucket of their own')

  def distance_bias(table_NH, distance):
    number = bucket(distance, num_buckets, max_distance, bidirectional)
    return jnp.moveaxis(table_NH[number], -1, 0)

  return Encoding(
    init=lambda key: {'table': jax.random.normal(key, (num_buckets, dims.num_heads), jnp.float32) * dims.embed_dim**-0.5},
    prepare=lambda params, where: params['table'],
    distance_bias=distance_bias,
    traits=Traits(relative=True),
  )
