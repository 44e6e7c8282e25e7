"""Several encodings at once: stack(rope, alibi) turns queries and keys and adds a bias.

Tables are added one after the other, biases add up, a key must be visible to all, temperatures multiply. Only one of them may turn queries
and keys, replace the score or replace the softmax.
"""

import functools
import operator

from pe_jax.encodings.base import Encoding
from pe_jax.encodings.combine import joint_sides, joint_token, joint_traits, part, refuse, together
from pe_jax.errors import ConfigError


def encoding(dims, *inner):
  """The record."""
  return several('stack', [one(dims) for one in inner], dims.num_layers)


def several(name, records, num_layers):
  """One record of all, for the wrapper called `name`."""
  for record in records:
    refuse(record, name, 'positions', 'schedule')

  def embed(params, x_BTD, where):
    for n, record in enumerate(records):
      x_BTD = record.embed(params.get(str(n), {}), x_BTD, where) if record.embed else x_BTD
    return x_BTD

  def layer(n):
    return merge(name, [part(record.at_layer(n), m) for m, record in enumerate(records)])

  for n in range(num_layers):
    layer(n)  # what cannot be put together is refused here
  embed = embed if any(r.embed for r in records) else None
  return Encoding(**together(records), embed=embed, layer=layer, traits=joint_traits(records))


def merge(name, records):
  """One layer's record of all; each reads its own share of tables and side values."""

  def only(slot):
    have = [r for r in records if getattr(r, slot)]
    if len(have) > 1:
      what = {'rotate': 'turn queries and keys', 'score': 'replace the score', 'normalise': 'replace the softmax'}[slot]
      raise ConfigError(f"encoding: '{have[0].spec}' and '{have[1].spec}' both {what}; {name}(…) takes one that does")
    return getattr(have[0], slot) if have else None

  def all_of(slot, join):
    have = [getattr(r, slot) for r in records if getattr(r, slot)]
    return (lambda *args: functools.reduce(join, [f(*args) for f in have])) if have else None

  return Encoding(
    token=joint_token(records),
    sides=joint_sides(records),
    **{slot: only(slot) for slot in ('rotate', 'score', 'normalise')},
    **{slot: all_of(slot, operator.add) for slot in ('distance_bias', 'bias')},
    visible=all_of('visible', operator.and_),
    scale=all_of('scale', operator.mul),
    traits=joint_traits(records),
  )
