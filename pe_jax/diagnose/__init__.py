"""Why does a checkpoint degrade at a long length? Five steps in an order in which each makes sense only if those before it hold.

Hard limits, position ids, the causal mask, the position mechanism itself, and length against attention. No step stops the others: what
they find stands side by side, and the cause that is named is that of the first fault. Where nothing is at fault, a model that is no better
than blind guessing inside its training length is untrained, or read wrongly; where the loss beyond it is higher all the same, the model
was not trained for that.
"""

import dataclasses

import jax

from pe_jax.diagnose import length_or_attention, limits, mask, mechanism, positions
from pe_jax.diagnose.case import Case as Case
from pe_jax.diagnose.case import of_run as of_run
from pe_jax.diagnose.finding import CAUSES, Finding

STEPS = (limits, positions, mask, mechanism, length_or_attention)


@dataclasses.dataclass(frozen=True)
class Diagnosis:
  """Attributes:
  encoding, trained_encoding: as read, and as trained.
  train_length, length: tokens.
  findings: of all steps, in order.
  cause: a key of CAUSES.
  sentence: the cause with its evidence.
  remedy: what to try.
  """

  encoding: str
  trained_encoding: str
  train_length: int
  length: int
  findings: tuple[Finding, ...]
  cause: str
  sentence: str
  remedy: str


def diagnose(case, advance=lambda title: None):
  """The Diagnosis of a Case. `advance` is told each step's title before it begins."""
  found = tuple(findings(case, advance))
  return Diagnosis(case.encoding(case.length).spec, case.config.encoding, case.train_length, case.length, found, *likely(found))


def findings(case, advance=lambda title: None):
  """Yields what the steps find, in order; a step is taken when its first finding is asked for."""
  for step in STEPS:
    advance(step.TITLE)
    with jax.default_matmul_precision('highest'):  # a coarse product would look like a fault
      found = step.findings(case)
    yield from found


def likely(findings):
  """(cause, sentence, remedy): of the first fault, else of the loss inside the training length and beyond it."""
  fault = next((f for f in findings if f.verdict == 'fault'), None)
  if fault:
    return fault.cause, f'{CAUSES[fault.cause]} ({fault.evidence})', fault.remedy
  inside = next((f for f in findings if f.check == 'loss inside' and f.verdict == 'note'), None)
  if inside:
    return 'untrained', f'{CAUSES["untrained"]} ({inside.evidence})', inside.remedy
  beyond = next((f for f in findings if f.check == 'losses beyond'), None)
  if beyond is None or beyond.verdict == 'ok':
    measured = 'no check found a fault' + (', and longer context costs nothing' if beyond else '')
    return 'healthy', f'{CAUSES["healthy"]}: {measured}', ''
  reading = next((f.remedy for f in findings if f.check == 'other readings'), '')
  remedy = '; '.join(filter(None, [beyond.remedy, reading, 'train at this length, or crop to the training length']))
  return 'extrapolation', f'{CAUSES["extrapolation"]} ({beyond.evidence})', remedy
