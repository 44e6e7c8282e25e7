"""The commands that give a run and its evaluation again."""

import os
import pathlib
import shlex

from pe_jax import windows
from pe_jax.names import OWN_TEXT
from pe_jax.report.readings import task_of
from pe_jax.report.rows import whole


def path_of(run):
  """The run's folder, from here if it lies below."""
  absolute = os.path.abspath(run.path)
  relative = os.path.relpath(absolute)
  return pathlib.PurePath(absolute if relative.startswith('..') else relative).as_posix()


def train(run):
  """Trains the same configuration into a folder beside the run's."""
  path = path_of(run)
  flags = (f'--config={path}/config.json', f'--workdir={path}_again')
  return ' '.join(['python train.py', *map(_quoted, flags)])


def evaluate(run):
  """One command for each evaluation with a label, whose arguments are known, then for what else was measured.

  Of the rest one for each set of lengths that encodings and protocols, or probes, were evaluated at.
  """
  out = [_eval(run, [argument.removeprefix('--') for argument in given]) for given in run.evaluations.values()]
  grids, task = {}, task_of(run.flat)
  for row in run.rows:
    if row.get('label') in run.evaluations:
      continue
    flag = 'protocols' if row.get('protocol') else 'probes'
    # Of one evaluation all strides are a quarter, or one number.
    stride = row.get('stride') if row['measure'] == 'sliding' and row.get('stride') != windows.stride(row['length']) else None
    # Options that rows tell, and of which an evaluation has one.
    own = {'stride': stride} if whole(stride) else {}
    if row['measure'] == 'task' and isinstance(row.get('task'), str) and row['task'] != task:
      own['task'] = row['task']
    if flag == 'probes' and whole(row.get('probe_seed')) and row['probe_seed']:
      own['seed'] = row['probe_seed']
    if flag == 'probes' and isinstance(row.get('floor'), float) and row['floor'] > 0:
      own['options'] = f'floor={row["floor"]:g}'
    key = (flag, row['asked_encoding'], row['measure'], row.get('split'), row.get('step'), *own.items())
    spot = grids.setdefault(key, {'lengths': set(), 'more': {}})
    spot['lengths'].add(row['length'])
    if row['measure'] in ('nonoverlapping', 'sliding') and whole(row.get('targets')):
      spot['more']['max_targets'] = max(row['targets'], spot['more'].get('max_targets', 0))
    if row['measure'] == 'context' and whole(row.get('span')) and row['span'] != windows.span(row['train_length']):
      spot['more']['span'] = row['span']
    if row['measure'] == 'context' and isinstance(row.get('needle'), dict) and whole(row['needle'].get('digits')):
      spot['more']['needle'] = row['needle']['digits']
    if row['measure'] == 'context' and 'difference' in row and row['length'] > row['train_length'] and 'shuffled_far' not in row:
      spot['more']['arms'] = 'false'
    if row['measure'] == 'task' and whole(row.get('samples')):
      spot['more']['samples'] = row['samples']
  merged = {}
  for (flag, encoding, measure, split, step, *own), spot in grids.items():
    key = (flag, tuple(sorted(spot['lengths'])), split, step, *own)
    same = merged.setdefault(key, {'encodings': {}, 'measures': {}, 'more': {}})
    same['encodings'][encoding] = same['measures'][measure] = None
    same['more'] |= spot['more'] | dict(own)
  for (flag, lengths, split, step, *_), same in merged.items():
    given = [f'lengths={",".join(map(str, lengths))}', f'{flag}={",".join(same["measures"])}']
    if list(same['encodings']) != [run.config.get('encoding')]:
      given.append(f'encodings={", ".join(same["encodings"])}')
    if isinstance(split, str) and split != 'test':
      given.append(f'text={split.removeprefix(OWN_TEXT)}' if split.startswith(OWN_TEXT) else f'split={split}')
    given += [f'step={step}'] if whole(step) and step != run.step else []
    out.append(_eval(run, [*given, *(f'{name}={value}' for name, value in same['more'].items())]))
  return out


def _eval(run, arguments):
  """A command from name=value."""
  return ' '.join(['python eval.py', *(_quoted(f'--{text}') for text in [f'workdir={path_of(run)}', *arguments])])


def _quoted(text):
  """For a shell. Control characters, which a terminal would act on, are shown and not kept."""
  return shlex.quote(''.join(c if c.isprintable() else '?' for c in text))
