"""Permutation: the last token stays, those before it are put in another order. Does what is said at the end change?

What must come out follows from the architecture, whatever was learned:

- a model that sees the future and has no position: outputs are permuted with the inputs;
- a causal one without position: the last output is the same with one layer, since it is a sum over a set; with two layers or more it is
  not, since the keys of the second have seen different prefixes;
- any position that enters: not the same.

`change` is the largest difference of logits relative to the largest logit: up to 1e-5 is "the same" in float32, above 1e-3 "not the same".
`run_change` compares the two texts a a … a b and a b … b b, which a model that sees only which tokens occur cannot tell apart.
"""

import numpy as np

from pe_jax.probes import forward, text

SAME, OTHER = 1e-5, 1e-3
PLACES = ('positions', 'embed', 'rotate', 'distance_bias', 'bias', 'score', 'visible')  # where order can enter
NEUTRAL = ('scale', 'normalise')  # may or may not know of positions: no prediction


def measure(subject, spec, lengths, options):
  """Yields one dict for each length."""
  text_of, _ = text.ends(subject, lengths, options.segments, options.seed)
  for length in lengths:
    enc, name = forward.at(subject, spec, length)
    rng, tokens_BT = np.random.default_rng([options.seed, length]), text_of[length]
    causal, layers = subject.config.model.causal, subject.config.model.num_layers
    order_BT = np.argsort(rng.random((len(tokens_BT), length - 1)), axis=1)
    order_BT = np.concatenate([order_BT, np.full((len(tokens_BT), 1), length - 1)], axis=1)
    mixed_BT = np.take_along_axis(tokens_BT, order_BT, axis=1)
    a, b = different(tokens_BT)
    runs = np.full((2, length), a)
    runs[0, -1:], runs[1, 1:] = b, b
    count = len(tokens_BT)
    # A draw of positions belongs to a row's number, and a text and its permutation are given the same.
    row_B = [*range(count), *range(count), 0, 0]
    # With a vocabulary of 50 000 the logits of one long text fill gigabytes, and of a causal model the last ones are enough.
    logits_BTV = forward.logits(subject, enc, last=int(causal))(np.concatenate([tokens_BT, mixed_BT, runs]), row_B)
    plain, mixed, runs = logits_BTV[:count], logits_BTV[count : 2 * count], logits_BTV[2 * count :]
    if not causal:
      plain = np.take_along_axis(plain, order_BT[:, :, None], axis=1)
    change = worst(plain, mixed)
    expected = predicted(enc, layers, causal)
    yield {
      'length': length,
      'encoding': name,
      'causal': causal,
      'layers': layers,
      'texts': count,
      'change': change,
      'run_change': worst(runs[:1, -1], runs[1:, -1]),
      'predicted': expected,
      'as_predicted': None if expected is None else change <= SAME if expected == 'same' else change > OTHER,
    }


def different(tokens_BT):
  """Two tokens of the text, the most frequent ones."""
  ids, counts = np.unique(tokens_BT, return_counts=True)
  best = ids[np.argsort(-counts, kind='stable')].tolist()
  return best[0], best[min(1, len(best) - 1)]


def worst(a, b):
  """Largest difference relative to the largest entry."""
  return float(np.abs(a.astype(np.float64) - b).max() / max(np.abs(b).max(), 1e-30))


def predicted(enc, layers, causal):
  """'same', 'other', or None where the record's functions do not tell."""
  records = [enc, *(enc.at_layer(n) for n in range(layers))]
  if any(getattr(record, place) for record in records for place in PLACES):
    return 'other'
  if any(getattr(record, place) for record in records for place in NEUTRAL):
    return None
  return 'same' if layers == 1 or not causal else 'other'
