"""What a family of models is: a table between its config.json and our fields, one between its tensors and our parameters (entries.py).

    Key('rms_norm_eps', 'norm_epsilon', 1e-6)    a key of config.json, the fields it sets, what its absence means
Both are read in one direction and written in the other.
"""

import dataclasses
from collections.abc import Callable

from pe_jax import config
from pe_jax.errors import ConfigError

# Fields of config.model that say what is computed, with their plainest values; a family's facts and keys replace these.
PLAIN = {
  'norm': 'rms', 'norm_epsilon': 1e-6, 'norm_bias': False, 'norm_place': 'before', 'qkv_bias': False, 'attention_out_bias': False,
  'mlp': 'swiglu', 'mlp_bias': False, 'parallel_block': False, 'shared_block_norm': False, 'embed_norm': False, 'qk_norm': 'none',
  'embed_scale': 1.0, 'tie_head': True, 'head_bias': False, 'causal': True,
}  # fmt: skip
TANH = ('gelu_pytorch_tanh', 'gelu_new', 'gelu_fast', 'gelu_tanh')  # one function under several names
ACTIVATIONS = {'gelu': 'gelu_exact', 'silu': 'silu', 'swish': 'silu', 'relu': 'relu', 'relu2': 'relu2', **dict.fromkeys(TANH, 'gelu')}
GATES = {'silu': 'swiglu', 'swish': 'swiglu', 'gelu': 'geglu_exact', **dict.fromkeys(TANH, 'geglu')}
REQUIRED = object()
FIELDS = config.default().model
KINDS = {bool: (bool,), int: (int,), float: (float, int), str: (str,)}  # of a field: what config.json may have for it


@dataclasses.dataclass(frozen=True)
class Key:
  """A key of config.json.

  Attributes:
    name: as written there.
    fields: the field of config.model it sets, or several with spaces between.
    default: what transformers takes where the key is missing or null; REQUIRED: nothing.
    words: {their word: ours}, where they differ.
  """

  name: str
  fields: str
  default: object = REQUIRED
  words: dict | None = None

  def read(self, given):
    """{field: value} of a config.json."""
    value = given.get(self.name)
    value = self.default if value is None else value
    if value is REQUIRED:
      raise ConfigError(f'config.json: {self.name} is missing')
    if self.words is not None:
      if not isinstance(value, (str, bool)) or value not in self.words:
        raise ConfigError(f'config.json: {self.name}={value!r} is not known (known: {", ".join(map(str, self.words))})')
    elif type(value) not in (kinds := KINDS[type(FIELDS[self.fields.split()[0]])]):
      raise ConfigError(f'config.json: {self.name}={value!r} is none of {", ".join(kind.__name__ for kind in kinds)}')
    return dict.fromkeys(self.fields.split(), value if self.words is None else self.words[value])

  def write(self, fields):
    """{key: value} for a config.json; where several fields differ, that of the first."""
    value = fields[self.fields.split()[0]]
    theirs = [word for word, ours in (self.words or {}).items() if ours == value]
    return {self.name: theirs[0] if theirs else value}


@dataclasses.dataclass(frozen=True)
class Family:
  """One model type of transformers.

  Attributes:
    model_type: of config.json.
    architecture: the class that transformers loads it with.
    entries: (config.model) -> Entries of the whole model.
    keys: what config.json says of our fields.
    facts: fields that are so in every model of the type.
    only: {key: value} of settings that nothing here expresses otherwise; 'a.b' is a key in an object.
    more: (given) -> {field: value}, what no table can say.
    more_keys: (fields) -> {key: value}, its inverse.
    positions: (config) -> {key: value} of everything about position; raises ConfigError where the type cannot express it.
    shape: {our field: their key} of the sizes.
    prefix: what names of a checkpoint of the bare model lack.
    aliases: {another name of a tensor: its name}.
    left_out: ends of names of tensors that are no parameters.
  """

  model_type: str
  architecture: str
  entries: Callable
  keys: tuple = ()
  facts: dict = dataclasses.field(default_factory=dict)
  only: dict = dataclasses.field(default_factory=dict)
  more: Callable = lambda given: {}
  more_keys: Callable = lambda fields: {}
  positions: Callable = lambda config: {}
  shape: dict = dataclasses.field(default_factory=dict)
  prefix: str = 'model.'
  aliases: dict = dataclasses.field(default_factory=dict)
  left_out: tuple = ('.rotary_emb.inv_freq',)

  def fields(self, given):
    """{field of config.model: value}, without the sizes that every model has, of a config.json."""
    for key, value in self.only.items():
      there = given
      for part in key.split('.'):
        there = there.get(part) if isinstance(there, dict) else None
      if there is not None and there != value:
        raise ConfigError(f'config.json: {key}={there!r} cannot be expressed here with model_type={self.model_type!r} (only {value!r} can)')
    fields = {**PLAIN, **self.facts}
    for key in self.keys:
      fields |= key.read(given)
    return fields | self.more(given)

  def written(self, config):
    """The config.json of a config, as far as the type can express it."""
    fields = config.model.to_dict()
    keys = {'model_type': self.model_type, 'architectures': [self.architecture], 'torch_dtype': 'float32'}
    keys['pad_token_id'] = None  # the types' own defaults can lie outside a small vocabulary
    keys |= {theirs: fields[ours] for ours, theirs in self.shape.items()}
    for key in self.keys:
      keys |= key.write(fields)
    return keys | self.more_keys(fields) | self.positions(config)
