"""What a Hugging Face config.json declares about position: the encoding in our grammar, lengths, heads and windows.

    declared(json.load(open('config.json'))).spec   ->   'yarn(factor=4, base=1000000, original_length=32768)'

Both spellings are read: `rope_theta` with `rope_scaling` (`type` or `rope_type`), and `rope_parameters`, flat or one set for each kind of
layer. What a file leaves out has the value that transformers 5.24 gives it. An unknown key in the rope fields, two keys that contradict
each other and a model type whose mechanism is not known are refused: a frequency read wrongly shows in nothing but a worse loss.
"""

import dataclasses

from pe_jax import hf_rope
from pe_jax.encodings.grammar import Spec
from pe_jax.errors import ConfigError
from pe_jax.hf_models import INSIDE, MODELS

# One thing under the names that model types have for it.
NAMES = {
  'layers': ('num_hidden_layers', 'n_layer', 'n_layers', 'num_layers'),
  'heads': ('num_attention_heads', 'n_head', 'n_heads', 'num_heads'),
  'kv_heads': ('num_key_value_heads', 'num_kv_heads'),
  'width': ('hidden_size', 'n_embd', 'n_embed', 'd_model'),
  'head_dim': ('head_dim', 'd_kv'),
  'length': ('max_position_embeddings', 'n_positions', 'max_seq_len', 'seq_length'),
}


@dataclasses.dataclass(frozen=True)
class Declaration:
  """What a config.json says.

  Attributes:
    model_type: as written there.
    layers: one encoding a layer, as strings of our grammar.
    windows: one number a layer: a query sees itself and the window - 1 tokens before it; None: all tokens before it.
    max_length: positions the model is said to serve; None where the file does not say.
    train_length: positions the frequencies were trained at before they were scaled, where the file tells; else max_length.
    num_heads, num_kv_heads, head_dim, embed_dim: the attention's shape.
    notes: what else matters to whoever reproduces the model.
  """

  model_type: str
  layers: tuple[str, ...]
  windows: tuple[int | None, ...]
  max_length: int | None
  train_length: int | None
  num_heads: int
  num_kv_heads: int
  head_dim: int
  embed_dim: int
  notes: tuple[str, ...] = ()

  @property
  def num_layers(self):
    """Depth."""
    return len(self.layers)

  @property
  def spec(self):
    """The model's encoding; layers(…), cycled over depth, where layers differ."""
    period = next(p for p in range(1, len(self.layers) + 1) if all(s == self.layers[n % p] for n, s in enumerate(self.layers)))
    return self.layers[0] if period == 1 else f'layers({", ".join(self.layers[:period])})'

  @property
  def parts(self):
    """{encoding: the layers that have it}."""
    return {spec: [n for n, other in enumerate(self.layers) if other == spec] for spec in self.layers}


def declared(config: dict) -> Declaration:
  """The Declaration of a parsed config.json; ConfigError where it cannot be read with certainty."""
  if not isinstance(config, dict):
    raise ConfigError(f'config.json: an object is wanted, not {type(config).__name__}')
  kind = config.get('model_type')
  if kind is not None and not isinstance(kind, str):
    raise ConfigError(f'config.json: model_type={kind!r} is no name')
  if kind in INSIDE:
    if not isinstance(config.get('text_config'), dict):
      raise ConfigError(f'config.json: model_type={kind!r} without text_config')
    return declared({**config['text_config'], 'model_type': INSIDE[kind]})
  if kind not in MODELS:
    raise ConfigError(
      f'config.json: model_type={kind!r}: its position mechanism is not known (known: {", ".join(sorted({*MODELS, *INSIDE}))})'
    )
  read, defaults = MODELS[kind]
  return read(_Config(kind, config, defaults))


@dataclasses.dataclass(frozen=True)
class _Config:
  """A config.json, and what transformers takes for keys that are not in it."""

  kind: str
  given: dict
  defaults: dict

  def get(self, key):
    return self.given[key] if key in self.given else self.defaults.get(key)

  def number(self, thing, otherwise=None):
    """A positive whole number under any of its names. `otherwise` is for a null, and where there is no default."""
    names = NAMES[thing]
    there = [key for key in names if key in self.given] or [key for key in names if key in self.defaults]
    value = hf_rope.merged((key, thing, self.get(key)) for key in there).get(thing, otherwise)
    if type(value) is not int or value < 1:
      said = f'{there[0]}={value!r} is not a positive whole number' if there else f'{names[0]} is missing'
      raise ConfigError(f'config.json: {said}')
    return value

  def length(self):
    """Declared positions, None where the file does not say."""
    return self.number('length') if any(self.get(key) is not None for key in NAMES['length']) else None

  def head_dim(self):
    """Width of a head, where not given that of the model over the number of heads."""
    width, heads = self.number('width'), self.number('heads')
    if width % heads and all(self.get(key) is None for key in NAMES['head_dim']):
      raise ConfigError(f'config.json: {heads} heads do not divide a width of {width}, and head_dim is not given')
    return self.number('head_dim', width // heads)

  def declaration(self, specs, windows=None, notes=(), **more):
    """A Declaration with the attention's shape read. `specs`: one Spec, or one a layer."""
    heads = self.number('heads')
    specs = [specs] * self.number('layers') if isinstance(specs, Spec) else specs
    fields = {
      'max_length': self.length(),
      'train_length': self.length(),
      'num_heads': heads,
      'num_kv_heads': self.number('kv_heads', heads),
      'head_dim': self.head_dim(),
      'embed_dim': self.number('width'),
    }
    windows = tuple(windows or [None] * len(specs))
    return Declaration(self.kind, tuple(str(spec) for spec in specs), windows, notes=tuple(notes), **{**fields, **more})
