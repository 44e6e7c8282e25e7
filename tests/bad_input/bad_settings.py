"""Settings that cannot work: numbers of every wrong kind, fields that contradict each other, names that are not there."""

import functools

from case import Case

NUMBERS = (
  'train_length',
  'batch_size',
  'accumulate',
  'num_train_steps',
  'log_every_steps',
  'eval_targets',
  'keep_checkpoints',
  'model.num_layers',
  'model.embed_dim',
  'model.num_heads',
  'data.block_documents',
  'optim.learning_rate',
)
WRONG = (0, -1, 1.5, 'abc', True, 10**12)
WRONG_RATE = (0.0, -1.0, float('nan'), 'abc', True, 1e12)


def config(changes):
  """A config with any value in any field, as a config file may give it."""
  import ml_collections
  import tiny_runs

  tree = tiny_runs.config().to_dict()
  for field, value in changes.items():
    *path, name = field.split('.')
    (tree[path[0]] if path else tree)[name] = value
  return ml_collections.ConfigDict(tree)


def train(changes, folder):
  """What train.py does with the config."""
  from pe_jax import cli

  checked = cli.checked(config(changes))

  from pe_jax import train

  train.run(checked, folder / 'run')


def refused(what, says, changes, early=False):
  """A case of train.py that exits with 2."""
  return Case(what, 2, says, functools.partial(train, changes), early=early)


def fields():
  """72 cases: twelve fields, six values that each of them cannot have."""
  return [
    refused(f'{field}={value!r}', rf'{field}: .', {field: value}, early=True)
    for field in NUMBERS
    for value in (WRONG_RATE if field == 'optim.learning_rate' else WRONG)
  ]


def longer_than_the_table(folder):
  """Evaluation at twice the rows of a learned table."""
  import tiny

  from pe_jax import evaluate

  del folder
  evaluate.evaluate(tiny.subject('learned', documents=2), [32], ['learned'])


def three_processes(folder):
  """Eight rows for three processes."""
  from pe_jax import data, resolve

  del folder
  data.streams(resolve.resolve(config({'encoding': 'nope'})), 0, 3)


def across():
  """24 cases of two fields, or a field and the machine or the text, of which each alone is fine."""

  def encoding(spec, says, **more):
    return refused(f'encoding={spec}', f'encoding: .*{says}', {'encoding': spec, **more})

  early = functools.partial(refused, early=True)
  return [
    early('3 heads of a width of 16', 'model.num_heads: 3 heads do not divide embed_dim=16', {'model.num_heads': 3}),
    refused('odd heads under RoPE', 'encoding: RoPE turns pairs .* width of 7', {'model.head_dim': 7}),
    encoding('rope(fraction=0)', r'fraction=0.0 must be in \(0, 1\]'),
    encoding('rope(fraction=1.5)', 'fraction=1.5'),
    encoding('rope(fraction=0.4)', 'cannot split a width of 3'),
    encoding('learned(max_length=8)', 'has 8 positions and cannot serve length 16'),
    Case('evaluation beyond a learned table', 2, "encoding: 'learned' has 16 positions and cannot serve length 32", longer_than_the_table),
    encoding('yarn(factor=0.5)', 'factor=0.5 must be at least 1'),
    encoding('rope(base=1)', 'base=1.0 must be above 1'),
    encoding('t5(num_buckets=7)', 't5 needs an even number of buckets'),
    encoding('t5(num_buckets=8, max_distance=4)', 't5 max_distance=4 must exceed'),
    encoding('rerope(window=-1)', 'window=-1 must be at least 1'),
    refused('12 rows on 8 devices', 'batch_size: 12 rows .* 8 devices', {'batch_size': 12}),
    early('8 rows in 3 micro-batches', 'batch_size: 8 rows cannot be split into accumulate=3', {'accumulate': 3}),
    Case('8 rows for 3 processes', 2, 'batch_size: 8 rows do not divide among 3 processes', three_processes),
    early('2 heads over 3 key heads', 'model.num_kv_heads: 3 does not divide num_heads=2', {'model.num_kv_heads': 3}),
    early('more warm-up than steps', 'optim.warmup_steps: 50 exceeds num_train_steps=4', {'optim.warmup_steps': 50}),
    early('all dropped', 'model.dropout: 1.0 must be below 1', {'model.dropout': 1.0}),
    refused(
      'packed rows for a kernel that knows no documents', "model.attention: 'cudnn' .*data.packing='pad'", {'model.attention': 'cudnn'}
    ),
    refused('fsdp under pmap', 'mesh: .* has no meaning under pmap', {'parallel': 'pmap', 'mesh.fsdp': 2}),
    refused('a mesh of 3 of 8 devices', 'mesh: data=-1 x fsdp=3 does not fit 8 devices', {'mesh.fsdp': 3, 'batch_size': 24}),
    early('fewer words than the tokenizer has', "model.vocab_size: 100 is smaller than the tokenizer's 257", {'model.vocab_size': 100}),
    refused(
      'one scan for layers that differ',
      'model.scan_layers: .* has a record for each layer',
      {'encoding': 'layers(rope, nope)', 'model.num_layers': 2, 'model.scan_layers': True},
    ),
    early(
      'a task that is longer than a row',
      'train_length: 16 positions cannot hold copy of length 50',
      {'data.source': 'task', 'data.name': 'copy', 'data.task_max_length': 50},
    ),
  ]


def names():
  """10 cases of a name that is not there, each with the one that was meant."""

  def meant(what, says, name, changes, early=True):
    return refused(what, rf"{says}.*\(did you mean '{name}'\?\)", changes, early)

  return [
    meant('encoding=roep', "encoding: 'roep' is unknown", 'rope', {'encoding': 'roep'}),
    meant('encoding=stack(rope, alib)', "encoding: 'alib' is unknown", 'alibi', {'encoding': 'stack(rope, alib)'}),
    meant('encoding=rope(bas=3)', "encoding: rope has no field 'bas'", 'base', {'encoding': 'rope(bas=3)'}, early=False),
    meant('optim.learningrate', 'optim.learningrate: there is no such field', 'optim.learning_rate', {'optim.learningrate': 1.0}),
    meant('data.source=txt', "data.source: 'txt' is unknown", 'text', {'data.source': 'txt'}),
    meant('task coppy', "data.name: 'coppy' is unknown", 'copy', {'data.source': 'task', 'data.name': 'coppy'}),
    meant(
      'task copy(symbol=3)', "data.name: copy has no field 'symbol'", 'symbols', {'data.source': 'task', 'data.name': 'copy(symbol=3)'}
    ),
    meant('optim.name=adamw2', "optim.name: 'adamw2' is unknown", 'adamw', {'optim.name': 'adamw2'}, early=False),
    meant('model.norm=rsm', "model.norm: 'rsm' is unknown", 'rms', {'model.norm': 'rsm'}),
    Case(
      '--config.optim.learning_rat=1',
      2,
      r"--config.optim.learning_rat: there is no such field \(did you mean 'optim.learning_rate'\?\)",
      command=('--config={home}/tiny.py', '--config.optim.learning_rat=1'),
    ),
  ]
