"""A run's evaluations: dicts of eval.py's flags, checked before anything is trained."""

import itertools
import math
import re

from pe_jax.config import did_you_mean
from pe_jax.errors import ConfigError

# eval.py's flags without those that say where and under which label; a test compares.
FLAGS = (
  'lengths', 'encodings', 'protocols', 'stride', 'span', 'spans', 'seed', 'margin', 'bar', 'memory', 'probes', 'options', 'figures',
  'split', 'step', 'max_targets', 'samples', 'task', 'text', 'arms', 'needle',
)  # fmt: skip
SPLITS = ('train', 'validation', 'test')
MAX_TARGETS, SAMPLES = 200_000, 500  # eval.py's defaults, for prices


def checked(given, config):
  """The evaluation as it is kept: 'lengths' a list of whole numbers, lists elsewhere where several are given, nothing that is None.

  Args:
    given: a dict of eval.py's flags.
    config: the run's resolved config.
  """
  if not isinstance(given, dict):
    raise ConfigError(f"evaluation: {given!r} is no dict of eval.py's flags (for instance {{'lengths': [64, 128]}})")
  for flag in given:
    if flag not in FLAGS:
      raise ConfigError(f"evaluation: eval.py has no flag '{flag}'{did_you_mean(flag, FLAGS)} (there are {', '.join(FLAGS)})")
  kept = {flag: list(value) if isinstance(value, (list, tuple)) else value for flag, value in given.items() if value is not None}
  lengths = kept.get('lengths', [])
  if not isinstance(lengths, list) or not lengths or not all(type(n) is int and n > 0 for n in lengths):
    raise ConfigError(f'evaluation: lengths: {lengths!r} is no list of lengths, whole numbers of at least 1')
  for flag in ('protocols', 'probes', 'options'):
    kept |= {flag: kept[flag].split(',')} if isinstance(kept.get(flag), str) else {}
  try:
    _check(kept, lengths, config)
  except ConfigError as error:
    raise ConfigError(f'evaluation: {error}') from error
  return kept


def _check(kept, lengths, config):
  """Refuses what eval.py would, on a run that is not trained yet."""
  import jax

  from pe_jax import encodings, evaluate, model, probes

  _check_values(kept)
  enc = encodings.make(config.encoding, model.dims(config))
  shapes = {'encoding': jax.eval_shape(enc.parameters, jax.random.PRNGKey(0))}
  task = evaluate.asked_task(config.data, kept.get('task', ''), kept.get('text', ''))
  subject, read_as = evaluate.Subject(config, shapes, None, [], {}, task), specs(kept, config)
  wanted = kept.get('protocols', [])
  if wanted or not kept.get('probes'):
    protocols = [] if wanted == ['all'] else wanted
    given = {name: kept[name] for name in ('stride', 'span', 'spans', 'seed', 'arms', 'needle') if name in kept}
    evaluate.check(subject, lengths, read_as, protocols, evaluate.Options(**given))
  for name in kept.get('probes', []):
    if name not in (*probes.ALL, 'all'):
      raise ConfigError(f"probes: '{name}' is unknown{did_you_mean(name, probes.ALL)} (there are {', '.join(probes.ALL)}, all)")
    if name != 'all' and (why := probes.refusal(name, subject)):
      raise ConfigError(f"probes: '{name}' does not fit this run: {why}")
  if kept.get('probes'):
    probes.Options.of(kept.get('options', [])).check()
    for spec, length in itertools.product(read_as, lengths):  # of probes in tokens, also of a task
      subject.encoding(subject.at_length(spec, length), length)


def _check_values(kept):
  """Refuses values that eval.py's flags do not take."""
  for flag, least in {'max_targets': 0, 'samples': 1, 'stride': 0, 'span': 0, 'spans': 0, 'seed': 0, 'needle': 0}.items():
    value = kept.get(flag, least)
    if type(value) is not int or value < least:
      raise ConfigError(f'{flag}: {value!r} must be a whole number of at least {least}')
  for flag in ('margin', 'memory', 'bar'):
    value = kept.get(flag, 1)
    if type(value) not in (int, float) or not 0 <= value < math.inf or (flag == 'bar' and value == 0):
      raise ConfigError(f'{flag}: {value!r} must be a number {"above 0" if flag == "bar" else "from 0 on"}')
  for flag in ('arms', 'figures'):
    if not isinstance(kept.get(flag, True), bool):
      raise ConfigError(f'{flag}: {kept[flag]!r} must be True or False')
  if (split := kept.get('split', 'test')) not in SPLITS:
    raise ConfigError(f'split: {split!r} is unknown{did_you_mean(str(split), SPLITS)} (there are {", ".join(SPLITS)})')
  if not re.fullmatch(r'last|best|\d+', str(kept.get('step', 'last'))):
    raise ConfigError(f"step: {kept['step']!r} must be 'last', 'best' or a step")


def specs(evaluation, config):
  """The encodings that the parameters are read under, with what they leave open taken from the trained one."""
  from pe_jax import encodings
  from pe_jax.encodings import grammar

  trained, asked = encodings.parse(config.encoding), evaluation.get('encodings')
  if not asked:
    return [trained]
  named = grammar.parse_list(asked) if isinstance(asked, str) else [grammar.parse(one) for one in asked]
  return [encodings.inherit(encodings.check_name(str(spec)), trained) for spec in named]


def arguments(evaluation):
  """eval.py's arguments, without where and under which label."""
  return [f'--{flag}={_text(flag, value)}' for flag, value in evaluation.items()]


def _text(flag, value):
  if isinstance(value, list):
    return (', ' if flag == 'encodings' else ',').join(map(str, value))
  return str(value).lower() if isinstance(value, bool) else str(value)
