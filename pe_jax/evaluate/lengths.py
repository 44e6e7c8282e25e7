"""The three lengths of a checkpoint under an encoding: accepted without error, computable in a memory, reliable.

They are three questions. An encoding may accept any length, the program for it may fit the memory, and what comes out may be noise.
"""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np

from pe_jax import attention, encodings, loss, model, tasks
from pe_jax.encodings.base import Where
from pe_jax.errors import ConfigError
from pe_jax.memory import exhausted
from pe_jax.statistics import lengths as statistics
from pe_jax.tasks import batches

LONGEST = 2**22  # tokens; beyond that nothing is asked of the compiler


def of_rows(subject, rows, budget=0, margin=statistics.MARGIN, bar=None):
  """A `statistics.lengths.Lengths` for each encoding that has `context` or `task` rows beyond the lengths of training.

  Args:
    subject: the `Subject` that was evaluated.
    rows: result rows; those of other protocols are passed over.
    budget: bytes of memory for `computable`; 0: only what was computed counts.
    margin: nats that a reliable length may cost.
    bar: loss in nats that the model must reach in distribution; None: no gate, and the result says so. A task's gate is exact match.
  """
  protocol, out = 'task' if subject.task else 'context', []
  for asked in dict.fromkeys(r['asked_encoding'] for r in rows if r['protocol'] == protocol):
    mine = sorted((r for r in rows if r['protocol'] == protocol and r['asked_encoding'] == asked), key=lambda r: r['length'])
    reliable = of_task(subject, mine) if subject.task else of_context(subject, mine, margin, bar)
    if reliable:
      end = statistics.first_not_finite(mine, reliable.reference)
      computed = [r['length'] for r in mine if end is None or r['length'] < end]
      fits = computable(subject, asked, computed, 0 if end else budget)
      fits = statistics.Reach(fits.passed, end) if end else fits
      out.append(statistics.Lengths(asked, acceptable(subject, asked), fits, reliable))
  return out


def of_context(subject, rows, margin, bar):
  """The `Reliable` of one encoding's rows by their losses; None where nothing lies beyond training, or nothing says how sure a loss is."""
  train = subject.config.train_length
  end = statistics.first_not_finite(rows, train)
  beyond = [r for r in rows if r['length'] > train and (end is None or r['length'] < end)]
  if not beyond:
    return None
  at_train = next((r for r in rows if r['length'] == train), None)
  if at_train is None:  # its loss was no number
    return None
  reference_U = np.asarray(at_train['by_unit']['nll'])
  if len(reference_U) < 2:  # a single span says nothing of how sure its loss is
    return None
  sum_NU = np.asarray([r['by_unit']['nll'] for r in beyond]) - reference_U
  unit = at_train['by_unit']['unit']
  protocol = f'same targets, last {beyond[0]["span"]}' + (', spans of one document' if unit == 'span' else '')
  gate = None if bar is None else ([at_train['nll']], bar)
  counts = np.asarray([at_train['by_unit']['targets']])
  lengths = [r['length'] for r in beyond]
  found = statistics.of_losses(lengths, sum_NU[:, None], counts, train, protocol, in_distribution=gate, margin=margin)
  return statistics.ended(found, end)


def of_task(subject, rows):
  """The same by exact matches, as a share of those at the longest length that training reached; None where none lies on either side."""
  reach = batches.trained_lengths(tasks.make(subject.config.data.name), subject.config.data)[-1]
  end = statistics.first_not_finite(rows, reach)
  rows = [r for r in rows if end is None or r['length'] < end]
  inside, beyond = ([r for r in rows if (r['length'] <= reach) == within] for within in (True, False))
  if not inside or not beyond:
    return None
  right_NRU, trials_NRU = (np.asarray([[r['by_unit'][name]] for r in beyond]) for name in ('right', 'trials'))
  right_RU, trials_RU = (np.asarray([inside[-1]['by_unit'][name]]) for name in ('right', 'trials'))
  if right_RU.size < 2:  # a single sample says nothing of how sure its match is
    return None
  numbers, at = ([r['length'] for r in beyond], right_NRU, trials_NRU, right_RU, trials_RU, reach), inside[-1]['length']
  what, chance = statistics.exact_match(inside[-1]['task'], at, reach), inside[-1]['chance_exact_match']
  return statistics.ended(statistics.of_accuracies(*numbers, what, chance=chance), end)


def acceptable(subject, spec):
  """The Reach of what raises no error: the positions the encoding has."""
  spec = encodings.parse(spec)
  rows = encodings.make(subject.at_length(spec, subject.config.train_length), model.dims(subject.config)).traits.max_length
  if rows is None or not subject.task:
    return statistics.Reach() if rows is None else statistics.Reach(rows, rows + 1)
  lengths = subject.task.lengths(1, rows + subject.task.shortest)
  fits = [n for n in lengths if subject.task.positions(n) <= rows]
  return statistics.Reach(fits[-1] if fits else None, next((n for n in lengths if n not in fits), None))


def computable(subject, spec, computed, budget=0):
  """The Reach of what fits into `budget` bytes, by the compiler's own account of one row: of the lengths that were `computed`, and if the
  longest fits, of its doubles.

  Without a budget what has been computed is the answer, and nothing has failed.
  """
  passed = computed[-1]
  if subject.task:  # its rows are short
    return statistics.Reach(passed)
  if budget and memory(subject, encodings.parse(spec), passed) > budget:
    fitting = itertools.takewhile(lambda n: memory(subject, encodings.parse(spec), n) <= budget, computed)
    passed = max(fitting, default=None)
    return statistics.Reach(passed, min(n for n in computed if n > (passed or 0)))
  while budget and passed * 2 <= LONGEST:
    try:
      if memory(subject, encodings.parse(spec), passed * 2) > budget:
        return statistics.Reach(passed, passed * 2)
    except ConfigError:  # a table of positions ends here
      return statistics.Reach(passed, passed * 2)
    passed *= 2
  return statistics.Reach(passed)


def memory(subject, spec, length):
  """Bytes that the compiled forward of one row of `length` tokens with its losses takes beside the process: arguments, results, work."""
  config, enc = attention.reading(subject.config), subject.encoding(subject.at_length(spec, length), length)

  def score(params, tokens, pos, doc):
    x_BTD, _ = model.hidden(config, enc, params, tokens, enc.placed(Where.forward(pos, doc, config.model.causal)))
    return loss.each(x_BTD, *model.head(config, params), tokens)

  row = jax.ShapeDtypeStruct((1, length), jnp.int32)
  try:
    need = jax.jit(score).lower(subject.params, row, row, row).compile().memory_analysis()
  except jax.errors.JaxRuntimeError as error:  # a TPU's compiler says by it that there is not so much
    if exhausted(error):
      return math.inf
    raise
  return need.temp_size_in_bytes + need.argument_size_in_bytes + need.output_size_in_bytes
