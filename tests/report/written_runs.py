"""Folders of runs as train.py and eval.py leave them, written by hand: no training."""

import json

from pe_jax import config as config_lib

UNITS = 12  # documents
TARGETS = 100  # of each
ENV = {'backend': 'cpu', 'device_kind': 'cpu', 'device_count': 1, 'packages': {'jax': '0.10.2'}, 'python': '3.11.7'}


def config(encoding='rope', train_length=64, seed=0, **fields):
  """A resolved config as a dict; fields as 'optim.learning_rate'."""
  c = config_lib.default()
  c.encoding, c.train_length, c.seed = encoding, train_length, seed
  c.num_train_steps, c.optim.warmup_steps = 1000, 100
  c.model.num_layers, c.model.embed_dim, c.model.num_heads, c.model.num_kv_heads, c.model.head_dim = 2, 64, 4, 4, 16
  c.model.mlp_dim, c.model.vocab_size, c.model.embed_scale = 256, 257, 1.0
  for name, value in fields.items():
    parent, _, leaf = name.rpartition('.')
    (getattr(c, parent) if parent else c)[leaf] = value
  return c.to_dict()


def run(folder, tree, rows=(), steps=1000, done=True, log=''):
  """Writes a run."""
  folder.mkdir(parents=True)
  (folder / 'config.json').write_text(json.dumps(tree))
  (folder / 'env.json').write_text(json.dumps(ENV))
  metrics = [{'step': s, 'loss': 5 - 3 * s / steps, 'targets': 64 * s, 'learning_rate': 1e-3} for s in range(100, steps + 1, 100)]
  jsonl(folder / 'metrics.jsonl', [*metrics, {'step': steps, 'validation_loss': 1.75, 'validation_targets': 4096}])
  jsonl(folder / 'timing.jsonl', [{'step': s, 'tokens_per_second': 1000.0 + s} for s in (100, 200, 300)])
  if done:
    (folder / 'DONE').write_text(json.dumps({'step': steps, 'validation_loss': 1.75, 'params_sha256': 'abc'}))
  if log:
    (folder / 'log.txt').write_text(log)
  for row in rows:
    jsonl(folder / 'eval' / f'{row.get("protocol") or row["probe"]}.jsonl', [row])
  return folder


def jsonl(path, rows):
  """Appends rows."""
  path.parent.mkdir(exist_ok=True)
  with path.open('a') as file:
    file.writelines(json.dumps(row) + '\n' for row in rows)


def row(protocol, encoding, length, nll, train_length=64, trained=None, targets='t', seed=0, **more):
  """A row of a protocol over text."""
  width = train_length // 8
  starts = range(0, length, width)
  buckets = [{'start': s, 'end': min(s + width, length), 'nll': nll + (s >= train_length) * 0.5, 'targets': TARGETS} for s in starts]
  return {
    'protocol': protocol, 'encoding': encoding, 'asked_encoding': encoding, 'trained_encoding': trained or encoding, 'length': length,
    'train_length': train_length, 'nll': nll, 'ppl': 2.0, 'bits_per_byte': None, 'targets': UNITS * TARGETS, 'targets_sha256': targets,
    'documents': UNITS, 'documents_sha256': 'd', 'position_buckets': buckets, 'step': 1000, 'split': 'test', 'seed': seed,
    'positions': 'from 0 in each window', 'stride': 32,
  } | more  # fmt: skip


def context(encoding, losses, train_length=64, **more):
  """Rows of `context`: {length: loss}; documents differ by what `spread` adds, the same at every length but for a part that grows."""
  out, reference = [], losses[train_length]
  for length, nll in losses.items():
    per_unit = [TARGETS * (nll + 0.01 * (u - (UNITS - 1) / 2) * (1 + (length > train_length))) for u in range(UNITS)]
    found = {'mean': nll - reference, 'low': nll - reference - 0.02, 'high': nll - reference + 0.02, 'lower': 0.0, 'upper': 0.0}
    extra = {'span': 32, 'reference_length': train_length, 'difference': found}
    extra['by_unit'] = {'unit': 'document', 'nll': per_unit, 'targets': [TARGETS] * UNITS}
    if length > train_length:
      extra['shuffled_far'] = {'mean': found['mean'] + 0.125}
    out.append(row('context', encoding, length, nll, train_length, **(extra | more)))
  return out


def needle(encoding, length, accuracy, variant='single', train_length=64):
  """A row of the needle's grid, the same accuracy at three depths."""
  bounds = {'accuracy': accuracy, 'accuracy_low': 0.0, 'accuracy_high': 1.0}
  cells = [{'depth': d, 'distance': length * (1 - d)} | bounds for d in (0.0, 0.5, 1.0)]
  names = {'probe': 'needle', 'encoding': encoding, 'asked_encoding': encoding, 'trained_encoding': encoding, 'variant': variant}
  of = {'length': length, 'train_length': train_length, 'chance': 0.1}
  return names | of | bounds | {'margin': 0.5, 'values': 10, 'trials': 40, 'cells': cells, 'split': 'test', 'step': 1000}


def attention(encoding, length, entropies, train_length=64):
  """A row of the attention probe, a head for each entropy."""
  heads = [
    {'layer': n, 'head': 0, 'entropy': x, 'share': 0.5, 'effective': 2.0, 'sink': 0.1, 'recent': 0.5, 'beyond': 0.0, 'total': 1.0}
    for n, x in enumerate(entropies)
  ]
  names = {'probe': 'attention', 'encoding': encoding, 'asked_encoding': encoding, 'trained_encoding': encoding, 'length': length}
  means = {name: heads[0][name] for name in ('entropy', 'share', 'effective', 'sink', 'recent', 'beyond')}
  return names | means | {'train_length': train_length, 'queries': 16, 'texts': 8, 'heads': heads, 'split': 'test', 'step': 1000}


LENGTHS = (64, 91, 128, 256)


def sweep(folder, encodings, seeds=(0, 1), rise=0.1, **fields):
  """Runs of encodings and seeds; the k-th encoding loses k x rise nats a doubling."""
  for k, encoding in enumerate(encodings):
    for seed in seeds:
      losses = {n: 1.5 + 0.01 * seed + k * rise * (n > 64) * (LENGTHS.index(n)) for n in LENGTHS}
      rows = context(encoding, losses, seed=seed)
      rows += [row(p, encoding, n, losses[n] + 0.1, seed=seed) for p in ('nonoverlapping', 'prefix') for n in LENGTHS]
      run(folder / f'{k:03d}_{seed}', config(encoding, seed=seed, **fields), rows)
  return folder
