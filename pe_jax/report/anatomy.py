"""What an encoding does, as numbers: `anatomy('yarn(factor=8)', dims, 1024)` is a dict of lists, numbers and None, ready for JSON.

Everything is asked of the record (probes.py). Two quantities say whether a rotary pair meets anything new on longer text. With f turns a
position in training and f' in the text to be read, of L and L' tokens,

    turns in training = L f,   turns read = L' f',

a pair that made less than one turn in training and makes more of one now is out of distribution: it shows phases that were never seen.
Training is taken to have been plain RoPE of the same base over L tokens, which is what frequency maps are for, unless another encoding is
named that it was done under.
"""

import dataclasses
import math

import jax
import numpy as np

from pe_jax import encodings
from pe_jax.encodings import rope
from pe_jax.report import probes

SEED = 0
SLOTS = {
  'positions': 'tokens are given other position ids',
  'embed': 'rows are added to the embeddings',
  'rotate': 'queries and keys are turned',
  'distance_bias': 'a bias by distance is added to scores',
  'bias': "a bias by more than distance (the query's position, or tokens) is added to scores",
  'score': 'scores are made in another way than q . k',
  'visible': 'keys are hidden',
  'scale': 'scores are multiplied by a temperature',
  'normalise': 'weights are made in another way than by a softmax',
}


def anatomy(spec: str, dims, length: int, trained: str = '') -> dict:
  """All about one encoding on a model of these `base.Dims`, read at `length` tokens.

  `trained` is the encoding that a model was trained under; '': plain RoPE of the base that is read.
  `parts` holds one entry for each kind of layer. Lengths and wavelengths are in tokens, biases in nats.
  """
  whole = encodings.make(spec, dims, length)
  params = whole.parameters(jax.random.PRNGKey(SEED))
  leaves = jax.tree_util.tree_flatten_with_path(params)[0]
  traits = whole.traits
  served = min(length, traits.max_length or length)
  layers = {}
  for n in range(dims.num_layers):
    layers.setdefault(tuple(str(of_layer(encodings.parse(spec), n)) if spec else '' for spec in (whole.spec, trained)), []).append(n)
  before = _in_training(trained, dims) if trained else lambda n: None
  return {
    'encoding': whole.spec,
    **dataclasses.asdict(dims),
    'length': length,
    'served_length': served,
    'parameters': sum(leaf.size for _, leaf in leaves),
    'shapes': {jax.tree_util.keystr(path, simple=True, separator='.'): list(leaf.shape) for path, leaf in leaves},
    'seed': SEED if leaves else None,
    **{field: getattr(traits, field) for field in ('relative', 'length_dependent', 'max_length', 'cache', 'positions')},
    'schedule': [[share, record.spec] for share, record in whole.schedule],
    'table': _table(probes.Probe(whole, whole, params, dims), served) if whole.embed else None,
    'parts': [
      _part(probes.Probe(whole, whole.at_layer(n[0]), params, dims), part, n, served, before(n[0])) for (part, _), n in layers.items()
    ],
  }


def of_layer(spec, n):
  """The spec as layer n has it: `layers(a, b)` is a or b there."""
  if spec.name == 'layers':
    mine = spec.inner[n % len(spec.inner)]
    earlier = sum(spec.inner[m % len(spec.inner)] == mine for m in range(n))
    return of_layer(mine, earlier)
  return dataclasses.replace(spec, inner=tuple(of_layer(part, n) for part in spec.inner))


def _part(probe, spec, layers, length, before):
  """What one kind of layer does; `before` is how training turned there, if that is known."""
  record, train = probe.record, probe.dims.train_length
  turning = probes.turning(probe, length) if record.rotate else []
  read = _read_distances(probe, turning, length) if turning and record.score else []
  reach = {h: math.floor(group['largest']) + 1 for group in read for h in group['heads']}
  groups = []
  if turning:
    before = before or _plain(spec, probe.dims) or probes.turning(probe, train)
    groups = _rotation(probe.dims, turning, before, [reach.get(h, length) for h in range(probe.dims.num_heads)])
  middle = round(math.sqrt(train * length))
  queries = [length - 1] if record.traits.relative else sorted({train - 1, middle - 1, length - 1} & {*range(length)})
  alone = record.distance_bias or record.bias or record.normalise or turning is None or (record.score and not record.rotate)
  weights = [_weights(probe, query, length) for query in queries] if alone else []
  return {
    'encoding': spec,
    'layers': layers,
    'enters': [slot for slot in SLOTS if getattr(record, slot) or getattr(probe.whole, slot)],
    'reads_tokens': bool(record.token),
    'rotation': groups,
    'read_distances': read,
    'weights': [w for w in weights if any(len({*head['bias']}) > 1 for head in w['heads'])],
    'visible': _visible(probe, length) if record.visible else [],
    'temperature': _temperature(probe, length) if record.scale else None,
  }


def _rotation(dims, now, before, reach):
  """One entry for each group of heads that turn alike. `reach`: for each head, distances below it occur."""
  groups = {}
  for h, (head, plain) in enumerate(zip(now, before, strict=True)):
    if head.pairs:
      key = (reach[h], head.pairs, plain.pairs, *np.round(np.concatenate([head.turns_F, plain.turns_F]), 12))
      groups.setdefault(key, []).append(h)
  return [{'heads': heads, **_pairs(now[heads[0]], before[heads[0]], dims, reach[heads[0]])} for heads in groups.values()]


def _in_training(spec, dims):
  """A function: layer -> the turning of each head under an encoding at the training length, without pairs where nothing turns."""
  train = dims.train_length
  whole = encodings.make(encodings.at_length(encodings.parse(spec), train, train), dims, train)
  params, none = whole.parameters(jax.random.PRNGKey(SEED)), probes.Turning((), np.zeros(0), np.ones(0), np.ones(0))

  def turning(n):
    record = whole.at_layer(n)
    found = probes.turning(probes.Probe(whole, record, params, dims), train) if record.rotate else None
    return found or [none] * dims.num_heads

  return turning


def _plain(spec, dims):
  """The turning of RoPE with the base, fraction and layout that a spec names; None if it names several."""
  known = [(part, encodings.fields(part.name)) for part in encodings.parse(spec).walk()]
  fields = {tuple((k, part.get(k, own[k])) for k in ('base', 'fraction', 'layout') if k in own) for part, own in known if 'base' in own}
  if len(fields) != 1:
    return None
  enc = rope.encoding(dims, **dict(next(iter(fields))))
  return probes.turning(probes.Probe(enc, enc, {}, dims), dims.train_length)


def _pairs(now, before, dims, reach):
  """Pair by pair, fastest first; one that no longer turns, or did not in training, has its place too."""
  turns, trained = (dict(zip(x.pairs, x.turns_F)) for x in (now, before))
  pairs = []
  for first, second in sorted({*turns, *trained}):
    read, plain = turns.get((first, second), 0.0), trained.get((first, second), 0.0)
    seen, needed = dims.train_length * plain, reach * read
    pairs.append({
      'dimensions': [first, second],
      'wavelength': 1 / (plain or read),
      'divisor': plain / read if plain and read else None,
      'turns_in_training': seen,
      'turns_read': needed,
      'out_of_distribution': bool(seen < 1 and needed > seen * (1 + 1e-6)),
    })  # fmt: skip
  return {
    'reach': reach,
    'pairs': pairs,
    'still_dimensions': dims.head_dim - 2 * len(pairs),
    'attention_factor': float(now.factor_F[0]),
    'shrinks_to': [float(x) for x in now.shrink_F] if np.abs(now.shrink_F - 1).max(initial=0) > 1e-3 else None,
  }


def _read_distances(probe, turning, length):
  """At what distance, in tokens, the last query reads each key that it sees; one entry for each group of heads that read alike."""
  read_HS = probes.read_distances(probe, turning, length)
  if probe.record.visible:
    read_HS = np.where(np.isfinite(probes.row(probe, length - 1, length)), read_HS, np.nan)
  distances, groups = spaced(length), {}
  for h, line in enumerate(read_HS):
    if turning[h].pairs:
      values = tuple(None if np.isnan(line[d]) else round(abs(float(line[d])), 2) for d in distances)
      groups.setdefault((values, round(float(np.nanmax(line)), 2)), []).append(h)
  return [{'heads': heads, 'distance': distances, 'read': list(k[0]), 'largest': k[1]} for k, heads in groups.items()]


def _weights(probe, query, length):
  """The attention of one query that finds all keys alike (q . k = 0): position alone."""
  logs = probes.row(probe, query, length)
  train = probe.dims.train_length
  peak = logs[np.arange(len(logs)), np.argmax(np.isfinite(logs), axis=1)]  # that of the nearest visible key
  weights = np.exp(logs - logs.max(axis=1, keepdims=True))
  beyond = weights[:, train:].sum(axis=1) / weights.sum(axis=1)
  distances = spaced(query + 1)
  heads = []
  for h, line in enumerate(logs):
    finite = query > 1 and np.isfinite(line).all()
    slope = line[0] - line[1] if finite else 0.0
    straight = finite and np.allclose(line, -slope * np.arange(query + 1), rtol=1e-5, atol=1e-6)
    heads.append({
      'slope': float(slope) if straight else None,
      'falls_to_1/e': _falls(line - peak[h], 1.0),
      'falls_to_1%': _falls(line - peak[h], math.log(100)),
      'beyond_training': float(beyond[h]),
      'bias': [float(line[d]) if np.isfinite(line[d]) else None for d in distances],
    })  # fmt: skip
  return {'query': query, 'distance': distances, 'heads': heads}


def _falls(line, nats):
  """The smallest distance whose weight is e^-nats of the nearest key's or less; None within this text."""
  below = np.flatnonzero(line <= -nats + 1e-5)
  below = below[below > np.argmax(np.isfinite(line))]
  return int(below[0]) if len(below) else None


def _visible(probe, length):
  """Runs of positions that the last query sees, one entry for each group of heads that see the same."""
  groups = {}
  for h, line in enumerate(probes.row(probe, length - 1, length)[:, ::-1]):
    groups.setdefault(np.isfinite(line).tobytes(), []).append(h)
  out = []
  for seen, heads in groups.items():
    seen = np.flatnonzero(np.frombuffer(seen, bool))
    runs = np.split(seen, np.flatnonzero(np.diff(seen) > 1) + 1)
    out.append({'heads': heads, 'query': length - 1, 'runs': [[int(r[0]), int(r[-1])] for r in runs if len(r)], 'keys': len(seen)})
  return out


def _temperature(probe, length):
  """What scores of queries at some positions are multiplied by, each head's own."""
  queries = [2**n - 1 for n in range(int(math.log2(length)) + 1)]
  queries += [length - 1] if queries[-1] != length - 1 else []
  return {'query': queries, 'heads': np.stack([probes.temperature(probe, query, length) for query in queries], axis=1).tolist()}


def _table(probe, length):
  """What is added to the embeddings."""
  at = np.asarray(spaced(length))
  rows = probes.rows(probe, at, length)
  norms = np.linalg.norm(rows, axis=1)
  turns = probes.sinusoids(probe, length)
  return {
    'norm': float(norms.mean()),
    'wavelengths': None if turns is None else [float(1 / x) for x in turns],
    'position': at.tolist(),
    'cosine_to_first': [float(x) for x in rows @ rows[0] / (norms * norms[0])],
  }


def spaced(count):
  """Distances 0 .. count - 1, fewer the larger: all powers of two, and about ten between two of them."""
  fine = np.unique(np.round(2 ** np.arange(0, math.log2(max(count - 1, 1)) + 1e-9, 0.1)).astype(int))
  return sorted({0, *fine[fine < count].tolist(), count - 1})
