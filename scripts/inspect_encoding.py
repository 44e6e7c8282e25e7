"""What an encoding does to a model: frequencies and phases, biases and windows, rows, parameters.

  scripts/inspect_encoding.py --encoding='yarn(factor=8)' --train_length=128 --length=1024 --head_dim=64
  scripts/inspect_encoding.py --encoding=alibi --num_heads=8 --figure=alibi.png
  scripts/inspect_encoding.py --config=config.json --length=32768                   # of a Hugging Face model
  scripts/inspect_encoding.py --config=config.json --encoding='yarn(factor=4)'      # that model read with another map

No model and no text are needed: everything is asked of the encoding itself. Learned parameters are as at initialisation.
"""

import dataclasses
import json
import os
import pathlib
import signal

from absl import flags

from pe_jax import cli
from pe_jax.errors import ConfigError, WriteError

ENCODING = flags.DEFINE_string('encoding', '', 'The encoding, e.g. rope, alibi, yarn(factor=8), layers(rope, nope).')
CONFIG = flags.DEFINE_string(
  'config', '', 'A Hugging Face config.json, for encoding, lengths, shape; --encoding then reads its frequencies.'
)
TRAIN_LENGTH = flags.DEFINE_integer('train_length', 0, 'Tokens of training; 0: 128, or what --config declares.', lower_bound=0)
LENGTH = flags.DEFINE_integer('length', 0, 'Tokens to read; 0: 8 times train_length, or what --config declares.', lower_bound=0)
HEAD_DIM = flags.DEFINE_integer('head_dim', 64, 'Width of a head.', lower_bound=1)
NUM_HEADS = flags.DEFINE_integer('num_heads', 8, 'Query heads.', lower_bound=1)
NUM_KV_HEADS = flags.DEFINE_integer('num_kv_heads', 0, 'Key-value heads; 0: as many as query heads.', lower_bound=0)
EMBED_DIM = flags.DEFINE_integer('embed_dim', 0, 'Width of the model; 0: num_heads x head_dim.', lower_bound=0)
NUM_LAYERS = flags.DEFINE_integer('num_layers', 0, 'Layers; 0: as many as the encoding lists.', lower_bound=0)
FIGURE = flags.DEFINE_string('figure', '', 'Also draw it: a .png, .pdf or .svg file.')
JSON = flags.DEFINE_boolean('json', False, 'Print one JSON object instead of text.')

SHAPE = ('head_dim', 'num_heads', 'num_kv_heads', 'embed_dim', 'num_layers')  # what a config.json says itself


def main():
  """Flags checked, then the anatomy printed and drawn."""
  signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it without a word
  if FIGURE.value and pathlib.Path(FIGURE.value).suffix not in ('.png', '.pdf', '.svg'):
    raise ConfigError(f"--figure: '{FIGURE.value}' must end in .png, .pdf or .svg")
  declaration = declared(CONFIG.value) if CONFIG.value else None
  if not declaration:
    cli.required('encoding', "'yarn(factor=8)'")
  spec, shape = chosen(declaration)

  os.environ.setdefault('JAX_PLATFORMS', 'cpu')  # a moment's arithmetic: no accelerator is taken for it
  from pe_jax import encodings
  from pe_jax.encodings.base import Dims
  from pe_jax.report import anatomy, anatomy_figure, anatomy_text

  if declaration and ENCODING.value:
    spec = str(encodings.inherit(encodings.check_name(spec), encodings.parse(declaration.spec)))
  length = shape.pop('length')
  a = anatomy.anatomy(spec, Dims(**shape), length)
  if FIGURE.value:
    try:
      anatomy_figure.draw([a], FIGURE.value)
    except OSError as error:
      raise WriteError(f'--figure: {FIGURE.value}: cannot be written: {error.strerror}') from error
  if JSON.value:
    config = {'config': {**dataclasses.asdict(declaration), 'spec': declaration.spec}} if declaration else {}
    print(json.dumps({**config, **a}, allow_nan=False, ensure_ascii=False))
  else:
    print('\n\n'.join([*([describe(declaration)] if declaration else []), anatomy_text.text(a)]))


def declared(path):
  """The Declaration of a config.json."""
  from pe_jax import hf_config

  try:
    return hf_config.declared(json.loads(pathlib.Path(path).read_text(encoding='utf-8')))
  except OSError as error:
    raise ConfigError(f'--config: {path}: {error.strerror}') from error
  except ValueError as error:
    if isinstance(error, ConfigError):
      raise
    raise ConfigError(f'--config: {path}: not JSON: {error}') from error


def chosen(declaration):
  """(encoding, lengths and shape) from the flags and what is declared."""
  from pe_jax import encodings

  spec = ENCODING.value or declaration.spec
  parsed = encodings.check_name(spec)
  if declaration:
    given = next((name for name in SHAPE if flags.FLAGS[name].present), None)
    if given:
      raise ConfigError(f'--{given}: the shape is that of --config (leave it out)')
    shape = {name: getattr(declaration, name) for name in SHAPE}
    train, length = TRAIN_LENGTH.value or declaration.train_length, LENGTH.value or declaration.max_length
    if not train:
      raise ConfigError('--train_length: missing; this config.json does not say how long the model is (for instance --train_length=512)')
  else:
    listed = [len(part.inner) for part in parsed.walk() if part.name == 'layers']
    shape = {'head_dim': HEAD_DIM.value, 'num_heads': NUM_HEADS.value, 'num_kv_heads': NUM_KV_HEADS.value or NUM_HEADS.value}
    shape |= {'embed_dim': EMBED_DIM.value or HEAD_DIM.value * NUM_HEADS.value, 'num_layers': NUM_LAYERS.value or max([1, *listed])}
    train, length = TRAIN_LENGTH.value or 128, LENGTH.value
  if shape['num_heads'] % shape['num_kv_heads']:
    raise ConfigError(f'--num_kv_heads: {shape["num_kv_heads"]} does not divide num_heads={shape["num_heads"]}')
  return spec, {**shape, 'train_length': train, 'length': length or 8 * train}


def describe(d):
  """What a config.json declares, as text."""
  from pe_jax.report.anatomy_text import ranges

  windows = {w: [n for n, other in enumerate(d.windows) if other == w] for w in d.windows if w}
  trained = f', frequencies trained at {d.train_length}' if d.train_length != d.max_length else ''
  facts = [('declares', d.spec), ('positions', f'{d.max_length or "not said"}{trained}'), ('layers', str(d.num_layers))]
  facts += [('window', f'{w} tokens in {"all layers" if len(n) == d.num_layers else "layers " + ranges(n)}') for w, n in windows.items()]
  facts += [('note', note) for note in (*d.notes, *(['what follows is without the window'] if windows else []))]
  return '\n'.join([f'config.json of a {d.model_type}', *(f'  {name:<16} {fact}' for name, fact in facts)])


if __name__ == '__main__':
  cli.run(main, __doc__)
