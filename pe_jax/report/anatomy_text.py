"""An anatomy (anatomy.py) as text."""

import re

from pe_jax.report import table
from pe_jax.report.anatomy import SLOTS


def text(a: dict) -> str:
  """All of it: what is declared, then each kind of layer."""
  blocks = [_declared(a)]
  if a['served_length'] < a['length']:
    blocks.append(f'It cannot serve {a["length"]} tokens; what follows is for {a["served_length"]}.')
  if a['table']:
    blocks.append(_table(a))
  for part in a['parts']:
    if len(a['parts']) > 1:
      blocks.append(f'Layers {ranges(part["layers"])}: {part["encoding"]}')
    blocks += [_rotation(a, group) for group in part['rotation']]
    blocks += [_read_distances(a, group) for group in part['read_distances']]
    blocks += [_visible(a, part['visible'])] if part['visible'] else []
    blocks += [_weights(a, part, weights) for weights in part['weights']]
    blocks += [_temperature(part['temperature'])] if part['temperature'] else []
  return '\n\n'.join(blocks)


def _declared(a):
  slots = dict.fromkeys(slot for part in a['parts'] for slot in part['enters'])
  kinds = {}
  for name, shape in a['shapes'].items():
    kinds.setdefault((re.sub(r'layer_\d+', 'each layer', name), 'x'.join(map(str, shape)) or 'scalar'), []).append(name)
  shapes = ', '.join(f'{name} {shape}' for name, shape in kinds)
  facts = {
    'model': f'{a["num_heads"]} heads of width {a["head_dim"]}, {a["num_kv_heads"]} of keys and values, model width {a["embed_dim"]}',
    'lengths': f'trained at {a["train_length"]} tokens, read at {a["length"]}',
    'position enters': '; '.join(f'{SLOTS[slot]} ({slot})' for slot in slots) or 'nowhere but in the causal mask',
    'parameters': f'{a["parameters"]} ({shapes}); shown as at initialisation, seed {a["seed"]}' if a['parameters'] else 'none',
    'relative': 'yes: a common shift of all positions changes nothing' if a['relative'] else 'no: a common shift changes it',
    'by length': "yes: it depends on its document's length" if a['length_dependent'] else 'no: a prefix is treated as a short document',
    'longest': f'{a["max_length"]} positions' if a['max_length'] else 'any length',
    'cache': 'keys are kept as queries meet them' if a['cache'] == 'rotated' else 'keys are kept unturned and turned when read',
    'position ids': a['positions'],
  }
  if a['schedule']:
    facts['schedule'] = '; '.join(f'{record or "this"} from {share:.1%} of the training steps on' for share, record in a['schedule'])
  return '\n'.join([a['encoding'], *(f'  {name:<16} {fact}' for name, fact in facts.items())])


def _rotation(a, group):
  train, reach, pairs = a['train_length'], group['reach'], group['pairs']
  shrinks = group['shrinks_to']
  body = []
  for n, pair in enumerate(pairs):
    values = [pair['wavelength'], pair['divisor'], pair['turns_in_training'], pair['turns_read'], *([shrinks[n]] if shrinks else [])]
    cells = ['no turn' if value is None else number(value) for value in values]
    body.append([str(n), *cells, '*' if pair['out_of_distribution'] else ''])
  head = ['pair', 'wavelength', 'divisor', f'turns in {train}', f'turns in {reach}', *(['shrinks to'] if shrinks else []), '']
  seen = [n for n, pair in enumerate(pairs) if pair['turns_in_training'] >= 1]
  new = [n for n, pair in enumerate(pairs) if pair['out_of_distribution']]
  factor, still = group['attention_factor'], group['still_dimensions']
  title = f'Rotation{_heads(a, group["heads"])}: {len(pairs)} pairs; attention factor {number(factor)}: scores times {number(factor**2)}'
  notes = [
    'wavelength: tokens in a full turn of plain RoPE. divisor: by how much this turns slower.',
    f'turns: the largest phase in full turns, in training on {train} tokens (plain RoPE) and here at distances below {reach}.',
    '*: out of distribution, less than a full turn in training and a larger phase here.',
    f'A full turn in training: {"pairs " + ranges(seen) if seen else "no pair"}. Out of distribution: '
    + (f'{len(new)} of {len(pairs)} pairs ({ranges(new)}).' if new else 'no pair.'),
  ]
  if shrinks:
    notes.insert(2, f'shrinks to: what a score of the pair counts at distance {a["served_length"] - 1}, against 1 at distance 0.')
  return '\n'.join(
    [title + (f'; {still} dimensions of each head stay as they are' if still else ''), table.aligned([head, *body], 0), *notes]
  )


def _read_distances(a, group):
  kept, limit = few(group['distance']), a['train_length'] - 1
  values = ['hidden' if group['read'][k] is None else number(group['read'][k]) for k in kept]
  rows = [['distance', *(str(group['distance'][k]) for k in kept)], ['read as', *values]]
  verdict = 'nothing beyond' if group['largest'] <= limit else 'beyond'
  return (
    f'Distances at which the query at {group["distance"][-1]} reads keys{_heads(a, group["heads"])}, in tokens\n{table.aligned(rows)}\n'
    f'The largest is {number(group["largest"])}: {verdict} the {limit} of training.'
  )


def _visible(a, groups):
  lines = [f'Keys that the query at {groups[0]["query"]} sees']
  for group in groups:
    runs = ', '.join(f'{first}-{last}' if last > first else str(first) for first, last in group['runs'])
    lines.append(f'{group["keys"]}{_heads(a, group["heads"])}: {runs}')
  return '\n'.join(lines)


def _weights(a, part, weights):
  kept, query, train = few(weights['distance']), weights['query'], a['train_length']
  slopes = any(head['slope'] for head in weights['heads'])
  body = []
  for n, head in enumerate(weights['heads']):
    slope = [('' if head['slope'] is None else number(head['slope']))] if slopes else []
    falls = [f'>{query}' if head[key] is None else str(head[key]) for key in ('falls_to_1/e', 'falls_to_1%')]
    values = ['hidden' if head['bias'][k] is None else number(head['bias'][k]) for k in kept]
    body.append([str(n), *slope, *falls, f'{head["beyond_training"]:.2%}', *values])
  title = ['head', *(['slope'] if slopes else []), '1/e at', '1% at', f'from {train} on', *(str(weights['distance'][k]) for k in kept)]
  tokens = ', tokens of zeros' if part['reads_tokens'] else ''
  return '\n'.join([
    f'Bias of the query at {query} by distance, in nats (all q . k = 0{tokens})',
    table.aligned([title, *body], 0),
    "1/e at, 1% at: the distance in tokens where a key's weight has fallen to that share of the nearest key's.",
    f'from {train} on: share of the weight on keys at distances that training did not have.',
  ])  # fmt: skip


def _temperature(temperature):
  queries = temperature['query']
  kept = sorted({*range(0, len(queries), 1 + len(queries) // 12), len(queries) - 1})
  lines = dict.fromkeys(tuple(number(line[k]) for k in kept) for line in temperature['heads'])
  rows = [['query at', *(str(queries[k]) for k in kept)], *(['scores times', *line] for line in lines)]
  return 'Temperature' + (', a line for each kind of head' if len(lines) > 1 else '') + '\n' + table.aligned(rows)


def _table(a):
  t, train = a['table'], a['train_length']
  kept, waves = few(t['position']), t['wavelengths'] or []
  count = f'{a["max_length"]} of them' if a['max_length'] else 'one for every position'
  lines = [f'Rows added to the embeddings: {count}, norm {number(t["norm"])}']
  if waves:
    full = sum(wave <= train for wave in waves)
    lines.append(
      f'{len(waves)} pairs of a sine and a cosine, wavelengths {number(waves[0])} to {number(waves[-1])} tokens; '
      f'{full} make a full turn within {train} tokens, {len(waves) - full} do not'
    )
  rows = [['position', *(str(t['position'][k]) for k in kept)], ['cosine with row 0', *(f'{t["cosine_to_first"][k]:.3f}' for k in kept)]]
  return '\n'.join([*lines, table.aligned(rows)])


def _heads(a, heads):
  if len(heads) == a['num_heads']:
    return ''
  return f' in head{"s" if len(heads) > 1 else ""} {ranges(heads)}'


def few(distances):
  """Indices of the powers of two among distances, 0 and the last; thinned to a dozen columns."""
  kept = [k for k, d in enumerate(distances) if d > 0 and d & (d - 1) == 0 and k < len(distances) - 1]
  kept = kept[:: 1 + len(kept) // 11]
  return [0, *kept, len(distances) - 1] if len(distances) > 1 else [0]


def number(x):
  """Four significant digits, and whole numbers as they are."""
  x = 0.0 if abs(x) < 5e-13 else float(x)
  if abs(x) >= 1000 or x == int(x):
    return f'{x:.0f}' if abs(x) < 1e7 else f'{x:.3e}'
  return f'{x:.4g}'


def ranges(numbers):
  """[0, 1, 2, 5] as '0-2, 5'; steps of more than one as '0, 2 .. 10'."""
  runs, rest = [], list(numbers)
  while rest:
    step = rest[1] - rest[0] if len(rest) > 1 else 1
    length = next((n for n in range(1, len(rest)) if rest[n] - rest[n - 1] != step), len(rest))
    length = 1 if step > 1 and length < 4 else length
    run, rest = rest[:length], rest[length:]
    runs.append(f'{run[0]}' if length == 1 else f'{run[0]}-{run[-1]}' if step == 1 else f'{run[0]}, {run[1]} .. {run[-1]}')
  return ', '.join(runs)
