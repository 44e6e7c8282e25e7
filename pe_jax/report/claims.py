"""docs/claims.md from docs/data/claims.toml: what two source documents claim, whether it is so, and what here shows it.

The data is {topic: {id: claim}}; a claim has

  claim     what the source says, in our words
  verdict   one of VERDICTS
  why       the reason, the condition, or what is right instead
  shown_by  pointers into the tree (pointers.py)
  missing   what nothing in the tree shows yet; may be left out
"""

import pathlib
import re
import textwrap
import tomllib

from pe_jax.errors import DataError
from pe_jax.report import pointers

VERDICTS = {
  'true': 'as it stands',
  'true with conditions': 'imprecise or incomplete; the condition is given',
  'wrong': 'what is right is given',
  'a definition': 'nothing to be true or false: a name, a formula, a distinction',
  'a protocol': 'a way to measure or to look for a fault',
  'advice': 'what to do or to beware of',
  'not shown here': 'nothing in this repository shows it; what the literature reports is given',
}
IDS = [*(f'A{n}' for n in range(1, 53)), *(f'B{n}' for n in range(1, 69))]
FIELDS = {'claim', 'verdict', 'why', 'shown_by', 'missing'}
WIDTH = 140
INTRODUCTION = """
# Claims, and what shows them

Everything that two documents on positional encodings and length extrapolation claim, one entry a claim, in our words: A1–A52 of the first,
which is a set of notes from sinusoidal tables to YaRN, B1–B68 of the second, a long article on absolute positions, RoPE, ALiBi and
extrapolation. Each has a verdict, the reason, and what in this repository shows it.

*Tests* are run by `make test`. *Examples* are code in the guide whose printed output the tests compare. *Measured* are numbers of our own
runs, small ones, with their date and machine. *See* is prose. What is said of published results has its paper; nothing here repeats them.

This page is made from [docs/data/claims.toml](data/claims.toml) by `python scripts/claims.py`; `tests/test_claims.py` fails when the two
differ or a pointer leads nowhere.
"""
LEADS = {
  'test': 'Test',
  'example': 'Example',
  'command': 'Command',
  'measured': 'Measured',
  'figure': 'Figure',
  'code': 'Code',
  'doc': 'See',
}


def read(path: pathlib.Path) -> dict:
  """{topic: {id: claim}}, checked: every id once, every field there and known."""
  try:
    topics = tomllib.loads(path.read_text(encoding='utf-8'))
  except tomllib.TOMLDecodeError as error:
    raise DataError(f'{path.name}: {error}') from error
  seen = [name for claims in topics.values() for name in claims]
  if wrong := sorted({*(n for n in IDS if seen.count(n) != 1), *(n for n in seen if n not in IDS)}):
    raise DataError(f'{path.name}: not there exactly once, or no claim of the two documents: {", ".join(wrong)}')
  for name, claim in flat(topics).items():
    if set(claim) | {'missing'} != FIELDS or claim['verdict'] not in VERDICTS:
      raise DataError(f'{path.name}: {name} needs the fields {", ".join(sorted(FIELDS))} (missing may be left out) and a known verdict')
    if claim['verdict'] == 'not shown here' and not claim.get('missing'):
      raise DataError(f'{path.name}: {name} is not shown here and does not say what is missing')
  return topics


def flat(topics: dict) -> dict:
  """{id: claim}."""
  return {name: claim for claims in topics.values() for name, claim in claims.items()}


def faults(root: pathlib.Path, topics: dict) -> list:
  """Sentences on pointers that lead nowhere and on verdicts that nothing bears out."""
  found = []
  for name, claim in flat(topics).items():
    found += [f'{name}: {said}' for p in claim['shown_by'] if (said := pointers.fault(root, p))]
    if claim['verdict'] in ('true', 'true with conditions', 'wrong') and not any(p.startswith(pointers.SHOWING) for p in claim['shown_by']):
      found.append(f'{name}: {claim["verdict"]}, and neither a test, an example, a command nor a measurement shows it')
    if not claim['shown_by'] and claim['verdict'] != 'not shown here':
      found.append(f'{name}: no pointer')
  return found


def page(root: pathlib.Path, topics: dict) -> str:
  """The Markdown of docs/claims.md."""
  claims = flat(topics)
  lines = [INTRODUCTION.strip(), '', '| verdict | | claims |', '|---|---|--:|']
  lines += [f'| {v} | {m} | {sum(c["verdict"] == v for c in claims.values())} |' for v, m in VERDICTS.items()]
  missing = [n for n, c in claims.items() if c.get('missing')]
  lines += ['', *_wrapped(f'{len(missing)} entries name something that is not shown yet: {", ".join(sorted(missing, key=IDS.index))}.', '')]
  wrong = {topic: [n for n, c in some.items() if c['verdict'] == 'wrong'] for topic, some in topics.items()}
  lines += ['', 'What is wrong there, by topic:', '']
  lines += [f'- [{topic}](#{_anchor(topic)}): {", ".join(ids)}' for topic, ids in wrong.items() if ids]
  for topic, some in topics.items():
    lines += ['', f'## {topic}', '']
    for name, claim in some.items():
      parts = [f'**{name}** {claim["claim"]}', f'**{claim["verdict"].capitalize()}.** {claim["why"]}', _pointers(root, claim['shown_by'])]
      parts += [f'*Not shown yet:* {claim["missing"]}'] if claim.get('missing') else []
      for n, part in enumerate(filter(None, parts)):
        lines[-1] += '<br>' if n else ''
        lines += _wrapped(part, '  ', '  ' if n else '- ')
  return '\n'.join(lines) + '\n'


def _pointers(root, given):
  """'Test x, y. Example z.': pointers of a kind together, in the order of LEADS."""
  of_kind = {kind: [p.partition(': ')[2] for p in given if p.startswith(f'{kind}: ')] for kind in LEADS}
  return ' '.join(f'*{lead}* {", ".join(_link(root, kind, t) for t in of_kind[kind])}.' for kind, lead in LEADS.items() if of_kind[kind])


def _link(root, kind, target):
  if kind == 'command':
    return f'`{target}`'
  path, _, name = target.partition('::' if kind in ('test', 'code') else '#')
  to = path.removeprefix('docs/') if path.startswith('docs/') else f'../{path}'
  if kind in ('test', 'code'):
    return f'[`{name or path}`]({to})'
  if kind == 'figure':
    return f'[{pathlib.PurePath(path).name}]({to})'
  heading = re.sub(r'^[\d.]+ ', '', pointers.sections(root / path)[name][0].replace('`', ''))
  return f'[{pathlib.PurePath(path).stem}: {heading}]({to}#{name})'


def _wrapped(text, later, first=''):
  """Lines of at most WIDTH, arXiv ids made links, commands and links left whole."""
  text = re.sub(r'arXiv:(\d{4}\.\d{5})', r'[\1](https://arxiv.org/abs/\1)', text)
  text = re.sub(r'`[^`]*`|\[[^\]]*\]\([^)]*\)', lambda m: m[0].replace(' ', '\0'), text)
  wrap = textwrap.wrap(
    text, WIDTH - len('<br>'), initial_indent=first, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
  )
  return [line.replace('\0', ' ') for line in wrap]


def _anchor(heading):
  return re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-')
