"""Step 1, hard limits: what of the text reaches the model at all.

Text that the tokenizer has cut, a table of positions that has ended or a cache that is full make every later question pointless.
"""

import numpy as np

from pe_jax.diagnose.finding import Finding, judged

STEP, TITLE = 1, 'hard limits'


def findings(case):
  """Of the tokenizer, the encoding, the vocabulary, the numbers, the cache and the documents."""
  return [tokenizer(case), positions(case), vocabulary(case), numbers(case), *cache(case), documents(case)]


def tokenizer(case):
  """A text written twice must give twice the tokens: one that is cut gives as many as before, or less than twice."""
  encode, text = case.subject.tokenizer.encode, b''
  for n in range(len(case.source)):
    text += case.source[n] + b'\n'
    if len(encode(text)) * 2 >= case.length or len(text) > 64 * case.length:
      break
  text *= max(1, -(-case.length // (2 * len(text))))  # a source that is too short is read again; a token has a byte at least
  once, twice = len(encode(text)), len(encode(text + text))
  evidence = f'{len(text)} bytes give {once} tokens, twice the text gives {twice}'
  remedy = 'encode the whole text (no max_length, no truncation) and look at every later step again'
  return judged(STEP, 'tokenizer', twice >= 1.9 * once, evidence, 'tokenizer cut', remedy)


def positions(case):
  """The positions that the encoding has, and how far the length lies beyond training."""
  rows, times = case.encoding(case.length).traits.max_length, case.length / case.train_length
  asked = f'{case.length} tokens are asked for, {times:.3g} x the {case.train_length} of training'
  has = f"'{case.encoding(case.length).spec}' has {rows or 'any number of'} positions"
  remedy = "read it with learned(overflow='interpolate') as a study, or train with more rows; the steps below look at what it can serve"
  return judged(STEP, 'positions there are', case.served == case.length, f'{asked}; {has}', 'hard limit', remedy)


def vocabulary(case):
  """Ids that the embedding has no row for give states that are no numbers."""
  largest, size = max(int(d.max()) for d in case.subject.documents), case.config.model.vocab_size
  evidence = f'ids up to {largest}, and the model has {size}'
  return judged(
    STEP, 'vocabulary', largest < size, evidence, 'hard limit', 'read the text with the tokenizer that the model was trained with'
  )


def numbers(case):
  """States that are no numbers compare with nothing, so that every later step would name a cause of its own."""
  bad_T = ~np.isfinite(case.states(case.text(case.served)[None])[0]).all(-1)
  evidence = f'{bad_T.sum()} of the {case.served} tokens of a text have states that are not finite'
  evidence += f', the first is token {bad_T.argmax()}' if bad_T.any() else ''
  remedy = 'take an earlier checkpoint, or another encoding or dtype; look for the first layer and token that overflow'
  return judged(STEP, 'numbers', not bad_T.any(), evidence, 'not finite', remedy)


def cache(case):
  """Whether decoding makes room for the whole text."""
  if not case.batch:
    return [Finding(STEP, 'cache', 'note', 'model.causal is False: nothing is decoded')]
  need, have = case.served - 1, case.batch.capacity  # the last token is never an input
  remedy = 'make the cache for prompt + new tokens: a full one overwrites its last slots'
  return [judged(STEP, 'cache', have >= need, f'{have} slots for the {need} inputs of a text of {case.served}', 'hard limit', remedy)]


def documents(case):
  """Whether there is text of this length."""
  longest, total = (int(f(list(map(len, case.subject.documents)))) for f in (np.max, np.sum))
  evidence = f'the longest of {len(case.subject.documents)} documents has {longest} tokens, all have {total}'
  if longest >= case.length:
    return Finding(STEP, 'text', 'ok', evidence)
  return Finding(STEP, 'text', 'note', f'{evidence}: below they are joined', remedy='give longer documents for losses that mean something')
