"""Step 2, position ids: where they start, whether they rise by one, what padding and the cache make of them.

Wrong ids that change nothing in the model's answers (a shift, under a relative encoding) are a note and no fault.
"""

import jax
import jax.numpy as jnp
import numpy as np

from pe_jax import data, prompts
from pe_jax.diagnose import turning
from pe_jax.diagnose.finding import Finding, judged
from pe_jax.encodings.base import Where

STEP, TITLE = 2, 'position ids'
PROMPT = np.arange(1, 6)  # any tokens: how a prompt is laid does not depend on them


def findings(case):
  """Of training rows, of what the model sees, of padded prompts and of the cache."""
  found = [rows(case), seen(case)]
  if case.batch:
    found += [laid(case), *cached(case)]
  return [*found, kept(case)] if case.encoding().rotate or case.encoding().layer else found


def rows(case):
  """In packed rows each document starts at 0 and rises by one, and padding is marked."""
  name = case.config.data.packing
  wrong = total = 0
  for length in dict.fromkeys((case.train_length, case.served)):
    packed = data.packing.by_name(name)(case.subject.documents[:64], length, case.subject.tokenizer.bos)
    new = np.diff(packed.doc_BT, axis=1, prepend=-1) != 0
    begin = np.maximum.accumulate(np.where(new, np.arange(length), 0), axis=1)
    real = packed.doc_BT > 0
    wrong += int((real & (packed.pos_BT != np.arange(length) - begin)).sum()) + int((~real & (packed.weight_BT > 0)).sum())
    total += int(real.sum())
  evidence = f"{total} tokens in rows packed by '{name}': {wrong} of them not at their place in their document, counted from 0"
  remedy = 'restart positions in each document (data/packing.py), and give padding document 0 and no weight'
  return judged(STEP, 'training rows', not wrong, evidence, 'positions', remedy)


def seen(case):
  """What the model is shown: the same ids, or a draw that rises."""
  index_BT = np.arange(case.served, dtype=np.int32)[None].repeat(2, axis=0)
  enc = case.encoding()
  ids_BT = np.asarray(jax.jit(lambda pos_BT: enc.placed(Where.forward(pos_BT, jnp.ones_like(pos_BT))).i_BT)(index_BT))
  rising = bool((np.diff(ids_BT, axis=1) > 0).all()) if enc.positions else bool((ids_BT == index_BT).all())
  evidence = f'a text of {case.served} tokens is shown at {ids_BT[0, 0]} .. {ids_BT[0, -1]}' + (', drawn' if enc.positions else '')
  remedy = 'ids must rise within a document, from where training began'
  return judged(STEP, 'what the model sees', rising, evidence, 'positions', remedy)


def laid(case):
  """Prompts of two lengths, padded on the left and on the right, must end with their last token and be counted without padding."""
  short = PROMPT[:3]
  left = (np.asarray([[0, 0, *short], [*PROMPT]]), np.asarray([[0, 0, 1, 1, 1], [1] * 5]))
  right = (np.asarray([[*short, 0, 0], [*PROMPT]]), np.asarray([[1, 1, 1, 0, 0], [1] * 5]))
  wrong = []
  for side, given in (('left', left), ('right', right)):
    job = _job(case, *given)
    ends = all(np.array_equal(row[len(row) - len(t) :], t) for row, t in zip(job.tokens_BT, (short, PROMPT)))
    wrong += [] if ends and job.count_B.tolist() == [3, 5] else [side]
  evidence = 'prompts of 3 and 5 tokens ' + (f'padded on the {" and ".join(wrong)} are read wrongly' if wrong else 'padded on either side')
  remedy = 'one convention: rows end with their text, and its first token stands at position 0 (prompts.py)'
  return judged(STEP, 'padded prompts', not wrong, evidence + ('' if wrong else ' are read as they are'), 'padding', remedy)


def _job(case, tokens_BT, doc_BT):
  return prompts.job(case.config, case.encoding(), tokens_BT, doc_BT, 1, None, (), None)


def cached(case):
  """The ids under which tokens lie in the cache: of the prompt, and of what is decoded after it."""
  batch, new = case.batch, len(case.batch.logp_BN[0])
  drawn = bool(case.encoding().positions)
  prompt, after = [], []
  for row, (text, ids) in enumerate(zip(batch.texts, batch.ids)):
    want = batch.position_BL[row, : len(text) - 1] if drawn else np.arange(len(text) - 1)
    if len(ids) != len(want):
      prompt.append((row, f'{len(ids)} ids for {len(want)} tokens'))
      continue
    start = len(text) - new - 1  # of what decoding feeds token by token: the prompt's last, then its own
    if not np.array_equal(ids[:start], want[:start]):
      prompt.append((row, f'{ids[0]} .. {ids[start - 1]} and not {want[0]} .. {want[start - 1]}'))
    elif not np.array_equal(ids[start:], want[start:]):
      after.append((row, f'{", ".join(map(str, ids[start:]))} and not {", ".join(map(str, want[start:]))}'))
  return [
    _verdict(case, 'prompts in the cache', prompt, 'padding', 'count positions from the first real token, as training rows do'),
    _verdict(case, 'new tokens in the cache', after, 'decode positions', 'a new token stands at the number of tokens before it'),
  ]


def _verdict(case, check, wrong, cause, remedy):
  """A fault where wrong ids change the answers."""
  lengths = ', '.join(str(len(t)) for t in case.batch.texts)
  if not wrong:
    return Finding(STEP, check, 'ok', f"texts of {lengths} tokens in one batch: ids rise by one from each text's own start")
  row, ids = wrong[0]
  error = max(case.batch_error[row] for row, _ in wrong)
  evidence = f'a text of {len(case.batch.texts[row])} tokens has ids {ids}; log-probabilities change by up to {error:.2g} nats'
  if error <= case.logp_tolerance:
    return Finding(STEP, check, 'note', f'{evidence}: a shift that this encoding does not see', remedy=remedy)
  return Finding(STEP, check, 'fault', evidence, cause, remedy)


def kept(case):
  """Keys are cached as they were turned only where a turn depends on the key's own position alone."""
  enc, lengths = case.encoding(), (case.train_length, max(case.served, 2 * case.train_length))
  change = max((turning.changed_by_length(case, record, lengths) for record in case.layers() if record.rotate), default=0.0)
  evidence = f'a key at one position turns {change:.1g} apart in texts of {lengths[0]} and of {lengths[1]} tokens (share of its size)'
  evidence += f'; the cache keeps keys {"as they were turned" if enc.traits.cache == "rotated" else "unturned"}'
  if case.batch and change > turning.EXACT:
    evidence += f'; decoding is {max(case.batch_error):.2g} nats off one forward'
  remedy = "keep raw keys and turn them when read (Traits.cache='raw'), and declare one length for the whole text"
  return judged(STEP, 'kept keys', enc.traits.cache != 'rotated' or change <= turning.EXACT, evidence, 'rotated cache', remedy)
