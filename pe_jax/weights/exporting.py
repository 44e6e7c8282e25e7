"""A run as a folder that transformers loads without code of ours, where one of its model types computes the same.

Each family writes what it can of the config; what it wrote is read back as an import would, and where that gives the run's own fields and
encoding, layer by layer, the family expresses the run. Otherwise the differences to the nearest one are what cannot be expressed.
"""

import json
import pathlib
import shutil

import jax
import numpy as np

from pe_jax import encodings, hf_config, remote
from pe_jax import workdir as workdir_lib
from pe_jax.data import tokenizer as tokenizer_lib
from pe_jax.errors import ConfigError, UserError, WriteError
from pe_jax.weights import card as card_lib
from pe_jax.weights import families, positions, vocabulary
from pe_jax.weights.family import PLAIN
from pe_jax.weights.hf_folder import SINGLE

SIZES = ('num_layers', 'embed_dim', 'num_heads', 'num_kv_heads', 'head_dim', 'mlp_dim', 'vocab_size')
# The first that fits is taken; its relatives come after the plainest.
ORDER = ('llama', 'mistral', 'qwen2', 'qwen3', 'olmo2', 'smollm3', 'arcee', 'gpt_neox', 'gptj', 'gpt2', 'bloom', 'mpt', 'falcon')


def run(run, folder):
  """Writes a `pe_jax.run.Run` into a new folder and returns the model type."""
  folder = remote.local(folder, '--folder')
  if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
    raise WriteError(f'{folder}: is not an empty folder (choose another one)')
  family, keys = chosen(run.config)
  tensors = tensors_of(family, run.config, run.params)
  card = card_lib.read(run.workdir)
  keys = declared_length(run.config, keys, card)
  special = tokenizer(run.config.data.tokenizer, folder) | {name: card.get(name) for name in ('eos_token_id', 'pad_token_id')}
  if special['bos_token_id'] is None:  # a BOS that no text begins with by itself
    special['bos_token_id'] = card.get('bos_token_id')
  with workdir_lib.writing(folder / SINGLE):
    _safetensors().save_file(tensors, folder / SINGLE, metadata={'format': 'pt'})
  if card.get('generation'):
    workdir_lib.write(folder / 'generation_config.json', json.dumps(card['generation'], indent=2) + '\n')
  workdir_lib.write(folder / 'config.json', json.dumps({**keys, **special}, indent=2) + '\n')
  return family.model_type


def chosen(config):
  """(Family, config.json) of a model type that computes what the config says."""
  found = []
  for name in ORDER:
    family = families.get(name)
    try:
      keys = family.written(config)
      apart = differences(config, family, keys)
    except UserError as error:
      apart = [str(error)]
      keys = {}
    if not apart:
      return family, keys
    found.append((len(apart) + 10 * (not keys), name, apart))
  _, name, apart = min(found, key=lambda one: one[0])
  raise ConfigError(f'no model type of transformers computes what this run does; {name} is nearest, but for {"; ".join(apart)}')


def declared_length(config, keys, card):
  """The keys with as many positions as the source declared, where nothing but that number changes by it."""
  length = card.get('max_length')
  if not length or 'max_position_embeddings' not in keys or card.get('encoding') != config.encoding:
    return keys
  new = keys | {'max_position_embeddings': length}
  own = hf_config.declared(keys)
  same = (own.layers, own.windows) == (hf_config.declared(new).layers, hf_config.declared(new).windows)
  return new if same else keys


def differences(config, family, keys):
  """What an import of the keys would have otherwise than the config, in words."""
  declaration, fields = hf_config.declared(keys), family.fields(keys)
  fields |= {name: getattr(declaration, name) for name in ('num_layers', 'num_heads', 'num_kv_heads', 'head_dim', 'embed_dim')}
  fields['vocab_size'], fields['mlp_dim'] = keys['vocab_size'], fields['mlp_dim'] or 4 * fields['embed_dim']
  own = config.model.to_dict()
  apart = [f'model.{name}={own[name]!r} where it has {fields[name]!r}' for name in (*PLAIN, *SIZES) if own[name] != fields[name]]
  windows = zip(declaration.layers, declaration.windows, strict=True)
  seen = [positions.window(size, encodings.parse(text), config.model.num_heads) for text, size in windows]
  theirs = [positions.written_out(spec, config.train_length) for spec in seen]
  ours = positions.layers(config)
  if theirs != ours:
    n = next(n for n, (a, b) in enumerate(zip(ours, theirs)) if a != b)
    apart.append(f"encoding: layer {n} has '{ours[n]}' where it has '{theirs[n]}'")
  return apart


def tensors_of(family, config, params):
  """{name: array} of the files."""
  flat = {'/'.join(str(part.key) for part in path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]}
  leaves = {name.removeprefix('decoder/'): np.asarray(leaf) for name, leaf in flat.items()}
  entries = list(family.entries(config.model))
  if over := sorted(leaves.keys() - {leaf for entry in entries for leaf in entry.leaves}):
    raise ConfigError(f'a {family.model_type} has no place for the parameter {over[0]}')
  return {entry.tensor: np.ascontiguousarray(entry.write(*(leaves[leaf] for leaf in entry.leaves))) for entry in entries}


def _safetensors():
  try:
    import safetensors.numpy
  except ImportError:
    raise ConfigError('--to=hf needs the safetensors package (pip install pe_jax[weights])') from None
  return safetensors.numpy


def tokenizer(name, folder):
  """Writes the tokenizer's files, special tokens and chat template as the source had them; gives config.json's {bos_token_id}."""
  made = tokenizer_lib.make(name)
  own = name == 'bytes' or name.startswith(tokenizer_lib.TASK)
  path = pathlib.Path(name).expanduser()
  told = ({'bos_token': vocabulary.BOS} if name == 'bytes' else {}) if own else vocabulary.told(path.parent)
  with workdir_lib.writing(folder / 'tokenizer_config.json'):
    if name == 'bytes':
      vocabulary.of_bytes(folder)
    elif name.endswith('.model'):
      _, bos = vocabulary.of_pieces(path, folder, made.bos)
      told = {'bos_token': bos, **told}
    elif not own:
      shutil.copyfile(path, folder / 'tokenizer.json')
  if (folder / 'tokenizer.json').is_file():
    # The class that takes tokenizer.json as it is; that of a model type can cut text in its own way.
    told = {'tokenizer_class': 'PreTrainedTokenizerFast', **told}
  if told:
    workdir_lib.write(folder / 'tokenizer_config.json', json.dumps(told, indent=2) + '\n')
  return {'bos_token_id': made.bos}
