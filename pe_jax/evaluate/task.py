"""Synthetic tasks: for each length a fixed test set of samples of exactly that length, the same whatever seed the run had.

Teacher-forced: the answer's tokens are read as they should be, so an exact match is what greedy decoding would give. Loss and accuracies
are over answers alone. At lengths that training reaches the samples are such as it cannot have seen (pe_jax/tasks/samples.py); `disjoint`
says where there were too few for that. `length` is what the task counts; `row_length` is the number of positions of a row, and the length
that an encoding is told.

Beside the chance of a guesser stands, for a task whose optimal predictor is known, the loss above it. A task that has a format is also
decoded greedily: the share of answers that keep it, and the share that name what is not in the prompt.
"""

import itertools

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from pe_jax import attention, decode, hosts, model, parallel, prompts, tasks
from pe_jax import loss as losses
from pe_jax.encodings.base import Where
from pe_jax.evaluate import memory, score
from pe_jax.evaluate.result import Measured, targets
from pe_jax.statistics.proportions import wilson
from pe_jax.tasks import batches, samples

DECODED = 64  # prompts at a time
GROUPS = 25  # of samples, which intervals draw anew


def tokens(subject, lengths, options):
  """How many are read for one encoding, without what is generated, by the number of positions of a row."""
  del options
  widths = list(map(subject.positions, lengths))
  return {width: subject.info['samples'] * width * widths.count(width) for width in widths}


def measure(subject, spec, lengths, options, advance):
  """Yields a Measured for each length."""
  del options
  task, config = subject.task, attention.reading(subject.config)
  trained_to = batches.trained_lengths(tasks.make(config.data.name), config.data)[-1]
  for length in lengths:
    test = samples.test_set(task, subject.info['split'], length, subject.info['samples'], trained_to)
    width = task.positions(length)
    rows, at_length = samples.rows(test.samples, width, task.bos), subject.at_length(spec, width)
    enc = subject.encoding(at_length, width)
    nll_BT, right_BT = teacher_forced(config, enc, subject.params, rows, subject.work(width, advance))
    found = accuracies(task, right_BT, rows.weight_BT, test.distinct)
    found |= {'task': task.spec, 'row_length': width, 'documents': len(test.samples), 'documents_sha256': test.sha256}
    found |= {'disjoint': test.disjoint, 'distinct_samples': test.distinct}
    if task.floor:
      found |= above_optimum(task, test.samples, nll_BT, rows.weight_BT)
    if task.judge and np.isfinite(nll_BT).all():
      found |= verdicts(task, test.samples, generated(config, enc, subject.params, task, test.samples))
    yield Measured(length, at_length, nll_BT.sum(0), rows.weight_BT.sum(0, dtype=np.float64), targets(subject, rows), found)


def teacher_forced(config, enc, params, rows, advance=lambda tokens: None):
  """(weighted nll float64, whether the likeliest token is the target), each (rows, positions). Rows are spread over all devices."""
  grid = jax.make_mesh((len(jax.devices()),), ('data',), axis_types=(AxisType.Auto,))
  params, split = hosts.place(params, NamedSharding(grid, P())), NamedSharding(grid, P('data'))
  size = -(-max(1, min(score.TOKENS_A_BATCH // rows.tokens_BT.shape[1], len(rows))) // grid.size) * grid.size

  def read(params, batch):
    where = enc.placed(Where.forward(batch['pos'], batch['doc'], config.model.causal, single=True), batch['row'])
    logits_BTV = model.apply(config, enc, params, batch['tokens'], where)
    return losses.nll(logits_BTV, batch['targets']) * batch['weight'], logits_BTV.argmax(-1) == batch['targets']

  read, parts = jax.jit(parallel.within(grid, read)), []
  for n, part in enumerate(rows.batches(size)):
    batch = hosts.place(score.as_batch(part, n * size), split)
    if not parts:  # all batches have one shape
      read = read.lower(params, batch).compile()
      memory.check(read, rows.tokens_BT.shape[1])
    parts.append(hosts.fetch(read(params, batch)))
    advance(part.tokens_BT.size)
  nll_BT, right_BT = (np.concatenate(column)[: len(rows)] for column in zip(*parts))
  return nll_BT.astype(np.float64), right_BT


def accuracies(task, right_BT, weight_BT, distinct):
  """Exact match with its interval, accuracy of tokens, what a guesser has of both, and how many tokens come before the first wrong one.

  The interval is that of `distinct` trials: a sample that comes again says nothing new.
  """
  answer_BT = weight_BT > 0
  unbroken_BT = np.logical_and.accumulate(right_BT | ~answer_BT, axis=1)
  exact_B, answers_B = (right_BT | ~answer_BT).all(1), answer_BT.sum(1)
  token_chance, exact_chance = task.chance(answers_B)
  low, high = map(float, wilson(exact_B.mean() * distinct, distinct))
  return {
    'samples': len(exact_B),
    'exact_match': float(exact_B.mean()),
    'exact_match_low': low,
    'exact_match_high': high,
    'token_accuracy': float((right_BT & answer_BT).sum() / answer_BT.sum()),
    'correct_prefix': float((unbroken_BT & answer_BT).sum(1).mean()),
    'chance_exact_match': exact_chance,
    'chance_token_accuracy': token_chance,
    'by_unit': by_group(exact_B),
  }


def by_group(right_B):
  """Right samples and samples in each of up to GROUPS groups of neighbours."""
  groups = np.array_split(right_B, min(GROUPS, len(right_B)))
  return {'unit': 'group', 'right': [int(g.sum()) for g in groups], 'trials': [len(g) for g in groups]}


def above_optimum(task, test, nll_BT, weight_BT):
  """The optimal predictor's loss on the same samples, the loss above it, and that by ranges of positions that double."""
  excess_T, targets_T, floor = np.zeros(nll_BT.shape[1]), weight_BT.sum(0, dtype=np.float64), 0.0
  for (tokens, answer), nll_T in zip(test, nll_BT):
    best = task.floor(tokens) * answer
    floor += best.sum()
    excess_T += nll_T
    excess_T[: len(best)] -= best
  edges = [0, *(2**i for i in range(1, len(excess_T).bit_length())), len(excess_T)]
  ranges = [(a, b, excess_T[a:b].sum(), targets_T[a:b].sum()) for a, b in itertools.pairwise(edges)]
  return {
    'optimal_nll': float(floor / targets_T.sum()),
    'nll_above_optimum': float(excess_T.sum() / targets_T.sum()),
    'above_optimum_buckets': [{'start': a, 'end': b, 'nll': float(e / n), 'targets': int(n)} for a, b, e, n in ranges if n],
  }


def generated(config, enc, params, task, test):
  """A list of answers (token ids, up to '.' and with it) that greedy decoding gives to the samples' prompts."""
  asked = [np.append(task.bos, tokens[~answer]) for tokens, answer in test]
  longest = max(int(answer.sum()) for _, answer in test)
  answers = []
  for start in range(0, len(asked), DECODED):
    part = asked[start : start + DECODED]
    part = part + [part[-1]] * (min(DECODED, len(asked)) - len(part))  # one compiled shape
    row_B = np.arange(start, start + len(part))
    found = decode.generate(config, enc, params, *prompts.padded(part), new_tokens=longest, stop=(task.stop,), row_B=row_B)
    answers += [ids[:count].tolist() for ids, count in zip(found.tokens, found.count)]
  return answers[: len(asked)]


def verdicts(task, test, answers):
  """Shares of generated answers that keep the format, that name what is not in the prompt, and that are right."""
  prompts_ = [tokens[~answer].tolist() for tokens, answer in test]
  verdict = np.asarray([task.judge(prompt, answer) for prompt, answer in zip(prompts_, answers)])
  right = [answer == tokens[mask].tolist() for answer, (tokens, mask) in zip(answers, test)]
  return {
    'format_compliance': float(verdict[:, 0].mean()),
    'unsupported_answers': float(1 - verdict[:, 1].mean()),
    'generated_exact_match': float(np.mean(right)),
  }
