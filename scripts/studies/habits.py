"""What the language models of language.py have made of their positions: distances learned from a table, rows that were never trained,
little data, and the texts that they write. As in mechanisms.py nothing is trained here and nothing has a threshold.
"""

import jax
import jax.numpy as jnp
import numpy as np

from pe_jax import attention, data, decode, evaluate, model, probes, sampling
from pe_jax.probes import forward, text
from pe_jax.probes.attention import rows as attention_rows
from studies.language import FEW, FEW_FILES, L
from studies.mechanisms import loss, scores, windows

TEXTS = 16
UNTRAINED = 'learned(overflow="random")'


def little_data(runs):
  """Tables trained on few files, many times over: the loss on those files and on unseen ones, and which table does better."""
  for few, name in FEW.items():
    nll = {
      split: runs[few].evaluate([L], protocols=['nonoverlapping'], split=split, max_targets=50_000)[0]['nll'] for split in ('train', 'test')
    }
    yield 'A15', f'{name}, trained on {FEW_FILES} files: loss on unseen files above that on its own', nll['test'] - nll['train'], 'nats'
  for files, arms in ((f'{FEW_FILES} files', list(FEW)), ('all files', list(FEW.values()))):
    fixed, learned = (loss(runs[arm], runs[arm].encoding(), windows(runs[arm], L)) for arm in arms)
    yield 'A16', f'trained on {files}: loss of the learned table at L above that of the sinusoidal one', learned - fixed, 'nats'


def learned_distance(runs):
  """A sinusoidal table before and after training: what the distance explains of the positional term of a score, and a head that looks one
  token back.
  """
  run = runs['sinusoidal']
  enc = run.encoding()
  for when, params in (('at initialisation', model.init(run.config, enc, jax.random.PRNGKey(run.config.seed))), ('trained', run.params)):
    s_HTS = scores(run, params)['position of the query x position of the key'].mean(0)
    yield 'B21', f'sinusoidal {when}: share of the positional term in layer 1 that the distance explains', by_distance(s_HTS), ''
    back_TS = np.eye(L // 4, L, L - L // 4 - 1, dtype=bool)
    most = shares(run, enc, params, L, back_TS).max()
    yield 'B21', f'sinusoidal {when}: attention on the token before, the most of any head', most, ''


def by_distance(s_HTS):
  """Share of the variance over the pairs of a text that is between distances, the mean of heads."""
  i_T = np.arange(s_HTS.shape[1])
  seen_TS = i_T[:, None] >= i_T
  back_P, s_HP = (i_T[:, None] - i_T)[seen_TS], s_HTS[:, seen_TS]
  mean_HD = np.stack([np.bincount(back_P, s_P) for s_P in s_HP]) / np.bincount(back_P)
  return float((mean_HD[:, back_P].var(1) / s_HP.var(1)).mean())


def shares(run, enc, params, length, seen_TS):
  """(layers, heads): attention of the last T queries on the keys that `seen_TS` picks, the mean of queries and texts."""
  subject = evaluate.subject(run.config, params)

  def read(config, params, tokens_BT, where):
    given = model.watched(config, enc, params, tokens_BT, where)[1]
    layers = attention_rows(config, enc, params, where, given, length - len(seen_TS), len(seen_TS))
    return jnp.stack([jnp.sum(weight_BHTS, axis=-1, where=seen_TS[None, None]).mean(-1) for weight_BHTS in layers], axis=1)

  return forward.reader(subject, enc, read)(text.ends(subject, [length], TEXTS)[0][length]).mean(0)


def untrained_rows(runs):
  """Whether queries whose rows were never trained look at keys whose rows were."""
  run, queries = runs['learned'], L // 4
  trained_TS = np.broadcast_to(np.arange(2 * L) < L, (queries, 2 * L))
  share = shares(run, run.encoding(UNTRAINED, 2 * L), run.params, 2 * L, trained_TS).mean()
  of_keys = np.mean([L / (i + 1) for i in range(2 * L - queries, 2 * L)])
  claim = f'learned table with random rows added: attention of {2 * L - queries}-{2 * L - 1} on keys below {L} ÷ their share of the keys'
  yield 'B40', claim, share / of_keys, ''


def repeated(runs):
  """Texts of 8 L tokens: the last window of L beside the first, in 4-grams that the window has twice."""
  for claim, arm, spec in (('A36', 'rope', None), ('A36', 'alibi', None), ('B40', 'learned', UNTRAINED)):
    rows = runs[arm].probe([8 * L], ['repetition'], spec and [spec], options=probes.Options(window=L, prompts=TEXTS))
    of = {row['text']: row['windows'] for row in rows}
    for kind in ('sampled', 'greedy', 'corpus'):
      value = of[kind][-1]['seq_rep_4'] - of[kind][0]['seq_rep_4']
      yield claim, f'{arm}, {kind} text: repeated 4-grams in the last {L} of {8 * L} tokens above those in the first {L}', value, ''


def judged(runs):
  """Sampled texts of 8 L tokens, read by a model that never reads beyond L: the loss of their last L tokens beside that of the first L."""
  judge, prompt = runs['alibi, steeper'], L // 2
  for claim, arm, spec in (('A36', 'rope', None), ('A36', 'alibi', None), ('B40', 'learned', UNTRAINED)):
    run = runs[arm]
    start_BT = windows(run, 8 * L).tokens_BT[:TEXTS, :prompt]
    given = attention.reading(run.config), run.encoding(spec, 8 * L), run.params, start_BT
    key = jax.random.PRNGKey(run.config.seed)
    new_BN = decode.generate(*given, new_tokens=8 * L - prompt, sampler=sampling.sampler(1.0), key=key).tokens
    first, last = (
      loss(judge, judge.encoding(), data.packing.windows(list(np.asarray(part_BN)), L, None))
      for part_BN in (new_BN[:, : L + 1], new_BN[:, -L - 1 :])
    )
    words = f'{arm}, sampled text of {8 * L} tokens: loss of its last {L} under the steeper ALiBi model, above that of its first {L}'
    yield claim, words, last - first, 'nats'


STUDIES = (little_data, learned_distance, untrained_rows, repeated, judged)
