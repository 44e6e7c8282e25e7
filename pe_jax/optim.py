"""The optimizer: clipped optax by name, with linear warm-up and cosine decay."""

import inspect

import jax
import optax

from pe_jax.config import did_you_mean
from pe_jax.errors import ConfigError

NAMES = ('adamw', 'adam', 'lion', 'sgd', 'adafactor', 'lamb', 'nadamw')


def check_name(name):
  """Refuses a name that optax has no optimizer for."""
  if name not in NAMES:
    raise ConfigError(f"optim.name: '{name}' is unknown{did_you_mean(name, NAMES)} (there are {', '.join(NAMES)})")


def schedule(config):
  """step -> learning rate, float32."""
  o = config.optim
  return optax.warmup_cosine_decay_schedule(
    init_value=0.0 if o.warmup_steps else o.learning_rate,
    peak_value=o.learning_rate,
    warmup_steps=o.warmup_steps,
    decay_steps=max(config.num_train_steps, o.warmup_steps + 1),
    end_value=o.final_fraction * o.learning_rate,
  )


def make(config):
  """The optax transformation."""
  o = config.optim
  build = getattr(optax, o.name)
  wanted = {'b1': o.b1, 'b2': o.b2, 'weight_decay': o.weight_decay, 'mask': decayed}
  accepted = {k: v for k, v in wanted.items() if k in inspect.signature(build).parameters}
  clip = [optax.clip_by_global_norm(o.clip_norm)] if o.clip_norm else []
  return optax.chain(*clip, build(learning_rate=schedule(config), **accepted))


def decayed(params):
  """True for the weights that decay: matrices of the decoder. Norms, biases and position parameters do not."""
  decoder = jax.tree.map(lambda x: x.ndim > 1, params['decoder'])
  return {'decoder': decoder, 'encoding': jax.tree.map(lambda _: False, params['encoding'])}
