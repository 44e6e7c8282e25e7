"""The fields of an experiment, each with its unit or reason, and the `file.py:arg` grammar of config files.

A config file is a short program: it takes `default()`, changes what its experiment is about and returns the ConfigDict. Nothing here
imports jax, so a mistake is answered at once.
"""

import hashlib
import json

import ml_collections

from pe_jax.errors import ConfigError, DataError

GATED = ('swiglu', 'geglu', 'geglu_exact')  # MLPs of two projections, one of which gates the other


def default():
  """Every field there is, at the value a run gets that does not mention it. 0 and '' mean "derive it" or "off", as the comment says."""
  c = ml_collections.ConfigDict()
  c.encoding = 'rope'  # a name with fields, e.g. 'yarn(factor=8)'; pe_jax.encodings.names() lists them
  c.train_length = 512  # positions a training row has
  c.seed = 0
  c.batch_size = 64  # rows a step, over all devices and micro-batches
  c.accumulate = 1  # micro-batches a step is split into
  c.num_train_steps = 1000
  c.parallel = 'jit'  # 'jit' over a mesh, or 'pmap'
  c.mesh = ml_collections.ConfigDict()
  c.mesh.data = -1  # devices that share the rows; -1: all that fsdp leaves
  c.mesh.fsdp = 1  # devices that also share parameters and optimizer state

  c.model = ml_collections.ConfigDict()
  c.model.num_layers = 6
  c.model.embed_dim = 512
  c.model.num_heads = 8
  c.model.num_kv_heads = 0  # 0: as many as num_heads
  c.model.head_dim = 0  # 0: embed_dim / num_heads
  c.model.mlp_dim = 0  # 0: 4 embed_dim for a plain MLP, 8/3 embed_dim for a gated one
  c.model.mlp = 'gelu'  # 'gelu' (tanh form), 'gelu_exact', 'relu', 'relu2' (squared), 'silu'; gated: 'swiglu', 'geglu', 'geglu_exact'
  c.model.norm = 'rms'  # 'rms' or 'layer'
  c.model.norm_epsilon = 1e-6
  c.model.norm_bias = False  # a learned shift after 'layer' norms
  c.model.norm_place = 'before'  # of attention and MLP; 'after': x + norm(f(x)), as in OLMo 2
  c.model.qkv_bias = False
  c.model.attention_out_bias = False
  c.model.mlp_bias = False
  c.model.parallel_block = False  # attention and MLP read the same residual (GPT-NeoX, GPT-J)
  c.model.shared_block_norm = False  # in a parallel block, one norm for both (GPT-J)
  c.model.embed_norm = False  # a norm right after the embedding (BLOOM)
  c.model.qk_norm = 'none'  # 'none', 'head' (over head_dim), 'full' (over all heads at once)
  c.model.embed_scale = 0.0  # factor on token embeddings; 0: sqrt(embed_dim) if the encoding adds a table to them, else 1
  c.model.tie_head = True  # the output layer is the transposed embedding
  c.model.head_bias = False
  c.model.vocab_size = 0  # 0: the tokenizer's
  c.model.causal = True  # False only for studies of attention without a mask
  c.model.dtype = 'float32'  # of activations: 'float32' or 'bfloat16'; parameters, phases, biases, softmax and losses stay float32
  c.model.dropout = 0.0
  c.model.remat = False  # recompute each block in the backward pass instead of keeping its activations
  c.model.scan_layers = False  # compile one block for all layers: deep models start sooner; on a CPU steps take longer
  c.model.attention = 'auto'  # 'dense', 'chunked', 'blockwise', 'splash', 'flash', 'cudnn', or 'auto': by what can serve (attention.py)
  c.model.platform = (
    ''  # that programs are made for: 'tpu', 'cuda', 'cpu'; '': this process's; 'interpret': a TPU's kernels on any (for tests)
  )
  c.model.attention_chunk = 0  # queries a chunk or block; 0: 128 or 512, whichever is used

  c.data = ml_collections.ConfigDict()
  c.data.source = 'python_source'  # a file of pe_jax/data/sources
  c.data.data_dir = ''  # where datasets are; '': PE_JAX_DATA, else the user's cache folder
  c.data.name = ''  # tfds: dataset name with its config, e.g. 'c4/en'; task: a task with its fields, e.g. 'copy(symbols=26)'
  c.data.text_key = 'text'  # tfds: the feature that holds the text
  c.data.path = ''  # text: a file or a folder of .txt and .jsonl
  c.data.train_split = 'train'  # tfds and python_source also take a slice, 'train[:10%]'
  c.data.validation_split = 'validation'
  c.data.test_split = 'test'
  c.data.tokenizer = 'bytes'  # 'bytes', or the path of a sentencepiece .model or a tokenizer.json; a task brings its own
  c.data.unicode_errors = 'strict'  # text that is not UTF-8: 'strict' stops, 'replace' puts U+FFFD and counts
  c.data.packing = 'concat'  # 'concat': documents one after the other, cut at row ends; 'pad': one piece of a document a row
  c.data.block_documents = 1024  # documents packed and shuffled at a time
  c.data.min_bytes = 0  # shorter documents are left out, and counted
  c.data.task_min_length = 1  # task: lengths it is trained at, as the task counts them; those it does not have are left out
  c.data.task_max_length = 16
  c.data.task_sampling = 'uniform'  # task: 'uniform' over the lengths, or 'long': the longer of two such draws
  c.data.task_curriculum = 0.0  # task: the share of the steps over which the longest length grows from the shortest; 0: all from the start

  c.optim = ml_collections.ConfigDict()
  c.optim.name = 'adamw'  # an optax optimizer that takes learning_rate, weight_decay and mask
  c.optim.learning_rate = 1e-3  # at its peak
  c.optim.warmup_steps = -1  # -1: a tenth of num_train_steps
  c.optim.final_fraction = 0.1  # of the peak, reached by cosine at the last step
  c.optim.weight_decay = 0.1  # not on norms, biases and position parameters
  c.optim.b1 = 0.9
  c.optim.b2 = 0.95
  c.optim.clip_norm = 1.0  # 0: off

  c.nonfinite = 'stop'  # a step whose loss, gradient or update is not finite is never taken: 'stop' there, or 'skip' it
  c.nonfinite_in_a_row = 3  # skip: that many in a row stop the run

  c.log_every_steps = 10
  c.log_batches = False  # the hash of every batch into batches.jsonl
  c.eval_every_steps = 200  # 0: only at the end
  c.eval_targets = 65_536  # validation targets at each of those
  c.checkpoint_every_steps = 200  # 0: only at the end
  c.keep_checkpoints = 2  # newest ones kept, beside the best by validation loss
  c.tensorboard = True
  c.wandb = ''  # a project of Weights & Biases that gets the rows of metrics.jsonl too; '': none
  c.init_from = ''  # a workdir whose parameters this run starts from
  c.init_resize = 'refuse'  # a position table of another size there: 'refuse', 'extend' (new rows as at initialisation) or 'interpolate'
  return c


def parse_arg(arg, **defaults):
  """Parses what follows `file.py:`, as in ':alibi,train_length=128,runlocal'.

  A bare word that names a boolean default sets it; another bare word is the value of the first default (the encoding). Commas inside
  brackets do not separate. Values take the type of their default.

  Returns a ConfigDict of the defaults with what the argument changed.
  """
  values = ml_collections.ConfigDict(defaults)
  first, given = next(iter(defaults)), set()
  for item in _split(arg or ''):
    key, equals, text = item.partition('=') if '(' not in item.partition('=')[0] else (item, '', '')
    key = key.strip()
    bare = not equals and not isinstance(defaults.get(key), bool)
    if (first if bare else key) in given:
      raise ConfigError(f"config argument '{item}': {first if bare else key} is given twice in '{arg}'")
    given.add(first if bare else key)
    if bare:
      values[first] = _typed(first, item, defaults[first])
    elif not equals:
      values[key] = True
    elif key in defaults:
      values[key] = _typed(key, text.strip(), defaults[key])
    else:
      raise ConfigError(
        f"config argument '{item}': there is no '{key}'{did_you_mean(key, defaults)} (this file takes {', '.join(defaults)})"
      )
  return values


def _split(text):
  depth, start = 0, 0
  for k, character in enumerate(text):
    depth += (character in '([{') - (character in ')]}')
    if character == ',' and depth == 0:
      yield from filter(None, [text[start:k].strip()])
      start = k + 1
  yield from filter(None, [text[start:].strip()])


def _typed(key, text, default_value):
  try:
    if isinstance(default_value, bool):
      return {'true': True, 'false': False, '1': True, '0': False}[text.lower()]
    return type(default_value)(text)
  except (KeyError, ValueError):
    raise ConfigError(f"config argument '{key}={text}': wants {type(default_value).__name__}, as in {key}={default_value}") from None


def did_you_mean(word, known):
  """ " (did you mean 'rope'?)" or the empty string."""
  import difflib

  close = difflib.get_close_matches(str(word), [str(k) for k in known], n=1)
  return f" (did you mean '{close[0]}'?)" if close else ''


def to_json(config):
  """The config as strict JSON text, one canonical form."""
  tree = config.to_dict() if isinstance(config, ml_collections.ConfigDict) else config
  return json.dumps(tree, indent=2, sort_keys=True, allow_nan=False) + '\n'


def from_json(text):
  """A locked ConfigDict of `to_json`'s text. Loads data only; nothing is executed."""
  return ml_collections.ConfigDict(loads(text, 'config', ConfigError)).lock()


def loads(text, where, error=DataError):
  """The object of strict JSON text (or bytes). What is not one raises `error` with a sentence that begins with `where`."""

  def no_number(name):
    raise ValueError(f'{name} is no number of JSON')

  def once(pairs):
    if len(tree := dict(pairs)) < len(pairs):
      raise ValueError('a name is there twice')
    return tree

  try:
    tree = json.loads(text, parse_constant=no_number, object_pairs_hook=once)
  except (ValueError, RecursionError) as fault:
    raise error(f'{where}: not strict JSON, {" ".join(str(fault).split())} (train.py writes config.json so)') from None
  if not isinstance(tree, dict):
    raise error(f'{where}: a {type(tree).__name__} where an object was wanted')
  return tree


def completed(stored):
  """A stored config as a dict, with the defaults of fields that came after it was written; they leave things as they were.

  What it was trained with was there from the beginning, and is not made up.
  """
  if 'encoding' not in stored:
    raise DataError('config.json: encoding: missing (a config that train.py has written is wanted)')

  def fill(tree, known):
    new = {name: value for name, value in known.items() if name not in tree}
    inside = {
      name: fill(value, known[name]) for name, value in tree.items() if isinstance(value, dict) and isinstance(known.get(name), dict)
    }
    return tree | inside | new

  return fill(stored, default().to_dict())


def stored(path):
  """The config in a file that train.py has written, complete and with its fields checked, as a dict."""
  from pe_jax import resolve

  tree = completed(loads(path.read_bytes(), path))
  try:
    resolve.check_fields(tree)
  except ConfigError as error:
    raise DataError(f'{path}: {error}') from None
  return tree


def config_hash(config):
  """Twelve hex digits that identify a resolved config. A field that came later counts where it is not as it was before."""
  tree = config.to_dict() if isinstance(config, ml_collections.ConfigDict) else config
  model = {name: value for name, value in tree.get('model', {}).items() if LATER.get(name) != value}
  return hashlib.sha256(to_json({**tree, 'model': model} if 'model' in tree else tree).encode()).hexdigest()[:12]


LATER = {'norm_place': 'before'}  # fields of config.model, with the value that changes nothing


def flatten(config, prefix=''):
  """{'optim.learning_rate': .001, ...}"""
  flat = {}
  for key, value in config.items():
    nested = isinstance(value, (dict, ml_collections.ConfigDict))
    flat.update(flatten(value, f'{prefix}{key}.') if nested else {prefix + key: value})
  return flat


def diff(old, new):
  """Lines '- field: old' and '+ field: new' of the fields that differ."""
  old, new = flatten(old), flatten(new)
  lines = []
  for key in sorted(old.keys() | new.keys()):
    if old.get(key) != new.get(key) or (key in old) != (key in new):
      lines += [f'- {key}: {old[key]!r}'] if key in old else []
      lines += [f'+ {key}: {new[key]!r}'] if key in new else []
  return lines
