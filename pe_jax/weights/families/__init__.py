"""One file a model type of transformers, named as config.json names it; each has `FAMILY`."""

import importlib
import pkgutil

from pe_jax.errors import ConfigError

EXPERTS = 'its layers choose among several MLPs (a mixture of experts), which the decoder has not'
WHY = {
  'gpt_oss': f'{EXPERTS}; its sinks are the encoding learned_sinks',
  'mixtral': EXPERTS,
  'gemma2': 'its scores are capped softly, which the decoder has not',
  'opt': 'its table of positions begins with two rows for padding, which the encoding learned has not',
  't5': 'it has an encoder, and a decoder that looks at it',
}


def names():
  """The model types that can be read and written."""
  return sorted(m.name for m in pkgutil.iter_modules(__path__))


def get(model_type):
  """The Family of a model type; another one is refused with the list."""
  if model_type not in names():
    why = f': {WHY[model_type]}' if isinstance(model_type, str) and model_type in WHY else ''
    raise ConfigError(f'config.json: model_type={model_type!r} cannot be imported{why} (these can: {", ".join(names())})')
  return importlib.import_module(f'{__name__}.{model_type}').FAMILY
