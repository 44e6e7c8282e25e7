"""What a lack of memory means in the words of the config: how large the run is, and what to lower."""

import contextlib
import math

import jax

from pe_jax import encodings, model, optim, step
from pe_jax.errors import ConfigError


def explained(config, seeds=1):
  """Of a training run, or of several that differ in their seed and are trained together."""
  fewer = 'take fewer --seeds at once, ' if seeds > 1 else ''
  way_out = (
    f'{fewer}lower batch_size or raise accumulate, lower train_length, set model.remat=True, take a smaller model, or share it among '
    'devices with mesh.fsdp; scripts/fits.py tells what a TPU holds'
  )
  return _caught(lambda said: f'{size(config, seeds)}: {said} ({way_out})')


def explained_at(lengths):
  """Of an evaluation at lengths."""
  there = ', '.join(map(str, lengths))
  return _caught(lambda said: f'lengths: not enough memory at one of {there} tokens: {said} (leave out the longest, or use more devices)')


def size(config, seeds=1):
  """The fields of a config that memory goes by, and the bytes of parameters, gradients and optimizer."""
  enc = encodings.make(config.encoding, model.dims(config))
  state = jax.eval_shape(lambda: step.init(config, enc, optim.make(config)))
  count = seeds * sum(math.prod(x.shape) for x in jax.tree.leaves(state.params))
  held = seeds * sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves((state.params, state.params, state.opt)))
  m, each = config.model, f'{seeds} seeds of ' if seeds > 1 else ''
  return (
    f'batch_size: not enough memory for {each}{config.batch_size} rows (accumulate={config.accumulate}) of '
    f'train_length={config.train_length} on {jax.device_count()} devices, with {m.num_layers} layers of '
    f'model.embed_dim={m.embed_dim}, model.mlp_dim={m.mlp_dim}: '
    f'{count / 1e6:.1f} M parameters, {held / 1e9:.1f} GB with their gradients and what {config.optim.name} keeps'
  )


@contextlib.contextmanager
def _caught(sentence):
  try:
    yield
  except MemoryError as error:
    raise ConfigError(sentence(' '.join(str(error).split()) or 'the host has no more')) from error
  except jax.errors.JaxRuntimeError as error:
    if not (said := exhausted(error)):
      raise
    raise ConfigError(sentence(said[:200])) from error


def exhausted(error):
  """What a device or its compiler says of memory that there is not, in one line; '' of another error."""
  return ' '.join(str(error).partition('RESOURCE_EXHAUSTED:')[2].split())
