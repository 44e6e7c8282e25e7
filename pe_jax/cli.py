"""What the entry points share: flags parsed, mistakes answered in one line, exit codes kept."""

import sys

from absl import flags, logging

from pe_jax import config as config_lib
from pe_jax.errors import ConfigError, UserError

flags.DEFINE_boolean('debug', False, 'Show the traceback of an error.')


def run(main, doc):
  """Parses sys.argv, calls main() and exits with its code. `doc` is what --help shows first."""
  if any(arg in ('--help', '-h', '-help', '--helpfull') for arg in sys.argv[1:]):
    print(doc.strip() + '\n\nFlags:' + flags.FLAGS.get_help(include_special_flags=False).rstrip())
    sys.exit(0)
  logging.set_verbosity(logging.FATAL)  # orbax logs pages for one failed write; what matters is raised and told in a line
  try:
    _parse(sys.argv)
    main()
  except UserError as error:
    if flags.FLAGS.is_parsed() and flags.FLAGS.debug:
      raise
    print(f'ERROR: {error}', file=sys.stderr, flush=True)
    sys.exit(error.exit_code)


def _parse(argv):
  try:
    rest = flags.FLAGS(argv)
  except flags.Error as error:
    _explain_overrides(argv)
    # A config file's own complaint is the last line of the traceback that config_flags wraps.
    last = str(error).strip().splitlines()[-1]
    raise ConfigError(last.partition('ConfigError: ')[2] or last) from error
  except (AttributeError, KeyError, TypeError, ValueError, OSError) as error:
    _explain_overrides(argv)
    raise ConfigError(' '.join(str(error).split())) from error
  if len(rest) > 1:
    raise ConfigError(f"argument '{rest[1]}' is not a flag (flags start with --; --help lists them)")


def _explain_overrides(argv):
  """Names the field that does not exist."""
  known = config_lib.flatten(config_lib.default())
  for arg in argv[1:]:
    field = arg.lstrip('-').partition('=')[0]
    if field.startswith('config.') and field[7:] not in known:
      raise ConfigError(f'--{field}: there is no such field{config_lib.did_you_mean(field[7:], known)}')


def required(name, example):
  """The value of a flag that must be given."""
  value = flags.FLAGS[name].value
  if value in (None, ''):
    raise ConfigError(f'--{name}: missing (for instance --{name}={example})')
  return value


def checked(config):
  """The config with its fields checked, before anything heavy is imported."""
  from pe_jax import encodings, resolve

  if config is None:
    raise ConfigError('--config: the file returned nothing (get_config must return a ConfigDict)')
  resolve.check_fields(config)
  encodings.check_name(config.encoding)
  return config


def integers(name, example):
  """A required flag of comma-separated whole numbers."""
  return [integer(name, text) for text in required(name, example)]


def integer(name, text):
  """A whole number given as text."""
  try:
    return int(text)
  except ValueError:
    raise ConfigError(f"--{name}: '{text}' is not a whole number") from None


def encoding_list(text):
  """The names in a list of encodings checked; None for an empty text."""
  from pe_jax import encodings
  from pe_jax.encodings import grammar

  if not text.strip():
    return None
  specs = grammar.parse_list(text)
  for spec in specs:
    encodings.check_name(str(spec))
  return specs
