"""Repetition in generated text, in windows of one fixed size, beside the corpus; and the loss of a model on its own samples.

Prompts of the run's text are continued to the length, greedily and by sampling at temperature 1; the corpus is how the same texts really go
on. In every window of w new tokens:

    distinct_n    different n-grams / n-grams (Li and others, 2015, arXiv:1510.03055), n = 1 .. 4
    rep_n         1 - distinct_n; rep_4 of a whole text is seq-rep-4 (Welleck and others, 2019, arXiv:1908.04319), here `seq_rep_4`
    suffix        tokens of the longest end of the window that stands earlier in it too
    loops         share of windows that end in a loop: a period of at most 32 tokens three times in a row
    nll           - log p of the window's tokens under the model: of its own samples, and of the corpus

Distinct-n falls with the length of what is counted, so that windows of other sizes are never compared. A model that samples from what it
believes has, on its own text, a loss equal to its entropy; where that rises or falls along the text the samples drift.
"""

import jax
import jax.numpy as jnp
import numpy as np

from pe_jax import attention, decode, loss, model, sampling
from pe_jax.errors import ConfigError
from pe_jax.evaluate import context
from pe_jax.probes import forward

WINDOW, GRAMS, PERIOD, TIMES = 256, (1, 2, 3, 4), 32, 3


def refusal(subject):
  """A task's answers end, and a bidirectional model does not generate."""
  if subject.task:
    return f'an answer of {subject.task.spec} has an end (its protocol has the format rate instead)'
  return '' if subject.config.model.causal else 'a model that sees the future cannot generate'


def check(subject, lengths, options):
  """Refuses a window that the shortest length does not have."""
  sizes(subject, lengths, options)


def sizes(subject, lengths, options):
  """(tokens of the prompt, BOS included; of a window), the same at every length."""
  prompt = max(1, min(subject.config.train_length, lengths[0]) // 2)
  new = lengths[0] - prompt
  window = options.window or min(WINDOW, new)
  if window > new or window <= max(GRAMS):
    raise ConfigError(
      f'window: {window} tokens do not fit length {lengths[0]}, where {new} follow the prompt (a window has {max(GRAMS) + 1} to {new})'
    )
  return prompt, window


def measure(subject, spec, lengths, options):
  """Yields one dict for each length and kind of text: greedy, sampled, corpus."""
  prompt, window = sizes(subject, lengths, options)
  spans = context.choose(subject, lengths[-1], max(1, lengths[-1] // 2), options.prompts)
  whole = spans.rows(subject, lengths[-1])
  for length in lengths:
    enc, name = forward.at(subject, spec, length)
    text_BT = whole.tokens_BT[:, :length]
    given = attention.reading(subject.config), enc, subject.params, text_BT[:, :prompt]
    greedy = decode.generate(*given, new_tokens=length - prompt)
    sampled = decode.generate(*given, new_tokens=length - prompt, sampler=sampling.sampler(1.0), key=jax.random.PRNGKey(options.seed))
    scored = forward.reader(subject, enc, nll_of_next(enc))(text_BT)[:, prompt - 1 :]
    kinds = {
      'greedy': (greedy.tokens, -greedy.logp),
      'sampled': (sampled.tokens, -sampled.logp),
      'corpus': (text_BT[:, prompt:], scored),
    }
    for kind, (tokens_BN, nll_BN) in kinds.items():
      windows = [
        of_window(tokens_BN[:, n : n + window], nll_BN[:, n : n + window], n) for n in range(0, length - prompt - window + 1, window)
      ]
      means = {key: float(np.mean([w[key] for w in windows])) for key in windows[0] if key not in ('start', 'end')}
      size = {'prompt': prompt, 'window': window, 'texts': len(text_BT)}
      yield {'length': length, 'encoding': name, 'text': kind, **size, **means, 'windows': windows}


def nll_of_next(enc):
  """A reader for `forward.reader`: - log p of every token but the first, float32 (B, T - 1)."""

  def read(config, params, tokens_BT, where):
    x_BTD, _ = model.hidden(config, enc, params, tokens_BT, where)
    return loss.each(x_BTD, *model.head(config, params), jnp.roll(tokens_BT, -1, axis=1))[:, :-1]

  return read


def of_window(tokens_BW, nll_BW, start):
  """Means over the texts of one window; `start` counts new tokens."""
  found = {f'distinct_{n}': float(np.mean([distinct(row, n) for row in tokens_BW])) for n in GRAMS}
  found['seq_rep_4'] = 1 - found['distinct_4']
  found['suffix'] = float(np.mean([repeated_suffix(row) for row in tokens_BW]))
  found['loops'] = float(np.mean([loops(row) for row in tokens_BW]))
  return {'start': start, 'end': start + tokens_BW.shape[1], **found, 'nll': float(nll_BW.mean(dtype=np.float64))}


def distinct(tokens, n):
  """Different n-grams over all n-grams: 1 where none comes twice."""
  grams = np.lib.stride_tricks.sliding_window_view(np.asarray(tokens), n)
  return len({gram.tobytes() for gram in grams}) / len(grams)


def repeated_suffix(tokens):
  """Length of the longest suffix that also ends earlier; the two may overlap."""
  tokens, best = np.asarray(tokens), 0
  for end in range(1, len(tokens)):
    same = tokens[:end][::-1] == tokens[::-1][:end]
    best = max(best, int(np.argmin(same)) if not same.all() else end)
  return best


def loops(tokens):
  """Whether the text ends in a period of at most PERIOD tokens, TIMES times."""
  tokens = np.asarray(tokens)
  for period in range(1, min(PERIOD, len(tokens) // TIMES) + 1):
    end = tokens[len(tokens) - TIMES * period :]
    if np.array_equal(end[period:], end[:-period]):
      return True
  return False
