"""What a check of a step found, and the causes that a diagnosis can end with."""

import dataclasses

# In the order in which they are looked at, which is that of the steps.
CAUSES = {
  'tokenizer cut': 'the tokenizer cuts the text',
  'hard limit': 'a hard limit',
  'not finite': 'states that are not finite',
  'positions': 'position ids in rows of training or evaluation',
  'padding': 'positions of padded prompts',
  'decode positions': 'position ids of new tokens in decoding',
  'rotated cache': 'cached keys turned under another length than the text has',
  'mask': 'the causal mask',
  'documents': 'attention across documents of a row',
  'phases': 'rotation phases that are not exact',
  'untrained parameters': 'parameters that training never read',
  'checkpoint': 'the checkpoint, or how it is read',
  'cache': 'decoding through the cache',
  'rows': 'rows of a batch that know each other',
  'untrained': 'the model knows nothing: it was not trained, or its parameters are not read as they were',
  'extrapolation': 'extrapolation: the model was not trained for this length',
  'healthy': 'nothing is wrong',
}


@dataclasses.dataclass(frozen=True)
class Finding:
  """Attributes:
  step: its number, 1 to 5.
  check: what was looked at, in a few words.
  verdict: 'ok', 'fault', or 'note' for what may explain something and is no fault of the code or the setting.
  evidence: what was seen, with numbers.
  cause: of a fault, a key of CAUSES.
  remedy: what to try.
  """

  step: int
  check: str
  verdict: str
  evidence: str
  cause: str = ''
  remedy: str = ''

  def __post_init__(self):
    if self.verdict not in ('ok', 'fault', 'note') or (self.verdict == 'fault') != bool(self.cause) or self.cause not in (*CAUSES, ''):
      raise ValueError(f'{self}: a fault, and nothing else, has a cause, and that is one of {", ".join(CAUSES)}')


def judged(step, check, holds, evidence, cause, remedy):
  """A Finding that is 'ok' or a fault."""
  return Finding(step, check, 'ok', evidence) if holds else Finding(step, check, 'fault', evidence, cause, remedy)
