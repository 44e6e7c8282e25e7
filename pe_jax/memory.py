"""What a lack of memory means in the words of the config: how large the run is, and what to lower."""

import contextlib
import math

import jax

from pe_jax import encodings, model
from pe_jax.errors import ConfigError


def explained(config):
  """Of a training run."""
  way_out = (
    'lower batch_size or raise accumulate, lower train_length, set model.remat=True, take a smaller model, or share it among devices with '
    'mesh.fsdp; scripts/fits.py tells what a TPU holds'
  )
  return _caught(lambda said: f'{size(config)}: {said} ({way_out})')


def explained_at(lengths):
  """Of an evaluation at lengths."""
  there = ', '.join(map(str, lengths))
  return _caught(lambda said: f'lengths: not enough memory at one of {there} tokens: {said} (leave out the longest, or use more devices)')


def size(config):
  """The fields of a config that memory goes by, and the bytes of parameters and optimizer."""
  enc = encodings.make(config.encoding, model.dims(config))
  shapes = jax.eval_shape(lambda: model.init(config, enc, jax.random.PRNGKey(0)))
  count = sum(math.prod(x.shape) for x in jax.tree.leaves(shapes))
  m = config.model
  return (
    f'batch_size: not enough memory for {config.batch_size} rows (accumulate={config.accumulate}) of train_length={config.train_length} '
    f'on {jax.device_count()} devices, with {m.num_layers} layers of model.embed_dim={m.embed_dim}, model.mlp_dim={m.mlp_dim}: '
    f'{count / 1e6:.1f} M parameters, {16 * count / 1e9:.1f} GB with gradients and the moments of adam'
  )


@contextlib.contextmanager
def _caught(sentence):
  try:
    yield
  except MemoryError as error:
    raise ConfigError(sentence(' '.join(str(error).split()) or 'the host has no more')) from error
  except jax.errors.JaxRuntimeError as error:
    if 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    said = ' '.join(str(error).partition('RESOURCE_EXHAUSTED:')[2].split())[:200]
    raise ConfigError(sentence(said)) from error
