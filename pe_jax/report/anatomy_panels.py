"""The panels of an anatomy's picture, each a function of what it shows that gives a function of an axis."""

import numpy as np

BLUE, RED, GREEN, GREY = '#0072B2', '#D55E00', '#009E73', '#8A8A8A'
DEEPEST = -8.0  # nats: a weight of 0.03 %, where a bias as good as hides a key


def nothing(axis):
  axis.axis('off')
  axis.text(0.5, 0.5, 'position enters nowhere\nbut in the causal mask', ha='center', va='center')


def _note(axis, y, text, left=False):
  """A few words above a horizontal line."""
  at = {'xycoords': ('axes fraction', 'data'), 'textcoords': 'offset points', 'fontsize': 8}
  axis.annotate(text, (0 if left else 1, y), (2 if left else 0, 2), **at, ha='left' if left else 'right')


def _mark_lengths(axis, a):
  """Horizontal lines at the training length and at the length read."""
  for name, length, dashes in (('trained', a['train_length'], '--'), ('read', a['served_length'], ':')):
    if name == 'trained' or length != a['train_length']:
      axis.axhline(length, color='k', lw=0.8, ls=dashes)
      _note(axis, length, f'{name} to here: {length}')


def _mark_training(axis, a):
  """A vertical line at the training length."""
  length = a['train_length']
  if length < axis.get_xlim()[1]:
    axis.axvline(length, color='k', lw=0.8, ls='--')
    box = {'facecolor': 'white', 'edgecolor': 'none', 'pad': 1, 'alpha': 0.85}
    at = {'xycoords': ('data', 'axes fraction'), 'textcoords': 'offset points', 'bbox': box, 'zorder': 5}
    axis.annotate('trained to here', (length, 0.98), (-4, 0), **at, ha='right', va='top', rotation=90, fontsize=8)


def _distances(axis, longest, name='distance to the key (tokens)'):
  """An axis in powers of two that begins with 0."""
  import matplotlib

  axis.set_xscale('symlog', base=2, linthresh=1, linscale=0.5)
  axis.set_xlim(0, max(longest, 1))
  powers = [2**n for n in range(int(np.log2(max(longest, 1))) + 1)]
  axis.set_xticks([0, *powers[:: -1 - len(powers) // 8]])
  axis.minorticks_off()
  axis.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda x, _: f'{x:g}'))
  axis.set_xlabel(name)


def _each_head(count):
  """A line style for each head."""
  import matplotlib

  colours = matplotlib.colormaps['viridis'](np.linspace(0, 0.9, count))
  return [{'color': colour, 'label': f'head {n}', 'lw': 1.5} for n, colour in enumerate(colours)]


def _legend(axis, count):
  if 1 < count <= 16:
    white = {'facecolor': 'white', 'edgecolor': 'none', 'framealpha': 0.8}
    axis.legend(**white, fontsize=8, loc='lower left', ncols=1 + count // 5, handlelength=1.2, columnspacing=1)


def waves(a, group):
  """Wavelength of each pair, of plain RoPE and as read."""

  def panel(axis):
    plain = [pair['wavelength'] for pair in group['pairs']]
    read = [np.nan if pair['divisor'] is None else pair['wavelength'] * pair['divisor'] for pair in group['pairs']]
    mapped = not np.allclose(read, plain)
    if mapped:
      axis.plot(plain, '.-', color=GREY, ms=4, lw=1, label='plain RoPE')
    axis.plot(read, '.-', color=BLUE, ms=5, lw=1.4, label='as read')
    axis.set_yscale('log')
    _mark_lengths(axis, a)
    axis.set(xlabel='pair', ylabel='tokens in a full turn', title='wavelength of each pair')
    if mapped:
      axis.legend(frameon=False, loc='upper left')

  return panel


def divisors(group):
  """By how much each pair turns slower."""

  def panel(axis):
    divisors = np.asarray([np.nan if pair['divisor'] is None else pair['divisor'] for pair in group['pairs']])
    axis.step(np.arange(len(divisors)), divisors, where='mid', color=BLUE, lw=1)
    axis.plot(divisors, '.', color=BLUE, ms=5)
    still = np.flatnonzero(np.isnan(divisors))
    if len(still):
      axis.axvspan(still[0] - 0.5, still[-1] + 0.5, color=GREY, alpha=0.2, lw=0)
      axis.annotate('do not turn', (still.mean(), 0.5), xycoords=('data', 'axes fraction'), ha='center', fontsize=8)
    axis.set_ylim(min(1, np.nanmin(divisors)) - 0.1, 1.05 * np.nanmax(divisors) + 0.05)
    axis.set(xlabel='pair', ylabel='plain frequency / frequency as read')
    axis.set_title(f'divisor of each pair; attention factor {group["attention_factor"]:.4g}')

  return panel


def circle(group):
  """The share of the circle that each pair has seen in training and reaches here."""

  def panel(axis):
    pairs = np.arange(len(group['pairs']))
    width = 0.85 if len(pairs) <= 64 else 1
    seen, read = (np.minimum([pair[key] for pair in group['pairs']], 1) for key in ('turns_in_training', 'turns_read'))
    new = np.asarray([pair['out_of_distribution'] for pair in group['pairs']])
    axis.bar(pairs, seen, width=width, color=BLUE, alpha=0.75, label='seen in training')
    axis.hlines(read, pairs - width / 2, pairs + width / 2, color='k', lw=1.2, label=f'reached at distances below {group["reach"]}')
    if new.any():
      axis.bar(pairs[new], (read - seen)[new], width=width, bottom=seen[new], color=RED, label='new: out of distribution')
    axis.set_ylim(0, 1.32)
    axis.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axis.set(xlabel='pair', ylabel='share of the full circle')
    axis.set_title(f'phases of each pair: {f"new ones in {new.sum()} pairs" if new.any() else "none is new"}')
    axis.legend(frameon=False, fontsize=8, loc='upper right', ncols=2 if new.any() else 1, columnspacing=1, handlelength=1.2)

  return panel


def _lines(weights):
  """The bias of each head, (H, distances); nan where a key is hidden."""
  return np.asarray([[np.nan if b is None else b for b in head['bias']] for head in weights['heads']])


def _relative(weights):
  """Weights over that of the nearest visible key."""
  lines = _lines(weights)
  return np.exp(lines - lines[np.arange(len(lines)), np.argmax(np.isfinite(lines), axis=1)][:, None])


def _by_distance(axis, own, lines):
  """A line a head against the distance from the query."""
  for style, line in zip(_each_head(len(own['heads'])), lines, strict=True):
    axis.plot(own['distance'], line, **style)
  _distances(axis, own['query'])


def biases(a, queries, n):
  """Bias by distance of query n, a line a head."""

  def panel(axis):
    own = queries[n]
    _by_distance(axis, own, _lines(own))
    low = max(min(np.nanmin(_lines(w)) for w in queries), DEEPEST)
    high = max(np.nanmax(_lines(w)) for w in queries)
    pad = 0.05 * (high - low) or 1
    axis.set_ylim(low - pad, high + pad)
    _mark_training(axis, a)
    axis.set(ylabel='bias (nats)', title=f'bias of the query at {own["query"]}')
    if n == 0:
      _legend(axis, len(own['heads']))

  return panel


def shares(a, queries, n):
  """Weights by distance of query n over that of the nearest key."""

  def panel(axis):
    own = queries[n]
    _by_distance(axis, own, _relative(own))
    axis.set_ylim(0, 1.05 * max(np.nanmax(_relative(w)) for w in queries))
    for share, name in ((np.exp(-1), '1/e'), (0.01, '1 %')):
      axis.axhline(share, color='k', lw=0.6, ls='-.')
      _note(axis, share, name, left=True)
    _mark_training(axis, a)
    axis.set(ylabel="weight / nearest key's weight", title=f'weights of the query at {own["query"]} where all q . k = 0')

  return panel


def read(a, part):
  """The distances at which keys are read."""

  def panel(axis):
    groups, limit = part['read_distances'], a['train_length'] - 1
    longest = groups[0]['distance'][-1]
    axis.plot([0, longest], [0, longest], color=GREY, lw=0.8, label='plain RoPE')
    for group, colour in zip(groups, (BLUE, RED, GREEN) * len(groups)):
      name = 'as read' if len(groups) == 1 else f'as read in head {group["heads"][0]}, …'
      axis.plot(group['distance'], [np.nan if r is None else r for r in group['read']], '.-', color=colour, ms=3, lw=1.2, label=name)
    axis.axhline(limit, color='k', lw=0.8, ls='--')
    _note(axis, limit, f'largest of training: {limit}')
    axis.set_ylim(0, max(1.3 * limit, 1.1 * max(group['largest'] for group in groups)))
    axis.set(xlabel='distance to the key (tokens)', ylabel='distance it is read at (tokens)')
    axis.set_title(f'distances of the query at {longest}')
    axis.legend(frameon=False, loc='lower right')

  return panel


def visible(a, part):
  """What each query sees."""

  def panel(axis):
    groups = part['visible']
    for n, group in enumerate(groups):
      axis.broken_barh([(first, last - first + 1) for first, last in group['runs']], (n - 0.4, 0.8), color=BLUE, lw=1)
    names = ['all heads' if len(g['heads']) == a['num_heads'] else 'head ' + ', '.join(map(str, g['heads'])) for g in groups]
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) + 0.5, -1.5)
    axis.set_xlim(0, groups[0]['query'] + 1)
    axis.set(xlabel='position of the key', title=f'keys that the query at {groups[0]["query"]} sees')

  return panel


def temperatures(a, temperature):
  """What scores are multiplied by."""

  def panel(axis):
    groups = {}
    for h, line in enumerate(temperature['heads']):
      groups.setdefault(tuple(line), []).append(h)
    for style, (line, heads) in zip(_each_head(len(groups)), groups.items(), strict=True):
      axis.plot(temperature['query'], line, '.-', **{**style, 'label': 'head ' + ', '.join(map(str, heads))})
    _distances(axis, temperature['query'][-1], 'position of the query')
    _mark_training(axis, a)
    axis.set(ylabel='scores times', title='temperature')
    _legend(axis, len(groups))

  return panel


def table_waves(a):
  """Wavelengths of the table."""

  def panel(axis):
    axis.plot(a['table']['wavelengths'], '.-', color=BLUE, ms=3, lw=1)
    axis.set_yscale('log')
    _mark_lengths(axis, a)
    axis.set(xlabel='pair of a sine and a cosine', ylabel='tokens in a full turn', title='wavelength of each pair')

  return panel


def table_picture(a):
  """The table itself."""

  def panel(axis):
    positions = np.arange(min(a['served_length'], 2 * a['train_length']))
    sines = np.sin(2 * np.pi * positions[:, None] / np.asarray(a['table']['wavelengths'])[None])
    axis.imshow(sines, aspect='auto', cmap='RdBu_r', vmin=-1, vmax=1, interpolation='nearest')
    if len(positions) > a['train_length']:
      axis.axhline(a['train_length'], color='k', lw=0.8, ls='--')
      _note(axis, a['train_length'], 'trained to here')
    axis.grid(False)
    axis.set(xlabel='pair', ylabel='position', title='the sines')

  return panel


def table_cosine(a):
  """Likeness of rows by their distance."""

  def panel(axis):
    axis.plot(a['table']['position'], a['table']['cosine_to_first'], '.-', color=BLUE, ms=3, lw=1)
    _distances(axis, a['table']['position'][-1], 'position')
    axis.axhline(0, color='k', lw=0.6)
    _mark_training(axis, a)
    axis.set(ylabel='cosine with the row at position 0', title='how alike rows are')

  return panel
