"""Leak: does a token know what comes after it? It must not, to the last bit.

At a quarter, half and three quarters of the text and before its last token, all tokens from there on are replaced, and the last hidden
states before, which are all that logits are made of, must be exactly what they were; and the attention of queries to keys after them must
be exactly 0. A mask that was left out or turned round in training shows nowhere else but in a loss that is too good: with `floor`, nats a
token that no honest model can be below (a task's entropy, a larger model's loss), a loss of less than nine tenths of it is flagged.
"""

import jax.numpy as jnp
import numpy as np

from pe_jax import loss, model
from pe_jax.probes import attention, forward, text

QUERIES = 16
TOO_GOOD = 0.9  # of the floor


def measure(subject, spec, lengths, options):
  """Yields one dict for each length."""
  text_of, _ = text.ends(subject, lengths, min(2, options.segments), options.seed)
  for length in lengths:
    enc, name = forward.at(subject, spec, length)
    tokens_BT, rng = text_of[length], np.random.default_rng([options.seed, length])
    # One call for each text, so that a row has the same place in its batch: matrix products of other shapes may round otherwise.
    read, size = forward.reader(subject, enc, seen(enc, length)), subject.config.model.vocab_size
    plain_BTD, nll_BT, ahead_B, total_B = read(tokens_BT)
    cuts = sorted({length // 4, length // 2, 3 * length // 4, length - 1} - {0})
    differences = [float(np.abs(read(replaced(tokens_BT, cut, size, rng))[0][:, :cut] - plain_BTD[:, :cut]).max()) for cut in cuts]
    nll = float(nll_BT[:, :-1].mean(dtype=np.float64))
    yield {
      'length': length,
      'encoding': name,
      'causal': subject.config.model.causal,
      'cuts': cuts,
      'differences': differences,
      'worst_difference': max(differences),
      'weight_ahead': float(ahead_B.max()),
      'weight_total': float(total_B.max()),
      'leaks': bool(max(differences) > 0 or ahead_B.max() > 0),
      'nll': nll,
      'floor': options.floor or None,
      'below_floor': nll < TOO_GOOD * options.floor if options.floor else None,
    }


def replaced(tokens_BT, cut, vocab_size, rng):
  """Other tokens from `cut` on, each different from what stood there."""
  changed = tokens_BT.copy()
  changed[:, cut:] = (changed[:, cut:] + rng.integers(1, vocab_size, size=changed[:, cut:].shape)) % vocab_size
  return changed


def seen(enc, length):
  """A reader for `forward.reader`: last hidden states, - log p of each next token (of the last position none), and of some queries in the
  middle the largest weight of a key after them and the largest sum.
  """
  start = max(0, length // 2 - QUERIES)
  queries = min(QUERIES, length - start)

  def read(config, params, tokens_BT, where):
    x_NBTD, given = model.watched(config, enc, params, tokens_BT, where)
    ahead_TS = jnp.arange(length)[None] > jnp.arange(start, start + queries)[:, None]
    weights = attention.rows(config, enc, params, where, given, start, queries)
    numbers = [(jnp.max(w, axis=(1, 2, 3), where=ahead_TS[None, None], initial=0.0), w.sum(-1).max((1, 2))) for w in weights]
    ahead_B, total_B = (jnp.stack(column).max(0) for column in zip(*numbers))
    nll_BT = loss.each(x_NBTD[-1], *model.head(config, params), jnp.roll(tokens_BT, -1, axis=1))
    return x_NBTD[-1], nll_BT, ahead_B, total_B

  return read
