"""Step 5, length or attention: is it the length, what the text holds, or how it is run?

The same short text again and again makes a text long and adds nothing to attend to. A key that is moved shows from how far it is used.
Decoding through a cache, and several rows at once, must give what one forward of one row gives.
"""

import numpy as np

from pe_jax.diagnose.finding import Finding, judged

STEP, TITLE = 5, 'length or attention'
KEY = 8  # tokens
TRIALS = 4
USED = 0.25  # nats that a key must be worth to be called used
MARGIN = 0.05


def findings(case):
  """Cache and rows first: if they are wrong, nothing that was generated counts."""
  return [*run(case), *repeated(case), *moved(case)]


def run(case):
  """New tokens' log-probabilities through the cache, in a batch of prompts of three lengths, against one forward of each text."""
  if not case.batch:
    return []
  first, *others = case.batch_error
  lengths = [len(text) for text in case.batch.texts]
  found = [_cache(case, first, lengths[0])]
  evidence = f'prompts of other lengths in the batch, {" and ".join(map(str, lengths[1:]))} tokens: {max(others):.2g} nats off'
  holds = max(others) <= max(case.logp_tolerance, 2 * first)  # what all rows share has been named
  remedy = 'hide padding from every query, and count positions from the first real token'
  return [*found, judged(STEP, 'padded rows', holds, evidence, 'padding', remedy)]


def _cache(case, error, length):
  evidence = f'log-probabilities of new tokens of a text of {length} tokens differ by {error:.2g} nats between cache and one forward'
  if error <= case.logp_tolerance:
    return Finding(STEP, 'cache on or off, one row or many', 'ok', evidence)
  alone = case.decoded([case.batch.texts[0][: -len(case.batch.logp_BN[0])]])
  single = float(np.abs(alone.logp_BN[0] - case.at_once(alone, 0)).max())
  evidence += f'; alone in its batch by {single:.2g}'
  if single <= case.logp_tolerance:
    return Finding(STEP, 'one row or many', 'fault', evidence, 'rows', 'look for state that rows share: positions, lengths, masks')
  remedy = 'decode without the cache meanwhile; compare the position ids and the declared length of each step with those of one forward'
  return Finding(STEP, 'cache on or off', 'fault', evidence, 'cache', remedy)


def repeated(case):
  """The last copy of a short text against its second copy, which ends inside the training length."""
  period = case.train_length // 2
  copies = (case.served - 1) // max(period, 1)
  if period < 2 or copies < 3:
    return []
  second, last = np.mean([_copies(case, period, copies, trial) for trial in range(TRIALS)], axis=0)
  evidence = f'{period} tokens repeated to {case.served}: {second:.3f} nats in the second copy, {last:.3f} in the last'
  if last - second <= MARGIN:
    return [Finding(STEP, 'short text repeated', 'ok', f'{evidence}: length alone costs nothing')]
  remedy = 'more of the same harms too, so it is the length, and not what is to be found in the text'
  return [Finding(STEP, 'short text repeated', 'note', f'{evidence}: length alone costs {last - second:.3f}', remedy=remedy)]


def _copies(case, period, copies, trial):
  """nats a token in the second and in the last copy of a text."""
  text, bos = case.text(period + 1, trial), case.subject.tokenizer.bos is not None
  begin, piece = text[: int(bos)], text[int(bos) :][:period]
  row_1T = np.concatenate([begin, np.resize(piece, case.served - len(begin))])[None].astype(np.int32)
  nll_T = case.nll(case.states(row_1T), np.roll(row_1T, -1, axis=1))[0]
  start = len(begin) - 1 + period  # whose target is the first token of the second copy
  return [nll_T[first : first + period].mean() for first in (start, start + (copies - 2) * period)]


def moved(case):
  """What a run of tokens that has stood before is worth when it comes again, by how far back that was."""
  distances = sorted({n for n in (case.train_length // 2, case.train_length - KEY, 2 * case.train_length, case.served - 2 * KEY)})
  distances = [d for d in distances if KEY <= d <= case.served - 2 * KEY]
  if not distances:
    return []
  gain_D = np.mean([_gains(case, distances, trial) for trial in range(TRIALS)], axis=0)
  evidence = f'{KEY} tokens that come again are easier by ' + ', '.join(f'{g:.2f} nats at distance {d}' for g, d in zip(gain_D, distances))
  near = [g for g, d in zip(gain_D, distances) if d < case.train_length]
  far = [g for g, d in zip(gain_D, distances) if d >= case.train_length]
  if not near or max(near) < USED:
    return [Finding(STEP, 'key moved', 'note', f'{evidence}: not used inside the training length either, so it tells nothing of length')]
  if far and min(far) < max(near) / 2:
    remedy = 'look at biases and windows by distance (scripts/inspect_encoding.py), or at text where far context matters in training'
    return [Finding(STEP, 'key moved', 'note', f'{evidence}: used near, and not from far', remedy=remedy)]
  return [Finding(STEP, 'key moved', 'ok', evidence)]


def _gains(case, distances, trial):
  """nats a token of the key's second place, less than where it has not stood before, for each distance."""
  row_T = case.text(case.served, 1 + trial)
  key = np.random.default_rng(trial).choice(case.stream, KEY).astype(np.int32)  # in no order: only the first place can tell

  def cost(distance):
    tokens_T = row_T.copy()
    tokens_T[-KEY:] = key
    if distance:
      tokens_T[len(tokens_T) - KEY - distance :][:KEY] = key
    nll_T = case.nll(case.states(tokens_T[None]), np.roll(tokens_T, -1)[None])[0]
    return nll_T[-KEY:-1].mean()

  plain = cost(0)
  return [plain - cost(d) for d in distances]
