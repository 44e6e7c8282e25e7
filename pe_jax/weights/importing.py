"""A checkpoint of another program as a run's folder, on which every command works as on a run of our own.

WORKDIR/ config.json  env.json  DONE  checkpoints/0/  tokenizer/  card.json (what was read, and what it says of itself)

Everything is read and checked before anything is written. Parameters are float32 whatever the files have.
"""

import collections
import contextlib
import dataclasses
import os
import pathlib
import shutil
import tempfile

import jax
import numpy as np

from pe_jax import config as config_lib
from pe_jax import encodings, fingerprint, hf_config, model, progress, remote, resolve, train
from pe_jax import workdir as workdir_lib
from pe_jax.checkpoint import Checkpoints
from pe_jax.errors import ConfigDiffers, ConfigError, DataError
from pe_jax.weights import card as card_lib
from pe_jax.weights import families, gguf_file, hf_folder, positions, vocabulary


def run(source, workdir, *, train_length=0, tokenizer='', encoding='', allow_pickle=False):
  """Imports a folder or a .gguf file into a workdir and returns the card.

  Args:
    source: a Hugging Face folder, or a GGUF file.
    workdir: a folder that holds no other run.
    train_length: positions that the model was trained at; 0: as the source says.
    tokenizer: 'bytes' or the path of one; '': the source's own.
    encoding: how positions are read, where config.json is to be overruled; '': as it says.
    allow_pickle: whether pytorch_model.bin may be read where there is no safetensors file.
  """
  remote.local(workdir, '--workdir')  # the tokenizer that its config names has a path there
  opened = opened_source(source, allow_pickle)
  with tempfile.TemporaryDirectory() as scratch:
    path = _tokenizer(opened, pathlib.Path(scratch) / 'tokenizer', tokenizer)
    config, declaration = config_of(opened.given, path, train_length, encoding)
    final = path if path == 'bytes' else str(pathlib.Path(workdir).absolute() / 'tokenizer' / pathlib.Path(path).name)
    config = _with_tokenizer(config, final)
    workdir_lib.check_config(workdir, config)
    params, kinds = parameters(opened, config)
    card = _card(source, opened, declaration, config, params, kinds)
    if done := workdir_lib.finished(workdir):
      _check_same(workdir, done, card, path, final)
      progress.say(f'{workdir}: imported already')
      return {'workdir': str(workdir), **done}
    with workdir_lib.locked(workdir) as folder:
      workdir_lib.check_config(workdir, config)
      if path != 'bytes':
        for file in sorted(pathlib.Path(path).parent.iterdir()):
          copy = pathlib.Path(final).with_name(file.name)
          with workdir_lib.writing(copy):
            shutil.copyfile(file, copy)
      _write(folder, config, params, card)
  return card


def _check_same(workdir, done, card, tokenizer, kept):
  """Refuses parameters or a tokenizer that are not those of the run that is there, whose config is the same."""
  other = 'other parameters' if done.get('params_sha256') != card['params_sha256'] else ''
  if not other and tokenizer != 'bytes':
    kept = pathlib.Path(kept)
    same = kept.is_file() and kept.read_bytes() == pathlib.Path(tokenizer).read_bytes()
    other = '' if same else 'another tokenizer' if kept.is_file() else 'a tokenizer, which is gone there'
  if other:
    there = card_lib.read(workdir).get('source', 'another source')
    raise ConfigDiffers(f'{workdir}: holds what was imported from {there}, and {card["source"]} has {other} (choose another --workdir)')


def _write(folder, config, params, card):
  """DONE comes last: a folder without it is no run yet, and the same command begins again."""
  workdir_lib.write(folder / 'config.json', config_lib.to_json(config))
  workdir_lib.write_environment(folder, train.environment(config))
  workdir_lib.write_json(folder / card_lib.NAME, card)
  with contextlib.closing(Checkpoints(folder)) as checkpoints:
    if checkpoints.latest() is None:
      checkpoints.save(0, {'params': params}, {'position': None, 'targets': 0})
  workdir_lib.write_json(folder / 'DONE', {'step': 0, 'validation_loss': None, 'params_sha256': card['params_sha256']})


def opened_source(source, allow_pickle=False):
  """An `hf_folder.Folder` or a `gguf_file.GgufFile`."""
  path = pathlib.Path(source).expanduser()
  if path.is_dir():
    return hf_folder.open_folder(path, allow_pickle)
  if path.suffix == '.gguf' and path.is_file():
    return gguf_file.open_file(path)
  raise DataError(f'{source}: there is no such folder or .gguf file (a Hugging Face folder is wanted, or a GGUF file)')


def _tokenizer(opened, folder, wanted):
  if wanted:
    return vocabulary.of_given(wanted, folder)
  if isinstance(opened, gguf_file.GgufFile):
    return vocabulary.of_gguf(opened.reader, opened.path, folder)
  return vocabulary.of_folder(opened.path, folder, opened.given.get('model_type'))


def config_of(given, tokenizer='bytes', train_length=0, encoding=''):
  """(the resolved config, the hf_config.Declaration) of a config.json."""
  family = families.get(given.get('model_type'))
  declaration = hf_config.declared(given)
  length = train_length or declaration.train_length
  if not length:
    raise ConfigError('--train_length: missing; this config.json does not say how long the model is (for instance --train_length=2048)')
  c = config_lib.default()
  c.encoding, c.train_length = encoding or spec(declaration), length
  c.model.update(family.fields(given))
  c.model.update({name: getattr(declaration, name) for name in ('num_layers', 'num_heads', 'num_kv_heads', 'head_dim', 'embed_dim')})
  c.model.vocab_size = _vocabulary(given)
  c.data.tokenizer = tokenizer
  c.num_train_steps, c.optim.warmup_steps, c.tensorboard = 1, 0, False
  return resolve.resolve(c), declaration


def _vocabulary(given):
  size = given.get('vocab_size')
  if type(size) is not int or size < 1:
    raise ConfigError(f'config.json: vocab_size={size!r} is not a positive whole number')
  return size


def spec(declaration):
  """The encoding with its windows, in our grammar."""
  layers = [
    str(positions.window(size, encodings.parse(layer), declaration.num_heads))
    for layer, size in zip(declaration.layers, declaration.windows, strict=True)
  ]
  return dataclasses.replace(declaration, layers=tuple(layers)).spec


def _with_tokenizer(config, path):
  c = config.copy_and_resolve_references()
  c.unlock()
  c.data.tokenizer = path
  return c.lock()


def parameters(opened, config):
  """(the parameter tree, {type of the file's tensors: count}); refuses tensors that are missing, left over or of another shape."""
  family = families.get(opened.given['model_type'])
  entries, shapes = list(family.entries(config.model)), _shapes(config)
  _check_memory(opened, shapes)
  found = opened.tensors(family, config.model)
  named = _named(opened, family, config.model, entries, found)
  leaves, kinds = {}, collections.Counter()
  with progress.bar(len(entries), label='reading', unit='tensor') as bar:
    for entry in entries:
      tensor = found[named[entry.tensor]]
      for leaf, array in zip(entry.leaves, entry.read(tensor.read()), strict=True):
        if leaf not in shapes:
          raise ConfigError(f'{opened.path}: {tensor.name} is the parameter {leaf}, which config.json says the model has not')
        if array.shape != shapes[leaf]:
          raise DataError(
            f'{opened.path}: {tensor.name} of shape {tensor.shape} makes {leaf} {array.shape}, and by config.json it is {shapes[leaf]}'
          )
        leaves[leaf] = np.ascontiguousarray(array)
      kinds[tensor.kind] += 1
      bar.advance(1)
  if lacking := sorted(shapes.keys() - leaves.keys()):
    raise ConfigError(f"encoding: '{config.encoding}' has the parameter {lacking[0]}, which a {family.model_type} does not (leave it out)")
  return _tree(leaves), dict(kinds)


def _named(opened, family, m, entries, found):
  """{tensor: its name in the files}."""
  other = {name: alias for alias, name in family.aliases.items()}
  named, missing = {}, []
  for entry in entries:
    names = [entry.tensor, other.get(entry.tensor, entry.tensor), entry.tensor.removeprefix(family.prefix)]
    there = [name for name in names if name in found]
    named |= {entry.tensor: there[0]} if there else {}
    missing += [] if there else [entry.tensor]
  if missing:
    raise DataError(
      f'{opened.path}: {len(missing)} of the {len(entries)} tensors of a {family.model_type} are missing, {missing[0]} first '
      '(files are missing, or config.json is that of another model)'
    )
  over = sorted(name for name in found.keys() - set(named.values()) if not name.endswith(family.left_out))
  tied = [name for name in over if m.tie_head and name in ('lm_head.weight', 'embed_out.weight', 'output.weight')]
  for name in tied:
    embedding = found[named[entries[0].tensor]]
    if found[name].shape != embedding.shape or not np.array_equal(found[name].read(), embedding.read()):
      raise DataError(f'{opened.path}: config.json ties the output layer to the embedding, and {name} is another (set tie_word_embeddings)')
  if over := [name for name in over if name not in tied]:
    raise DataError(f'{opened.path}: {len(over)} tensors are none of a {family.model_type} as config.json has it, {over[0]} first')
  return named


def _shapes(config):
  """{path: shape} of all parameters, as entries name them."""
  enc = encodings.make(config.encoding, model.dims(config))
  tree = jax.eval_shape(lambda key: model.init(config, enc, key), jax.random.PRNGKey(0))
  flat = {'/'.join(str(part.key) for part in path): leaf.shape for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}
  return {name.removeprefix('decoder/'): shape for name, shape in flat.items()}


def _tree(leaves):
  tree = {'decoder': {}, 'encoding': {}}
  for path, array in leaves.items():
    *folders, name = path.split('/') if path.startswith('encoding/') else ('decoder', *path.split('/'))
    place = tree
    for folder in folders:
      place = place.setdefault(folder, {})
    place[name] = array
  return tree


def _check_memory(opened, shapes):
  """Refuses parameters that this machine has no memory for, where the system tells how much there is."""
  need = 4 * sum(int(np.prod(shape, dtype=np.int64)) for shape in shapes.values())
  try:
    have = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
  except (AttributeError, ValueError, OSError):
    return
  if need > 0.9 * have:
    raise ConfigError(f'{opened.path}: its parameters take {need / 1e9:.1f} GB as float32, and this machine has {have / 1e9:.1f} GB')


def _card(source, opened, declaration, config, params, kinds):
  """What was read, for people."""
  arrays = jax.tree.leaves(params)
  return {
    'source': str(pathlib.Path(source).absolute()),
    'model_type': declaration.model_type,
    'name': opened.given.get('_name_or_path') or pathlib.Path(source).stem,
    'encoding': config.encoding,
    'train_length': config.train_length,
    'max_length': declaration.max_length,
    'layers': config.model.num_layers,
    'parameters': int(sum(x.size for x in arrays)),
    'tensor_types': kinds,
    'vocab_size': config.model.vocab_size,
    'tokenizer': config.data.tokenizer,
    'bos_token_id': opened.given.get('bos_token_id'),
    'eos_token_id': opened.given.get('eos_token_id'),
    'pad_token_id': opened.given.get('pad_token_id'),
    'generation': opened.generation(),
    'notes': list(declaration.notes),
    'params_sha256': fingerprint.digest(params),
  }
