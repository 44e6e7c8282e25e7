"""What the entry points share: flags parsed, mistakes answered in one line, exit codes kept."""

import logging as stdlib_logging
import pathlib
import signal
import sys
import traceback

import ml_collections
from absl import flags, logging

from pe_jax import config as config_lib
from pe_jax import process
from pe_jax.errors import ConfigError, Preempted, UserError

flags.DEFINE_boolean('debug', False, 'Show the traceback of an error too.')


def run(main, doc):
  """Parses sys.argv, calls main() and exits with its code. `doc` is what --help shows first."""
  if any(arg in ('--help', '-h', '-help', '--helpfull') for arg in sys.argv[1:]):
    print(doc.strip() + '\n\nFlags:' + flags.FLAGS.main_module_help() + flags.FLAGS.module_help(__name__))
    sys.exit(0)
  signal.signal(signal.SIGINT, signal.SIG_DFL)  # an exception gets lost inside imports; training has a handler of its own
  # orbax logs pages for one failed write, and its tasks as many again at exit; what matters is raised and told in a line.
  logging.set_verbosity(logging.FATAL)
  stdlib_logging.getLogger('asyncio').disabled = True
  sys.unraisablehook = _unraisable
  process.prepare()
  try:
    _parse(sys.argv)
    main()
  except UserError as error:
    if isinstance(error, Preempted):  # all is saved: another signal must not turn 75 into something else
      for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    _end(error, error.exit_code)
  except RuntimeError as error:
    if not (said := process.missing_backend(error)):
      raise
    _end(said, ConfigError.exit_code)


def _end(said, code):
  """Exits with the sentence, and with --debug the traceback before it: what starts a command again looks at the code in both cases."""
  if flags.FLAGS.debug if flags.FLAGS.is_parsed() else '--debug' in sys.argv:
    traceback.print_exc()
  print(f'ERROR: {said}', file=sys.stderr, flush=True)
  sys.exit(code)


def _unraisable(told):
  """What was being read when a checkpoint turned out to be damaged ends later, and finds nobody."""
  if 'Event loop is closed' not in str(told.exc_value):
    sys.__unraisablehook__(told)


def _parse(argv):
  argv = _with_program(argv)
  try:
    rest = flags.FLAGS(argv)
  except Exception as error:  # a config file is a program and can raise anything
    _explain_overrides(argv)
    raise ConfigError(_complaint(error)) from error
  if len(rest) > 1:
    raise ConfigError(f"argument '{rest[1]}' is not a flag (flags start with --; --help lists them)")


def _with_program(argv):
  """argv with a .json config handed to the program that reads it. Refuses a config file that is not there or of another kind.

  Whatever its name, a config file would be executed.
  """
  if 'config' not in flags.FLAGS or flags.FLAGS['config'].flag_type() == 'string':
    return argv
  argv = list(argv)
  for n, arg in enumerate(argv[1:], 1):
    name, equals, value = arg.lstrip('-').partition('=')
    if not arg.startswith('-') or name != 'config':
      continue
    given = value if equals else ''.join(argv[n + 1 : n + 2])
    path = pathlib.Path(given.partition(':')[0])
    if not path.is_file():
      raise ConfigError(f"--config: there is no file '{given.partition(':')[0]}' (for instance --config=configs/quickstart.py:alibi)")
    if path.suffix not in ('.py', '.json'):
      raise ConfigError(f"--config: '{path}' is neither a program, .py, nor data, .json (configs/quickstart.py is an example)")
    if path.suffix == '.json':
      program = f'{pathlib.Path(__file__).with_name("json_config.py")}:{given}'
      argv[n if equals else n + 1] = f'--config={program}' if equals else program
  return argv


def _complaint(error):
  """One line: a config file's own error, without what config_flags and absl wrap around it."""
  wrap = error
  while wrap is not None and not str(wrap).startswith('Error whilst parsing config file'):
    wrap = wrap.__context__
  cause = error if wrap is None else wrap.__context__
  said = ' '.join(str(cause).split())
  if isinstance(cause, (UserError, flags.Error)):
    return said
  return f'--config: the file raised {type(cause).__name__}: {said} (--debug shows where)'


def _explain_overrides(argv):
  """Names the field that does not exist."""
  known = config_lib.flatten(config_lib.default())
  for arg in argv[1:]:
    field = arg.lstrip('-').partition('=')[0]
    if field.startswith('config.') and field[7:] not in known:
      raise ConfigError(f'--{field}: there is no such field{config_lib.did_you_mean(field[7:], known)}')


def required(name, example):
  """The value of a flag that must be given."""
  flag = flags.FLAGS[name]
  if not flag.present or flag.value in ('', []):
    raise ConfigError(f'--{name}: missing (for instance --{name}={example})')
  return flag.value


def checked(config):
  """The config with its fields checked, before anything heavy is imported."""
  from pe_jax import resolve

  try:
    getattr(config, 'items', None)  # what stands for a file that raised an OSError raises at a touch
  except OSError as error:
    raise ConfigError(_complaint(error.__cause__ or error)) from error
  if not isinstance(config, ml_collections.ConfigDict):
    raise ConfigError(f'--config: the file returned {type(config).__name__} (get_config must return a ConfigDict)')
  resolve.settings(config)
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


def seed_folders(workdir):
  """{seed: folder} of the flag --seeds, from a workdir that says where the seed stands in their names."""
  seeds = integers('seeds', '101,102,103')
  for seed in seeds:
    if seeds.count(seed) > 1:
      raise ConfigError(f'--seeds: {seed} is given twice')
  if '{seed}' not in workdir:
    raise ConfigError(
      f"--workdir: '{workdir}' has no {{seed}}, and {len(seeds)} seeds need a folder each (for instance --workdir='{workdir}-{{seed}}')"
    )
  return {seed: workdir.replace('{seed}', str(seed)) for seed in seeds}


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
