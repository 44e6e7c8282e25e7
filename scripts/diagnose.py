"""A checkpoint degrades at a long length: find out why, in the order in which it makes sense to look.

  scripts/diagnose.py --workdir=runs/rope --length=512
  scripts/diagnose.py --workdir=runs/rope --length=512 --encoding='yarn(factor=8)' --json

Five steps: hard limits, position ids, the causal mask, the position mechanism, length or attention. Each prints what it saw, ends in ok,
note or FAULT, and the last lines name the most likely cause with what to try. Looks at the code that the run goes through, not at its
settings alone. Exit code 0 whatever is found; otherwise as train.py's.
"""

import dataclasses
import json
import signal

from absl import flags

from pe_jax import cli

WORKDIR = flags.DEFINE_string('workdir', None, 'Folder of the run.')
LENGTH = flags.DEFINE_string('length', None, 'Tokens at which it degrades.')
ENCODING = flags.DEFINE_string('encoding', '', 'Another encoding to read the parameters with; default: the trained one.')
TEXT = flags.DEFINE_string('text', '', 'A file or folder to read instead of a split.')
SPLIT = flags.DEFINE_enum('split', 'test', ['train', 'validation', 'test'], 'Documents to read.')
STEP = flags.DEFINE_string('step', 'last', "Checkpoint: 'last', 'best' (by validation loss) or a step.")
MAX_TARGETS = flags.DEFINE_integer('max_targets', 20_000, 'Targets of text to take; more make losses surer and take longer.', lower_bound=1)
JSON = flags.DEFINE_boolean('json', False, 'Print one JSON object instead of text.')


def main():
  """Hands over to pe_jax.diagnose."""
  signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it without a word
  cli.required('workdir', 'runs/a')
  cli.required('length', '4096')
  length = cli.integer('length', LENGTH.value)
  step = STEP.value if STEP.value == 'best' else None if STEP.value == 'last' else cli.integer('step', STEP.value)
  from pe_jax import encodings

  if ENCODING.value:
    encodings.check_name(ENCODING.value)

  import pe_jax
  from pe_jax import diagnose, progress
  from pe_jax.report import diagnosis

  run = pe_jax.load(WORKDIR.value, step)
  case = diagnose.of_run(run, length, ENCODING.value or None, SPLIT.value, MAX_TARGETS.value, TEXT.value)
  found = diagnose.diagnose(case, lambda title: progress.say(f'{title} …'))
  print(json.dumps(dataclasses.asdict(found), allow_nan=False) if JSON.value else diagnosis.text(found), flush=True)


if __name__ == '__main__':
  cli.run(main, __doc__)
