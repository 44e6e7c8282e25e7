"""A GGUF file, read by the `gguf` package: its metadata in the words of a config.json, its tensors under the names of transformers.

Two things are not as in transformers. llama.cpp turns neighbouring pairs of Llama's queries and keys, and its files have their rows
permuted for that: they are put back into halves here. And the divisors of Llama 3.1's frequencies are stored as a tensor instead of their
settings.
"""

import dataclasses
import functools
import math
import pathlib

import numpy as np

from pe_jax.errors import ConfigError, DataError
from pe_jax.hf_rope import ORIGINAL
from pe_jax.weights.hf_folder import Tensor

# {architecture there: (model type of transformers, whether the rows of queries and keys are permuted)}
ARCHITECTURES = {
  'llama': ('llama', True),
  'qwen2': ('qwen2', False),
  'qwen3': ('qwen3', False),
  'olmo2': ('olmo2', False),
  'smollm3': ('smollm3', True),
}
SIZES = {
  'hidden_size': 'embedding_length', 'num_hidden_layers': 'block_count', 'num_attention_heads': 'attention.head_count',
  'intermediate_size': 'feed_forward_length', 'max_position_embeddings': 'context_length',
}  # fmt: skip
# {key there: key of rope_parameters}. The last ones say nothing about frequencies.
ROPE = {
  'rope.freq_base': 'rope_theta', 'rope.scaling.factor': 'factor', 'rope.scaling.original_context_length': ORIGINAL,
  'rope.scaling.attn_factor': 'attention_factor', 'rope.scaling.yarn_beta_fast': 'beta_fast', 'rope.scaling.yarn_beta_slow': 'beta_slow',
  'rope.scaling.type': 'rope_type', 'rope.dimension_count': None, 'rope.scaling.finetuned': None,
}  # fmt: skip
# What else of an architecture is read, and what says nothing about the logits of a text. Any other key is refused: what it changes would
# show in nothing but a worse loss, as OLMo 3's windows, which are in files of OLMo 2's architecture.
READ = (
  *SIZES.values(), 'attention.head_count_kv', 'attention.key_length', 'attention.value_length', 'attention.layer_norm_rms_epsilon',
  'attention.causal', 'expert_count',
)  # fmt: skip
SILENT = ('vocab_size', 'expert_used_count', 'tensor_data_layout', 'pooling_type')
NONE = {'attention.sliding_window': 0, 'attention.clamp_kqv': 0.0, 'attention.max_alibi_bias': 0.0}  # read where they say nothing
FREQUENCIES = 'rope_freqs.weight'


@dataclasses.dataclass(frozen=True)
class GgufFile:
  """Attributes:
  path: the file.
  given: what its metadata say, as a config.json.
  reader: a gguf.GGUFReader.
  """

  path: pathlib.Path
  given: dict
  reader: object

  def tensors(self, family, m):
    """{name in transformers: Tensor}; a tensor that the model does not have keeps its own name."""
    import gguf

    arch = value(self.reader, 'general.architecture')
    names = gguf.get_tensor_name_map(_architecture(arch), m.num_layers)
    stored = {t.name: t for t in self.reader.tensors if t.name != FREQUENCIES}
    wanted = {names.get_name(e.tensor, try_suffixes=('.weight', '.bias')): e.tensor for e in family.entries(m)}
    permuted = ARCHITECTURES[arch][1]
    return {wanted.get(name, name): self._tensor(wanted.get(name, name), t, m if permuted else None) for name, t in stored.items()}

  def generation(self):
    """A GGUF file says nothing of generation that transformers would read."""
    return {}

  def _tensor(self, name, tensor, m):
    shape = tuple(int(n) for n in reversed(tensor.shape))
    read = functools.partial(_dequantised, self.path, tensor, shape)
    part = name.rpartition('self_attn.')[2].partition('.')[0]
    heads = {'q_proj': m.num_heads, 'k_proj': m.num_kv_heads}.get(part) if m else None
    return Tensor(name, shape, tensor.tensor_type.name, self.path.name, (lambda: halves(read(), heads)) if heads else read)


def halves(x, num_heads):
  """Rows whose neighbours are a pair, put so that a pair is the rows i and i + d/2 of a head: d/2 pairs x 2 -> 2 x d/2."""
  if x.shape[0] % (2 * num_heads):
    raise DataError(f'{x.shape[0]} rows of queries or keys are not those of {num_heads} heads (its tensors are those of another model)')
  return x.reshape(num_heads, -1, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def _dequantised(path, tensor, shape):
  import gguf

  try:
    return np.asarray(gguf.dequantize(tensor.data, tensor.tensor_type), np.float32).reshape(shape)
  except NotImplementedError as error:
    raise ConfigError(f'{path}: {tensor.name} is stored as {tensor.tensor_type.name}, which the gguf package cannot read') from error


def _architecture(name):
  import gguf

  return next(arch for arch, known in gguf.MODEL_ARCH_NAMES.items() if known == name)


def open_file(path):
  """The GgufFile."""
  try:
    import gguf
  except ImportError:
    raise ConfigError(f'{path}: a GGUF file needs the gguf package (pip install pe_jax[weights])') from None
  path = pathlib.Path(path)
  try:
    reader = gguf.GGUFReader(path)
  except Exception as error:  # of a torn file anything comes: ValueError, IndexError, KeyError
    raise DataError(f'{path}: cannot be read as GGUF: {error} (was it copied whole?)') from error
  return GgufFile(path, _config(path, reader), reader)


def value(reader, key, default=None):
  """The value of a metadata key."""
  field = reader.get_field(key)
  try:
    return default if field is None else field.contents()
  except (ValueError, IndexError, TypeError) as error:  # text that is no UTF-8 among others
    raise DataError(f'the key {key} of the GGUF file cannot be read: {error}') from error


def _config(path, reader):
  """The metadata as a config.json."""
  arch = value(reader, 'general.architecture')
  if arch not in ARCHITECTURES:
    raise ConfigError(f'{path}: architecture {arch!r} cannot be imported from GGUF (these can: {", ".join(ARCHITECTURES)})')
  if value(reader, f'{arch}.expert_count', 0):
    raise ConfigError(f'{path}: {arch}.expert_count={value(reader, f"{arch}.expert_count")}: a mixture of experts cannot be imported')
  _check_keys(path, reader, arch)
  given = {'model_type': ARCHITECTURES[arch][0]}
  for theirs, ours in SIZES.items():
    given[theirs] = value(reader, f'{arch}.{ours}')
    if type(given[theirs]) is not int or given[theirs] < 1:
      raise ConfigError(f'{path}: {arch}.{ours}={given[theirs]!r} is not one positive whole number')
  heads = given['num_attention_heads']
  tensors = {t.name: t for t in reader.tensors}
  given |= {
    'num_key_value_heads': value(reader, f'{arch}.attention.head_count_kv', heads),
    'head_dim': value(reader, f'{arch}.attention.key_length', given['hidden_size'] // heads),
    'rms_norm_eps': _decimal(value(reader, f'{arch}.attention.layer_norm_rms_epsilon')),
    'tie_word_embeddings': 'output.weight' not in tensors,
    'attention_bias': 'blk.0.attn_q.bias' in tensors,
    'mlp_bias': 'blk.0.ffn_up.bias' in tensors,
    'rope_parameters': _rope(path, reader, arch, tensors),
    'bos_token_id': value(reader, 'tokenizer.ggml.bos_token_id'),
    'eos_token_id': value(reader, 'tokenizer.ggml.eos_token_id'),
    'pad_token_id': value(reader, 'tokenizer.ggml.padding_token_id'),
  }
  if 'token_embd.weight' not in tensors:
    raise DataError(f'{path}: it has no token_embd.weight')
  given['vocab_size'] = int(tensors['token_embd.weight'].shape[1])
  of_values = value(reader, f'{arch}.attention.value_length', given['head_dim'])
  if of_values != given['head_dim']:
    raise ConfigError(f'{path}: {arch}.attention.value_length={of_values} beside keys of {given["head_dim"]} cannot be imported')
  turning = value(reader, f'{arch}.rope.dimension_count', given['head_dim'])
  if turning != given['head_dim']:
    raise ConfigError(f'{path}: {arch}.rope.dimension_count={turning} of heads of {given["head_dim"]} cannot be imported')
  return given


def _check_keys(path, reader, arch):
  """Refuses keys of the architecture that are not known, or that say what is not done here."""
  for key in reader.fields:
    ours = key.removeprefix(f'{arch}.')
    if ours == key or ours in (*ROPE, *READ, *SILENT) or (ours in NONE and value(reader, key) == NONE[ours]):
      continue
    raise ConfigError(
      f"{path}: the key '{key}' is not known, and may change what is computed (known: {', '.join((*ROPE, *READ, *SILENT))}; "
      'import the Hugging Face folder of the model)'
    )
  if not value(reader, f'{arch}.attention.causal', True):
    raise ConfigError(f'{path}: {arch}.attention.causal=False: a model that sees the future cannot be imported')


def _rope(path, reader, arch, tensors):
  """`rope_parameters`."""
  fields = {}
  for key in reader.fields:
    ours = key.removeprefix(f'{arch}.')
    if ROPE.get(ours):
      found = value(reader, key)
      fields[ROPE[ours]] = _decimal(found) if isinstance(found, float) else found
  # llama.cpp takes a factor without a type as linear, and a factor of 0 as 1.
  kind = fields.pop('rope_type', 'linear' if fields.get('factor', 0) not in (0, 1) else 'none')
  if kind not in ('none', 'linear', 'yarn'):
    raise ConfigError(f'{path}: {arch}.rope.scaling.type={kind!r} cannot be imported (these can: none, linear, yarn)')
  of_scores = fields.pop('attention_factor', 1.0)
  if of_scores != 1 and kind != 'yarn':
    raise ConfigError(
      f'{path}: {arch}.rope.scaling.attn_factor={of_scores:g} without rope.scaling.type=yarn cannot be imported (only 1 can)'
    )
  if of_scores != 1:  # in llama.cpp it is a factor beside YaRN's own, in transformers it takes the place of that
    fields['attention_factor'] = of_scores * (1 + 0.1 * math.log(max(1.0, fields.get('factor', 1.0))))
  if kind == 'none':
    fields = {name: found for name, found in fields.items() if name == 'rope_theta'}
  if FREQUENCIES in tensors:
    return fields | _divisors(tensors[FREQUENCIES], value(reader, f'{arch}.context_length'), fields.get('rope_theta', 10_000.0))
  return fields | {'rope_type': 'default' if kind == 'none' else kind}


def _divisors(tensor, length, base):
  """The settings of Llama 3.1 where they give the divisors, else the divisors as they are."""
  from pe_jax.encodings import frequency_maps, rope

  divisor_F = np.asarray(tensor.data, np.float64).reshape(-1)
  settings = {'factor': round(float(divisor_F.max()), 4), 'low': 1.0, 'high': 4.0, 'original_length': 8192}
  frequency_F = rope.frequencies(2 * len(divisor_F), base)
  if np.allclose(frequency_F / frequency_maps.llama3(frequency_F, **settings)[0], divisor_F, rtol=1e-5):
    return {'rope_type': 'llama3', 'factor': settings['factor'], 'low_freq_factor': 1.0, 'high_freq_factor': 4.0, ORIGINAL: 8192}
  each = [float(x) for x in divisor_F]
  return {'rope_type': 'longrope', 'factor': 1.0, 'short_factor': each, 'long_factor': each, ORIGINAL: length}


def _decimal(value):
  """A float32 of the file as the decimal number that was meant: 1e-05, not 9.99999974e-06."""
  return None if value is None else float(f'{value:.7g}')
