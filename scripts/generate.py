"""Continue a text with a trained model.

  scripts/generate.py --workdir=runs/rope --prompt='def '
  scripts/generate.py --workdir=runs/rope --prompt='import ' --temperature=0.7 --top_p=0.95 --seed=3
  scripts/generate.py --workdir=runs/rope --prompt=- --new_tokens=400 --encoding=yarn < some.txt
  scripts/generate.py --workdir=runs/rope --prompt='class ' --beams=4

Prints the whole text; the encoding, the declared length and the speed go to stderr. Exit codes as train.py's.
"""

import signal
import sys

from absl import flags

from pe_jax import cli

WORKDIR = flags.DEFINE_string('workdir', None, 'Folder of the run.')
PROMPT = flags.DEFINE_string('prompt', None, "The text to continue; '-' reads it from stdin as it comes; '' begins at the beginning.")
NEW_TOKENS = flags.DEFINE_integer('new_tokens', 100, 'Tokens to add.')
ENCODING = flags.DEFINE_string('encoding', '', 'Another encoding to read the parameters with; default: the trained one.')
TEMPERATURE = flags.DEFINE_float('temperature', 1.0, 'Of the draws; 0 takes the likeliest token.')
TOP_K = flags.DEFINE_integer('top_k', 0, 'Draw among that many likeliest tokens; 0: among all.')
TOP_P = flags.DEFINE_float('top_p', 1.0, 'Draw among the fewest tokens that have this probability together.')
BEAMS = flags.DEFINE_integer('beams', 0, 'Search for the likeliest text with that many beams, and draw nothing; 0: draw.')
SEED = flags.DEFINE_integer('seed', 0, 'Of the draws.', lower_bound=0)
STOP = flags.DEFINE_list('stop', None, "Token ids that end the text, '' for none; default: those that an imported checkpoint names.")
LENGTH = flags.DEFINE_integer('length', 0, 'Declared final length in tokens, for what depends on it; 0: prompt and new tokens.')
STEP = flags.DEFINE_string('step', 'last', "Checkpoint: 'last', 'best' (by validation loss) or a step.")


def main():
  """Hands over to Run.generate."""
  signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it without a word
  cli.required('workdir', 'runs/a')
  if PROMPT.value is None:
    cli.required('prompt', "'def '")
  step = STEP.value if STEP.value == 'best' else None if STEP.value == 'last' else cli.integer('step', STEP.value)
  from pe_jax import encodings

  if ENCODING.value:
    encodings.check_name(ENCODING.value)

  import pe_jax
  from pe_jax import progress

  run = pe_jax.load(WORKDIR.value, step)
  found = run.generate(
    sys.stdin.buffer.read() if PROMPT.value == '-' else PROMPT.value,
    NEW_TOKENS.value,
    ENCODING.value or None,
    temperature=TEMPERATURE.value,
    top_k=TOP_K.value,
    top_p=TOP_P.value,
    beams=BEAMS.value,
    seed=SEED.value,
    length=LENGTH.value or None,
    stop=None if STOP.value is None else [cli.integer('stop', one) for one in STOP.value],
  )
  sys.stdout.reconfigure(encoding='utf-8')
  print(found.text[0][0] if BEAMS.value else found.text[0], flush=True)
  count = int(found.count.max())
  progress.say(
    f'{found.spec} (trained as {run.config.encoding}), step {run.step}, declared length {found.length_B[0]}; '
    f'{count} tokens in {found.seconds:.2f} s, {count / found.seconds:.0f} tokens/s (compiling not counted)'
  )


if __name__ == '__main__':
  cli.run(main, __doc__)
