"""Records of how far an encoding goes: between which tested lengths a limit lies, if the model is good enough to say, what was tested."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Reach:
  """The longest tested length that passed and the first that failed; None where there is none. Neither: no limit."""

  passed: int | None = None
  failed: int | None = None

  def text(self, unit=None):
    """'512', '>= 512' (none failed), '< 96' (none passed) or 'any'; with `unit`, the training length, also as a multiple of it."""
    if self.passed is None and self.failed is None:
      return 'any'
    length, sign = (self.failed, '< ') if self.passed is None else (self.passed, '>= ' if self.failed is None else '')
    return f'{sign}{length}' + (f' ({length / unit:.3g} L)' if unit else '')


@dataclasses.dataclass(frozen=True)
class Gate:
  """Whether a model is good enough in distribution: every run must reach the bar, since to leave out runs is to pick the best.

  `above` says which side is good: False for losses, True for accuracies. `why` is empty where the gate is passed.
  """

  value_R: tuple
  bar: float
  above: bool
  why: str

  @property
  def passed(self):
    return not self.why


@dataclasses.dataclass(frozen=True)
class Reliable:
  """How far an encoding can be trusted under one protocol, with the numbers that say so.

  `estimates` and `bounds` belong to `lengths`: D(n) and its upper bound in nats, or the share of the accuracy and its lower bound. `bounds`
  are the estimates themselves where alpha is None (published tables). `reach` and `useful` are None where the gate failed; `useful`
  is None for accuracies and published tables too.
  """

  metric: str
  protocol: str
  reference: int
  threshold: float
  alpha: float | None
  lengths: tuple
  estimates: tuple
  bounds: tuple
  reach: Reach | None
  useful: Reach | None = None
  gate: Gate | None = None
  runs: int | None = None
  documents: int | None = None
  warnings: tuple = ()

  def text(self):
    """One line."""
    if self.reach is None:
      return f'reliable: gate failed, {self.gate.why}'
    sure = 'point estimates' if self.alpha is None else f'{1 - self.alpha:.0%} bound, {self.runs} runs, {self.documents} documents'
    useful = f', useful {self.useful.text(self.reference)}' if self.useful else ''
    return f'reliable {self.reach.text(self.reference)}{useful} by {self.rule()} ({self.protocol}, {sure})'

  def rule(self):
    """What a length must pass."""
    return f'D(n) <= {self.threshold:g} nats' if self.metric == 'loss' else f'acc(n)/acc(L) >= {self.threshold:g}'


@dataclasses.dataclass(frozen=True)
class Lengths:
  """Acceptable: no error. Computable: finite within the memory. Reliable: see above. The first two are measured elsewhere."""

  encoding: str
  acceptable: Reach
  computable: Reach
  reliable: Reliable

  def text(self):
    """One line with the three lengths."""
    unit = self.reliable.reference
    return f'{self.encoding}: acceptable {self.acceptable.text(unit)}, computable {self.computable.text(unit)}, {self.reliable.text()}'

  def as_json(self):
    """Everything, as strict JSON can hold it; read back by `json.loads` alone."""
    return dataclasses.asdict(self)
