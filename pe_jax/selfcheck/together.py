"""Seven properties of the contract with one program compiled for an encoding, where pe_jax.selfcheck.properties takes one for each.

Documents that stand alone, in company and behind padding are rows of one batch, and it is run three times: as it is, with other tokens
beside and behind what is looked at, and with all positions shifted. What must be equal to the last bit is compared between runs, at the
same place of the same program; what another place may add up in another order, between rows of one run.
"""

import jax.numpy as jnp
import numpy as np

from pe_jax import model
from pe_jax.encodings.base import Where
from pe_jax.selfcheck import properties, tiny

LENGTH = properties.LENGTH
WHOLE, BESIDE, SECOND, ALONE, RIGHT, LEFT, SHORT = range(7)  # rows
DOCUMENTS = ((LENGTH,), (9, 6, 7), (9, 13), (13,), (18,), (-6, 18), (12,))  # in each row
NAMES = ('causal', 'exact', 'batch', 'packed', 'left pad', 'prefix', 'shift')  # those of properties.PROPERTIES


def tried(spec):
  """{name: function without arguments that gives what its namesake in `properties` gives, or raises AssertionError}."""
  config, enc, params = tiny.made(spec)
  pos, doc = (jnp.concatenate(x) for x in zip(*(tiny.row(*lengths, total=LENGTH) for lengths in DOCUMENTS)))
  given, changed = batches(np.asarray(doc))

  def apply(params, tokens, pos, doc):
    return model.apply(config, enc, params, tokens, Where.forward(pos, doc, config.model.causal))

  forward, relative = properties.quick_jit(apply), enc.traits.relative
  first, other = (np.asarray(forward(params, jnp.asarray(tokens), pos, doc)) for tokens in (given, changed))
  shifted = np.asarray(forward(params, jnp.asarray(given), pos + (5000 if relative else 7), doc))

  def untouched(row, before, there):
    assert not np.array_equal(first[row, there], other[row, there]), 'what stands there has other tokens and the same logits'
    return properties.worst([(other[row, before], first[row, before])])

  def equal(row, where, other_row, other_where):
    return properties.worst([(first[row, where], first[other_row, other_where])])

  def iff(holds, change, what):
    assert holds or change > 1e-3, f'declared {what}, and it changes only {change:.0e}'
    return change if holds else what

  return {
    'causal': lambda: untouched(WHOLE, slice(0, 10), slice(10, None)),
    'exact': lambda: untouched(BESIDE, slice(9, 15), slice(15, 22)),
    'batch': lambda: properties.worst([(other[SECOND:], first[SECOND:])]),  # rows that are as they were, beside two that are not
    'packed': lambda: equal(SECOND, slice(9, 22), ALONE, slice(0, 13)),
    'left pad': lambda: equal(LEFT, slice(6, None), RIGHT, slice(0, 18)),
    'prefix': lambda: iff(not enc.traits.length_dependent, equal(SHORT, slice(0, 12), WHOLE, slice(0, 12)), 'dependent on the length'),
    'shift': lambda: iff(relative, properties.worst([(shifted[WHOLE], first[WHOLE])]), 'not relative'),
  }


def batches(doc_BT):
  """Tokens, int32 (7, LENGTH), and others: in the first row from the tenth on, in the second in both neighbours of the middle document."""
  tokens, other = (np.array(tiny.tokens(len(DOCUMENTS), LENGTH, seed)) for seed in range(2))
  tokens[ALONE] = np.roll(tokens[SECOND], -9)
  tokens[LEFT] = np.roll(tokens[RIGHT], 6)
  tokens[SHORT] = tokens[WHOLE]
  changed = tokens.copy()
  changed[WHOLE, 10:] = other[WHOLE, 10:]
  changed[BESIDE] = np.where(doc_BT[BESIDE] == 2, tokens[BESIDE], other[BESIDE])
  return tokens, changed
