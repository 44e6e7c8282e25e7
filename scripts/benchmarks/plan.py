"""What a benchmark declares: contestants, and rows that compare what was measured of them."""

import dataclasses
from collections.abc import Callable

from benchmarks import verdict


@dataclasses.dataclass(frozen=True)
class Contestant:
  """Something that takes turns.

  Attributes:
    name: what rows call it.
    module: the file of this folder that has it.
    case: which of that file's cases.
    args: the case's arguments, which are JSON.
    settings: 'same', the process settings of pe_jax, or 'as it comes'.
    process: contestants with the same word here share a process, so that where memory lies favours neither; '': one of its own.
    memory: whether its extra memory is measured.
  """

  name: str
  module: str
  case: str
  args: dict = dataclasses.field(default_factory=dict)
  settings: str = 'same'
  process: str = ''
  memory: bool = False


@dataclasses.dataclass
class Measured:
  """What a group's rounds gave.

  Attributes:
    seconds: {contestant: seconds a call, a number for every round}; the matmul probe is a contestant.
    memory: {contestant: extra bytes, measured a few times after the rounds}.
    facts: {contestant: what its case says of itself}: 'units' (tokens a call), 'flops' a call.
    missing: {contestant: why there are no numbers}.
    others: cores that other processes took during the rounds; None where the system does not tell.
  """

  seconds: dict
  memory: dict = dataclasses.field(default_factory=dict)
  facts: dict = dataclasses.field(default_factory=dict)
  missing: dict = dataclasses.field(default_factory=dict)
  others: float | None = None

  def a_unit(self, name):
    """Seconds a token, or a call where a case counts nothing."""
    return [s / self.facts.get(name, {}).get('units', 1) for s in self.seconds[name]]


@dataclasses.dataclass(frozen=True)
class Value:
  """A row's numbers: `of` makes a list of them, one a round, from what was measured of the contestants `needs`."""

  needs: tuple
  of: Callable[[Measured], list]
  kind: str = 'time'  # 'memory' is not disturbed by other processes


@dataclasses.dataclass(frozen=True)
class Row:
  """A line of the table. `number` is its number in the list of what is to be reached; no gate: the row only reports."""

  number: str
  measure: str
  value: Value
  gate: float | None = None
  target: float | None = None
  at_least: bool = False
  unit: str = ''


@dataclasses.dataclass(frozen=True)
class Group:
  """Contestants that take turns in the same rounds. A turn lasts `turn` seconds at least, or a call; `rounds`: 0 takes the driver's."""

  name: str
  contestants: list
  rows: list
  turn: float = 0.3
  rounds: int = 0


def time_ratio(over, under):
  """Seconds a token (or a call) of one ÷ those of the other, paired within each round."""
  return Value((over, under), lambda m: verdict.paired(m.a_unit(over), m.a_unit(under)))


def speed_ratio(over, under):
  """Tokens a second of one ÷ those of the other."""
  return Value((over, under), time_ratio(under, over).of)


def memory_ratio(over, under):
  """Extra memory of one ÷ that of the other."""
  return Value((over, under), lambda m: verdict.paired(m.memory[over], m.memory[under]), 'memory')


def megabytes(name):
  """Extra memory in MB."""
  return Value((name,), lambda m: [n / 1e6 for n in m.memory[name]], 'memory')


def seconds(name):
  """Seconds a call."""
  return Value((name,), lambda m: m.seconds[name])


def share_of_peak(name, probe='probe'):
  """Model FLOP/s ÷ those of the matmul in the same round, in percent."""

  def of(m):
    flops, most = m.facts[name]['flops'], m.facts[probe]['flops']
    return [100 * (flops / s) / (most / p) for s, p in zip(m.seconds[name], m.seconds[probe])]

  return Value((name, probe), of)


def time_exponent(names, lengths):
  """The exponent b of seconds ∝ length^b, fitted in every round."""
  return Value(tuple(names), lambda m: [verdict.exponent(lengths, s) for s in zip(*(m.seconds[n] for n in names))])


def memory_exponent(names, lengths):
  """The exponent b of extra memory ∝ length^b."""
  return Value(tuple(names), lambda m: [verdict.exponent(lengths, b) for b in zip(*(m.memory[n] for n in names))], 'memory')
