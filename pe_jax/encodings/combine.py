"""How records are put together: a record that reads its share of the tables, one set of parameters a layer, traits of several."""

import dataclasses

import jax

from pe_jax.encodings.base import Encoding, Traits
from pe_jax.errors import ConfigError


def focus(record, tables, side=lambda side: side):
  """The record as part of a larger one: its functions read `tables(whole)` and `side(where.side)`."""

  def near(where):
    return dataclasses.replace(where, side=side(where.side), qside=side(where.qside))

  def moved(function, wrap):
    return wrap(function) if function else None

  return dataclasses.replace(
    record,
    layer=moved(record.layer, lambda f: lambda n: focus(f(n), tables, side)),
    token=moved(record.token, lambda f: lambda t, x: f(tables(t), x)),
    sides=moved(record.sides, lambda f: lambda t, where: f(tables(t), near(where))),
    rotate=moved(record.rotate, lambda f: lambda t, q, k: f(tables(t), q, k)),
    distance_bias=moved(record.distance_bias, lambda f: lambda t, distance: f(tables(t), distance)),
    bias=moved(record.bias, lambda f: lambda t, where: f(tables(t), near(where))),
    score=moved(record.score, lambda f: lambda t, q, k, where: f(tables(t), q, k, near(where))),
    visible=moved(record.visible, lambda f: lambda t, where: f(tables(t), near(where))),
    scale=moved(record.scale, lambda f: lambda t, where: f(tables(t), near(where))),
    normalise=moved(record.normalise, lambda f: lambda t, s, visible: f(tables(t), s, visible)),
  )


def each_layer(record, num_layers):
  """The record with parameters of its own in each of `num_layers` layers."""
  names = [f'layer_{n}' for n in range(num_layers)]

  def init(key):
    return dict(zip(names, map(record.init, jax.random.split(key, num_layers)), strict=True))

  def layer(n):
    return focus(record, lambda tables: tables[n])

  return Encoding(
    init=init,
    prepare=lambda params, where: [record.tables(params[name], where) for name in names],
    layer=layer,
    traits=record.traits,
  )


def part(record, n):
  """Record n of several: its tables and side values are the n-th of theirs."""

  def pick(whole):
    return None if whole is None else whole[n]

  return focus(record, pick, pick)


def joint_token(parts):
  """`token` of several: a tuple with None where a part has none."""

  def token(tables, x_BTD):
    return tuple(p.token(tables, x_BTD) if p.token else None for p in parts)

  return token if any(p.token for p in parts) else None


def joint_sides(parts):
  """`sides` of several."""

  def sides(tables, where):
    done = [p.sides(tables, where) if p.sides else None for p in parts]
    side, qside = (tuple(getattr(d, name) if d else None for d in done) for name in ('side', 'qside'))
    return dataclasses.replace(where, side=side, qside=qside)

  return sides if any(p.sides for p in parts) else None


def together(records):
  """{'init', 'prepare', 'numbers'} of several records: {'0': …, '1': …} and a list of tables. None where no record has such."""
  learned = [str(n) for n, r in enumerate(records) if r.init]

  def init(key):
    return {n: records[int(n)].init(k) for n, k in zip(learned, jax.random.split(key, len(learned)), strict=True)}

  def prepare(params, where):
    return [r.tables(params.get(str(n), {}), where) for n, r in enumerate(records)]

  def numbers(length_X):
    return {str(n): r.numbers(length_X) for n, r in enumerate(records) if r.numbers}

  given = any(r.numbers for r in records)
  return {'init': init if learned else None, 'prepare': prepare, 'numbers': numbers if given else None}


def joint_traits(records):
  """What holds for several records at once."""
  lengths = [r.traits.max_length for r in records if r.traits.max_length is not None]
  return Traits(
    relative=all(r.traits.relative for r in records),
    length_dependent=any(r.traits.length_dependent for r in records),
    max_length=min(lengths, default=None),
    cache='raw' if any(r.traits.cache == 'raw' for r in records) else 'rotated',
  )


def refuse(record, name, *slots):
  """Refuses an inner record that does something for which the outer one has no place."""
  why = {
    'embed': 'adds a table to the embeddings, before any layer or head',
    'positions': 'draws the positions of the whole model (put it outermost)',
    'schedule': 'is a schedule for the whole model (put it outermost)',
    'layer': 'differs from layer to layer',
  }
  for slot in slots:
    if getattr(record, slot):
      raise ConfigError(f"encoding: '{record.spec}' cannot stand inside {name}(…): it {why[slot]}")
