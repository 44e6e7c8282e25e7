"""What goes on inside the language models of language.py, for claims about mechanisms. Nothing is trained, next to nothing has a threshold.

Losses are of the last 32 targets of windows of unseen files, all windows of a length alike; a difference is taken on the same windows.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np

from pe_jax import attention, evaluate, model
from pe_jax.encodings import rope, sinusoidal
from pe_jax.encodings.base import Where
from pe_jax.evaluate import prefix, score
from studies.finding import Finding
from studies.language import ARMS, FEW, OPTIONS, SLOW, L

WINDOWS = 64
JUMP = 16


def measure(folder, seeds, studies):
  """{seed: [(claim, words, value, unit)]}, the same lines for every seed; `studies` get {arm: run}."""
  import pe_jax

  found = {}
  for seed in seeds:
    runs = {arm: pe_jax.load(folder / f'{arm}-{seed}') for arm in [*ARMS, *FEW]}
    found[seed] = [line for study in studies for line in study(runs)]
  return found


def findings(found, seeds):
  """All of it, as `Finding`s; a line that goes on has a threshold and its side there."""
  return [
    Finding(lines[0][0], lines[0][1], lines[0][3], tuple(float(line[2]) for line in lines), *lines[0][4:])
    for lines in zip(*(found[seed] for seed in seeds), strict=True)
  ]


def windows(run, length):
  """The first windows of a length, as rows."""
  rows = prefix.full_windows(evaluate.subject(run.config, run.params), length)
  return rows.take(np.arange(min(WINDOWS, len(rows))))


def loss(run, enc, rows, last=L // 2):
  """Nats a target over the last targets of the rows."""
  nll_T, weight_T = score.by_position(run.config, enc, run.params, rows)
  return nll_T[-last:].sum() / weight_T[-last:].sum()


def inside(runs):
  """Every encoding within its training length."""
  for arm, run in runs.items():
    yield 'B12', f'{arm}: loss at L', loss(run, run.encoding(), windows(run, L)), 'nats'


def extended(runs):
  """A learned table that is longer than what was trained: the targets just past its old end, less those just before under the old table."""
  run, half = runs['learned'], L // 2
  rows = windows(run, 2 * L)
  before = loss(run, run.encoding(), prefix.cut(rows, L))
  for overflow in ('random', 'clip', 'wrap', 'interpolate'):
    nll_T, weight_T = score.by_position(run.config, run.encoding(f'learned(overflow="{overflow}")', 2 * L), run.params, rows)
    after = nll_T[L : L + half].sum() / weight_T[L : L + half].sum()
    yield (
      'B40',
      f'learned table with {overflow} rows added: loss at {L}-{L + half - 1} less that at {half}-{L - 1} before',
      after - before,
      'nats',
    )
    if overflow == 'random':
      jump = np.convolve(nll_T / weight_T, np.repeat([1.0, -1.0], JUMP) / JUMP, 'valid')  # at t: the mean from t on less that before
      at = JUMP + int(np.argmax(jump))
      yield 'F1', f'the largest rise between the means of {JUMP} positions is that far from {L}', abs(at - L), 'positions', 2, False


def twice(runs):
  """Positions counted double, all below L: nothing is unseen but how far apart texts say that they are."""
  for arm in ('sinusoidal', 'learned', 'rope', 't5', 'alibi'):
    enc, rows = runs[arm].encoding(), windows(runs[arm], L // 2)
    double = dataclasses.replace(enc, positions=lambda key_B, where, training: where.at(2 * where.i_BT))
    cost = loss(runs[arm], double, rows, L // 4) - loss(runs[arm], enc, rows, L // 4)
    yield 'B31', f'{arm}: positions counted double, all of them below L, cost', cost, 'nats'


def back_in_range(runs):
  """A sinusoidal table at 4 L of which some pairs get positions of training: slow ones, of a wavelength above L, stop at L - 1; fast ones
  begin again at every multiple of L.
  """
  run = runs['sinusoidal']
  width = run.config.model.embed_dim
  slow_D = np.repeat(2 * np.pi / sinusoidal.frequencies(width) > L, 2)
  ways = {
    'as it is': lambda i: (i, i),
    'slow pairs (wavelength above L) stop at L - 1': lambda i: (i, jnp.minimum(i, L - 1)),
    'fast pairs begin again at each multiple of L': lambda i: (i % L, i),
    'both': lambda i: (i % L, jnp.minimum(i, L - 1)),
    'all pairs begin again at each multiple of L': lambda i: (i % L, i % L),
  }
  rows, before = windows(run, 4 * L), loss(run, run.encoding(), windows(run, L))
  for name, way in ways.items():

    def embed(params, x, where, way=way):
      fast, slow = (sinusoidal.table(i, width) for i in way(where.i_BT))
      return x + jnp.where(slow_D, slow, fast)

    moved = dataclasses.replace(run.encoding(), embed=embed)
    yield 'A10', f'sinusoidal at 4L, {name}: loss above that at L', loss(run, moved, rows) - before, 'nats'


def terms(runs):
  """The four parts of a score of sums, (content + position) . (content + position), in the first layer: the variance of each over the pairs
  of a text, as a share of their sum. The norm before the scores is that of the sum, so that parts add up.
  """
  run, seen_TS = runs['sinusoidal'], np.tril(np.ones((L, L), bool))
  size = {name: np.var(s_BHTS[:, :, seen_TS], axis=-1).mean() for name, s_BHTS in scores(run, run.params).items()}
  for name, variance in size.items():
    yield 'B20', f'sinusoidal, scores of layer 1: share of {name}', variance / sum(size.values()), ''


def scores(run, params):
  """{words: (B, H, T, S)}: those four parts of an additive table's scores on windows of L tokens."""
  m, decoder, rows = run.config.model, params['decoder'], windows(run, L)
  block, x_BTD = decoder['block_0'], decoder['embed']['embedding'][rows.tokens_BT] * np.sqrt(m.embed_dim)
  p_BTD = jnp.broadcast_to(sinusoidal.table(jnp.arange(L), m.embed_dim)[None], x_BTD.shape)
  size_BT1 = jnp.sqrt(jnp.mean(jnp.square(x_BTD + p_BTD), axis=-1, keepdims=True) + m.norm_epsilon)

  def heads(part_BTD, name):
    y_BTX = (part_BTD / size_BT1 * block['attention_norm']['scale']) @ block['attention'][name]['kernel']
    return y_BTX.reshape(*y_BTX.shape[:2], -1, m.head_dim)

  parts = {'content': x_BTD, 'position': p_BTD}
  return {
    f'{of_query} of the query x {of_key} of the key': np.asarray(jnp.einsum('bthk,bshk->bhts', heads(a, 'query'), heads(b, 'key')))
    for of_query, a in parts.items()
    for of_key, b in parts.items()
  }


def by_frequency(runs):
  """How much of |query pair| |key pair| lies in pairs that training turns by less than once."""
  run = runs['rope']
  rows = windows(run, L)
  where = Where.forward(jnp.asarray(rows.pos_BT), jnp.asarray(rows.doc_BT))
  _, layers = model.watched(attention.reading(run.config), run.encoding(), run.params, jnp.asarray(rows.tokens_BT), where)
  slow_F = rope.frequencies(run.config.model.head_dim) * (L - 1) < 2 * np.pi
  shares = []
  for q_BTHK, k_BTHK, _ in layers:
    q_F, k_F = (np.sqrt(np.mean(np.square(pairs(x)), axis=(0, 1, 2, 4))) for x in (q_BTHK, k_BTHK))
    shares.append((q_F * k_F)[slow_F].sum() / (q_F * k_F).sum())
  claim = f'RoPE: share of the norms in the {slow_F.sum()} of {len(slow_F)} pairs that training turns by less than once'
  yield 'A45', claim, np.mean(shares), ''


def pairs(x_BTHK):
  """(B, T, H, F, 2): the two numbers that are turned together, in the layout 'half'."""
  return np.stack(np.split(np.asarray(x_BTHK, np.float64), 2, axis=-1), axis=-1)


def distances(runs):
  """RoPE at 8 L with all distances below L: what is left of D(8L) has to do with the number of keys."""
  near = f'rerope(window={L // 2})'
  d = context(runs['rope'], {'as it is': 'rope', f'under {near}': near, f'under log_n({near})': f'log_n({near})'}, 8 * L)
  for name, value in d.items():
    yield 'A37', f'RoPE at 8L {name}: D(8L)', value, 'nats'


def temperature(runs):
  """YaRN with and without its attention factor, at L and at 4 L."""
  yarn = f'yarn(factor=4, {SLOW}'
  readings = {'with': f'{yarn})', 'without': f'{yarn}, attention_factor=1.0)'}
  for where, length in (('inside L', L), ('at 4L', 4 * L)):
    d = context(runs['rope'], readings, length)
    yield 'A51', f'YaRN without its attention factor is worse {where} by', d['without'] - d['with'], 'nats'


def context(run, readings, length):
  """{name: loss at a length less RoPE's at L, of the same targets}."""
  rows = run.evaluate(sorted({L, length}), ['rope', *readings.values()], ['context'], options=OPTIONS)
  before, after = ([r['nll'] for r in rows if r['length'] == n] for n in (L, length))  # each in the order of the readings
  return {name: nll - before[0] for name, nll in zip(readings, after[1:], strict=True)}


def read_outs(runs):
  """Positions read linearly out of the last hidden states inside L."""
  for arm in ('nope', 'rope', 'alibi', 'sinusoidal'):
    (row,) = runs[arm].probe([L], ['position'])
    yield 'A2', f'{arm}: R² of ln(1 + position) in the last hidden states', row['layers'][-1]['log_position']['inside'], ''


def attended(runs):
  """Where attention goes at L and at 8 L, the mean of all heads."""
  for arm in ('rope', 'alibi', 't5', 'nope'):
    rows = {row['length']: row for row in runs[arm].probe([L, 8 * L], ['attention'])}
    for what, name in (('recent', 'the last 16 keys'), ('sink', 'the first 4 keys')):
      yield 'A42', f'{arm}: share of attention on {name}, at 8L ÷ at L', rows[8 * L][what] / rows[L][what], ''
    yield 'A42', f'{arm}: share of attention on keys L and more back, at 8L', rows[8 * L]['beyond'], ''


STUDIES = (inside, extended, twice, back_in_range, terms, by_frequency, distances, temperature, read_outs, attended)
