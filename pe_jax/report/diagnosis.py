"""A diagnosis as text."""

import textwrap

from pe_jax.diagnose import STEPS

WIDTH = 140
MARKS = {'ok': 'ok', 'note': 'note', 'fault': 'FAULT'}


def text(diagnosis):
  """Each step with what was found, then the most likely cause."""
  d = diagnosis
  read = '' if d.encoding == d.trained_encoding else f' (trained as {d.trained_encoding})'
  lines = [f'{d.encoding}{read}, trained at {d.train_length} tokens, read at {d.length}']
  for step in STEPS:
    lines += ['', f'{step.STEP}. {step.TITLE}']
    for f in d.findings:
      if f.step == step.STEP:
        lines.append(_wrapped(f'  {MARKS[f.verdict]:<6}', f'{f.check}: {f.evidence}'))
        lines += [_wrapped(' ' * 8, f'try: {f.remedy}')] if f.remedy else []
  lines += ['', _wrapped('', f'Most likely: {d.sentence}.')]
  return '\n'.join(lines + ([_wrapped('', f'Try: {d.remedy}.')] if d.remedy else []))


def _wrapped(head, body):
  return textwrap.fill(body, WIDTH, initial_indent=head, subsequent_indent=' ' * 8, break_long_words=False, break_on_hyphens=False)
