"""A run's evaluations: dicts of eval.py's flags, checked before anything is trained."""

from pe_jax.config import did_you_mean
from pe_jax.errors import ConfigError

# eval.py's flags without those that say where and under which label; a test compares.
FLAGS = (
  'lengths', 'encodings', 'protocols', 'stride', 'span', 'spans', 'seed', 'margin', 'bar', 'memory', 'probes', 'options', 'figures',
  'split', 'step', 'max_targets', 'samples', 'task', 'text', 'arms', 'needle',
)  # fmt: skip
MAX_TARGETS, SAMPLES = 200_000, 500  # eval.py's defaults, for prices


def checked(given, config):
  """The evaluation as it is kept: 'lengths' a list of whole numbers, lists elsewhere where several are given, nothing that is None.

  Args:
    given: a dict of eval.py's flags.
    config: the run's resolved config.
  """
  from pe_jax import encodings, evaluate, model, probes, tasks

  if not isinstance(given, dict):
    raise ConfigError(f"evaluation: {given!r} is no dict of eval.py's flags (for instance {{'lengths': [64, 128]}})")
  for flag in given:
    if flag not in FLAGS:
      raise ConfigError(f"evaluation: eval.py has no flag '{flag}'{did_you_mean(flag, FLAGS)} (there are {', '.join(FLAGS)})")
  kept = {flag: list(value) if isinstance(value, (list, tuple)) else value for flag, value in given.items() if value is not None}
  lengths = kept.get('lengths', [])
  if not isinstance(lengths, list) or not lengths or not all(type(n) is int and n > 0 for n in lengths):
    raise ConfigError(f'evaluation: lengths: {lengths!r} is no list of lengths, whole numbers of at least 1')
  names = {'protocols': (*evaluate.protocols(), 'all'), 'probes': (*probes.ALL, 'all')}
  for flag, known in names.items():
    kept |= {flag: kept[flag].split(',')} if isinstance(kept.get(flag), str) else {}
    for name in kept.get(flag, []):
      if name not in known:
        raise ConfigError(f"evaluation: {flag}: '{name}' is unknown{did_you_mean(name, known)} (there are {', '.join(known)})")
  task = tasks.make(kept.get('task') or config.data.name) if config.data.source == 'task' else None
  for spec in specs(kept, config):
    for length in map(task.positions, lengths) if task else lengths:
      at_length = encodings.at_length(spec, length, config.train_length)
      model.check_length(encodings.make(at_length, model.dims(config), length), length)
  return kept


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
