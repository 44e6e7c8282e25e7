"""How the next token is chosen from logits: pure functions, and a `Sampler` of settings that were checked."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp

from pe_jax.errors import ConfigError


def greedy(logits_BV, key_B=None):
  """The likeliest token of each row, the first of several."""
  del key_B
  return jnp.argmax(logits_BV, axis=-1).astype(jnp.int32)


def draw(logits_BV, key_B, temperature=1.0, top_k=0, top_p=None):
  """A token of each row from softmax(logits / temperature), cut to the top_k likeliest and then to the nucleus of mass top_p.

  Of equally likely tokens the first are kept. `top_k`=0 and `top_p`=None cut nothing.
  """
  logits_BV = logits_BV.astype(jnp.float32)
  peak_B1 = jnp.max(logits_BV, axis=-1, keepdims=True)
  logits_BV = (logits_BV - peak_B1) / jnp.maximum(temperature, 1e-30)  # the peak stays 0 at any temperature
  choose = jax.vmap(jax.random.categorical)
  if not top_k and top_p is None:
    return choose(key_B, logits_BV).astype(jnp.int32)
  best_BK, id_BK = jax.lax.top_k(logits_BV, min(top_k or logits_BV.shape[-1], logits_BV.shape[-1]))
  if top_p is not None:
    best_BK = jnp.where(nucleus(best_BK, top_p), best_BK, -jnp.inf)
  return jnp.take_along_axis(id_BK, choose(key_B, best_BK)[:, None], axis=1)[:, 0].astype(jnp.int32)


def nucleus(sorted_BK, top_p):
  """True on the fewest leading tokens whose probability is together at least top_p: at least one. Logits come in descending order."""
  share_BK = jax.nn.softmax(sorted_BK, axis=-1)
  return jnp.cumsum(share_BK, axis=-1) - share_BK < top_p


@functools.partial(jax.tree_util.register_dataclass, data_fields=['temperature', 'top_p'], meta_fields=['top_k'])
@dataclasses.dataclass(frozen=True)
class Sampler:
  """`greedy` where there is no temperature, else `draw`. Another temperature or top_p compiles nothing again."""

  temperature: float | None = None
  top_p: float | None = None
  top_k: int = 0

  def __call__(self, logits_BV, key_B):
    if self.temperature is None:
      return greedy(logits_BV)
    return draw(logits_BV, key_B, self.temperature, self.top_k, self.top_p)


def sampler(temperature=1.0, top_k=0, top_p=1.0):
  """The Sampler of these settings: temperature=0 is greedy, top_k=0 and top_p=1 cut nothing."""
  if not 0 <= temperature < math.inf:
    raise ConfigError(f'temperature: {temperature} must be a number from 0 on (0 takes the likeliest token)')
  if top_k < 0:
    raise ConfigError(f'top_k: {top_k} must be at least 0 (0 keeps all tokens)')
  if not 0 < top_p <= 1:
    raise ConfigError(f'top_p: {top_p} must be above 0 and at most 1 (1 keeps all tokens)')
  if temperature == 0:
    return Sampler()
  return Sampler(float(temperature), float(top_p) if top_p < 1 else None, top_k)


GREEDY = Sampler()
