"""From a config as written to one that can run: every field checked, everything derived filled in, nothing compiled.

Errors name the field, the numbers and the way out. What needs no jax is checked first.
"""

import math

import ml_collections

from pe_jax import config as config_lib
from pe_jax.data import sources
from pe_jax.data import tokenizer as tokenizer_lib
from pe_jax.errors import ConfigError

MINIMUM = {
  'train_length': 1,
  'seed': 0,
  'batch_size': 1,
  'accumulate': 1,
  'num_train_steps': 1,
  'mesh.data': -1,
  'mesh.fsdp': 1,
  'model.num_layers': 1,
  'model.embed_dim': 1,
  'model.num_heads': 1,
  'model.num_kv_heads': 0,
  'model.head_dim': 0,
  'model.mlp_dim': 0,
  'model.norm_epsilon': 0.0,
  'model.embed_scale': 0.0,
  'model.vocab_size': 0,
  'model.dropout': 0.0,
  'model.attention_chunk': 0,
  'data.block_documents': 1,
  'data.min_bytes': 0,
  'data.task_min_length': 1,
  'data.task_max_length': 1,
  'data.task_curriculum': 0.0,
  'optim.learning_rate': 0.0,
  'optim.warmup_steps': -1,
  'optim.final_fraction': 0.0,
  'optim.weight_decay': 0.0,
  'optim.b1': 0.0,
  'optim.b2': 0.0,
  'optim.clip_norm': 0.0,
  'nonfinite_in_a_row': 1,
  'log_every_steps': 1,
  'eval_every_steps': 0,
  'eval_targets': 1,
  'checkpoint_every_steps': 0,
  'keep_checkpoints': 1,
}
BELOW_ONE = ('model.dropout', 'optim.b1', 'optim.b2')
CHOICES = {
  'parallel': ('jit', 'pmap'),
  'nonfinite': ('stop', 'skip'),
  'init_resize': ('refuse', 'extend', 'interpolate'),
  'model.mlp': ('gelu', 'gelu_exact', 'relu', 'relu2', 'silu', *config_lib.GATED),
  'model.norm': ('rms', 'layer'),
  'model.norm_place': ('before', 'after'),
  'model.qk_norm': ('none', 'head', 'full'),
  'model.dtype': ('float32', 'bfloat16'),
  'model.attention': ('auto', 'dense', 'chunked', 'blockwise', 'splash', 'flash', 'cudnn'),
  'model.platform': ('', 'tpu', 'cuda', 'cpu', 'interpret'),
  'data.packing': ('concat', 'pad'),
  'data.unicode_errors': ('strict', 'replace'),
  'data.task_sampling': ('uniform', 'long'),
}
LARGEST = 2**31 - 1  # counts and sizes are int32 on the device


def resolve(config):
  """A locked copy with derived fields filled in. Raises ConfigError for settings that cannot work."""
  c = settings(config)

  from pe_jax import attention, encodings, model, optim

  optim.check_name(c.optim.name)
  c.encoding = str(encodings.parse(c.encoding))
  enc = encodings.make(c.encoding, model.dims(c))
  model.check_length(enc, c.train_length)
  if c.model.scan_layers and any(record.layer for record in [enc, *(record for _, record in enc.schedule)]):
    raise ConfigError(f"model.scan_layers: '{c.encoding}' has a record for each layer, and a scan runs one for all (scan_layers=False)")
  attention.check(c, enc, single=c.data.packing == 'pad')
  # The embedding was trained at one scale; another encoding at evaluation must not change it.
  c.model.embed_scale = c.model.embed_scale or (c.model.embed_dim**0.5 if enc.embed else 1.0)
  return c.lock()


def settings(config):
  """A copy with everything checked and derived that needs no jax: such mistakes are answered at once."""
  from pe_jax import encodings

  check_fields(config)
  encodings.check_name(config.encoding)
  c = ml_collections.ConfigDict(typed(config.to_dict(), config_lib.default()))
  sources.check_name(c.data.source)
  if c.data.source == 'task':
    _derive_task(c)
  _derive_model(c.model, tokenizer_lib.make(c.data.tokenizer))
  if c.batch_size % c.accumulate:
    raise ConfigError(f'batch_size: {c.batch_size} rows cannot be split into accumulate={c.accumulate} equal micro-batches')
  if c.optim.warmup_steps == -1:
    c.optim.warmup_steps = c.num_train_steps // 10
  if c.optim.warmup_steps > c.num_train_steps:
    raise ConfigError(f'optim.warmup_steps: {c.optim.warmup_steps} exceeds num_train_steps={c.num_train_steps}')
  return c


def check_fields(config):
  """Names, types, ranges and choices against `config.default()`."""
  known, given = config_lib.flatten(config_lib.default()), config_lib.flatten(config)
  for field in given:
    if field not in known:
      raise ConfigError(f'{field}: there is no such field{config_lib.did_you_mean(field, known)}')
  for field, example in known.items():
    if field not in given:
      raise ConfigError(f'{field}: missing (start from pe_jax.config.default())')
    value = given[field]
    if type(value) is not type(example) and not (type(example) is float and type(value) is int):
      raise ConfigError(f'{field}: {value!r} is not {type(example).__name__} (as in {example!r})')
    if isinstance(value, (int, float)) and not isinstance(value, bool):
      _check_number(field, value)
    if field in CHOICES and value not in CHOICES[field]:
      close = config_lib.did_you_mean(value, CHOICES[field])
      raise ConfigError(f'{field}: {value!r} is unknown{close} (there are {", ".join(CHOICES[field])})')


def typed(tree, example):
  """Whole numbers given for float fields as floats, so that one config has one hash."""
  nested = (dict, ml_collections.ConfigDict)
  return {k: typed(v, example[k]) if isinstance(v, nested) else type(example[k])(v) for k, v in tree.items()}


def _check_number(field, value):
  if not math.isfinite(value) or value > LARGEST:
    raise ConfigError(f'{field}: {value} is not a number that can be used (at most {LARGEST})')
  if value < MINIMUM[field] or (field == 'mesh.data' and value == 0) or (field == 'optim.learning_rate' and value == 0):
    at_least = f'above {MINIMUM[field]}' if field == 'optim.learning_rate' else f'at least {MINIMUM[field]}'
    raise ConfigError(f'{field}: {value} must be {at_least}{" and not 0" if field == "mesh.data" else ""}')
  if field == 'data.task_curriculum' and value > 1:
    raise ConfigError(f'{field}: {value} is a share of the steps and must be at most 1')
  if field in BELOW_ONE and value >= 1:
    raise ConfigError(f'{field}: {value} must be below 1')


def _derive_task(c):
  """The task in canonical form and its words as the tokenizer; refuses rows that could not hold its samples."""
  from pe_jax import tasks
  from pe_jax.tasks.batches import trained_lengths

  task = tasks.make(c.data.name)
  c.data.name, own = task.spec, tokenizer_lib.TASK + task.spec
  if c.data.tokenizer not in ('bytes', own):
    raise ConfigError(f"data.tokenizer: '{c.data.tokenizer}', and a task brings its own words (leave it at 'bytes')")
  c.data.tokenizer, c.data.packing = own, 'pad'  # one sample a row
  lengths = trained_lengths(task, c.data)
  if (need := task.positions(lengths[-1])) > c.train_length:
    raise ConfigError(
      f'train_length: {c.train_length} positions cannot hold {task.spec} of length {lengths[-1]}, which takes {need} '
      f'(set train_length={need}, or lower data.task_max_length)'
    )


def _derive_model(m, tokenizer):
  m.vocab_size = m.vocab_size or tokenizer.vocab_size
  if m.vocab_size < tokenizer.vocab_size:
    raise ConfigError(f"model.vocab_size: {m.vocab_size} is smaller than the tokenizer's {tokenizer.vocab_size}")
  if not m.head_dim:
    if m.embed_dim % m.num_heads:
      raise ConfigError(
        f'model.num_heads: {m.num_heads} heads do not divide embed_dim={m.embed_dim} (choose a divisor, or set model.head_dim)'
      )
    m.head_dim = m.embed_dim // m.num_heads
  m.num_kv_heads = m.num_kv_heads or m.num_heads
  if m.parallel_block and m.norm_place == 'after':
    raise ConfigError("model.norm_place: 'after' and a parallel block, which norms what both parts read (leave one at its default)")
  if m.num_heads % m.num_kv_heads:
    raise ConfigError(f'model.num_kv_heads: {m.num_kv_heads} does not divide num_heads={m.num_heads}')
  if not m.mlp_dim:
    m.mlp_dim = max(8, -(-8 * m.embed_dim // 3) // 8 * 8) if m.mlp in config_lib.GATED else 4 * m.embed_dim
