"""Evaluate a checkpoint at lengths and under encodings it was not trained with (exit codes as train.py's).

  python eval.py --workdir=runs/a --lengths=64,128,256,512
  python eval.py --workdir=runs/rope --lengths=64,512 --encodings='rope, linear, ntk, yarn(factor=8)' --protocols=all
  python eval.py --workdir=runs/copy --lengths=8,16,32
  python eval.py --workdir=runs/smollm2 --text=book.txt --lengths=2048,8192,16384 --encodings='rope, yarn(factor=2)'

Protocols: context (the same targets with more and more context, against a crop), nonoverlapping, sliding, buckets (by position), prefix;
default: the first two. A run on a task is tested on samples of exactly those lengths (protocol task). Several hosts: as train.py.
`--probes` measures what the model does there instead: needle, distance, repetition, attention, position, permutation, phases, leak, or
'all' that fit; lengths are then tokens that the model is fed. `--figures` draws the needle's grid and the entropy into WORKDIR/figures.

  python eval.py --workdir=runs/a --lengths=64,128,256,512 --probes=needle,attention --figures

Prints tables, the accounting of what longer windows gain, and for every encoding the three lengths (acceptable, computable, reliable), and
appends one JSON object a line to WORKDIR/eval/<protocol or probe>.jsonl. A map without a factor takes max(1, length / train_length).
"""

import math
import sys

from absl import flags

from pe_jax import cli, join

WORKDIR = flags.DEFINE_string('workdir', None, 'Folder of the run.')
LENGTHS = flags.DEFINE_list('lengths', None, 'Lengths in tokens, comma-separated.')
ENCODINGS = flags.DEFINE_string('encodings', '', 'Encodings to read the parameters under.')
PROTOCOLS = flags.DEFINE_list('protocols', [], "Protocols, or 'all' that fit.")
STRIDE = flags.DEFINE_integer('stride', 0, 'sliding: targets a window goes on by; 0: a quarter of the window.')
SPAN = flags.DEFINE_integer('span', 0, 'context: targets of a span; 0: L / 2, 64 at most.')
SPANS = flags.DEFINE_integer('spans', 0, 'context: the most spans; 0: 16 to 256, by max_targets.')
ARMS = flags.DEFINE_boolean('arms', True, 'context: also with far text shuffled, and replaced.')
NEEDLE = flags.DEFINE_integer('needle', 0, 'context: digits of a key planted in the far text; 0: none.')
SEED = flags.DEFINE_integer('seed', 0, 'Of what is drawn: the order of far text, resamples.')
MARGIN = flags.DEFINE_float('margin', 0.05, 'Nats that a reliable length may cost, with 95 % confidence.')
BAR = flags.DEFINE_float('bar', None, 'Loss in nats that claims beyond L need at L.')
MEMORY = flags.DEFINE_float('memory', 0.0, 'GB for the computable length; 0: as far as was computed.')
PROBES = flags.DEFINE_list('probes', [], "Probes, or 'all' that fit; protocols only if asked for.")
OPTIONS = flags.DEFINE_list('options', [], "As 'trials=50,digits=3' (pe_jax/probes/options.py).")
FIGURES = flags.DEFINE_boolean('figures', False, 'Draw probes into WORKDIR/figures.')
SPLIT = flags.DEFINE_enum('split', 'test', ['train', 'validation', 'test'], 'Documents to score.')
STEP = flags.DEFINE_string('step', 'last', "Checkpoint: 'last', 'best' (by validation loss) or a step.")
MAX_TARGETS = flags.DEFINE_integer('max_targets', 200_000, 'Targets to score at each length; 0: all.', lower_bound=0)
TEXT = flags.DEFINE_string('text', '', 'A file or folder to score instead of a split.')
SAMPLES = flags.DEFINE_integer('samples', 500, 'Samples of a task at each length.', lower_bound=1)
LABEL = flags.DEFINE_string('label', '', 'A name: done once under it, rows stand once.')
TASK = flags.DEFINE_string('task', '', "Another task in the same words, as 'flip_flop(ignore=.98)'.")


def main():
  """Hands over to pe_jax.evaluate."""
  cli.required('workdir', 'runs/a')
  lengths = cli.integers('lengths', '512,1024,2048')
  step = STEP.value if STEP.value == 'best' else None if STEP.value == 'last' else cli.integer('step', STEP.value)
  specs = cli.encoding_list(ENCODINGS.value)
  join.from_flags()

  from pe_jax import once

  with once.doing(WORKDIR.value, LABEL.value, sys.argv[1:]) as needed:
    if needed:
      measure(lengths, step, specs)


def measure(lengths, step, specs):
  """Evaluates, prints and writes."""
  import pe_jax
  from pe_jax import evaluate, hosts, memory, probes, remote
  from pe_jax.errors import ConfigError, UserError
  from pe_jax.evaluate import lengths as three
  from pe_jax.report import probes_figure, probes_text, protocols

  for name, value in (('margin', MARGIN.value), ('memory', MEMORY.value)):
    if not 0 <= value < math.inf:
      raise ConfigError(f'{name}: {value} must be a number from 0 on')
  if BAR.value is not None and not 0 < BAR.value < math.inf:
    raise ConfigError(f'bar: {BAR.value} must be a number above 0')
  options = evaluate.Options(STRIDE.value, SPAN.value, SPANS.value, SEED.value, ARMS.value, NEEDLE.value)
  of_probes = probes.Options.of(['seed=' + str(SEED.value), *OPTIONS.value])
  figures = remote.local(f'{WORKDIR.value}/figures', '--figures') if FIGURES.value else None
  with hosts.forsaken(WORKDIR.value), hosts.together():
    run = pe_jax.load(WORKDIR.value, step)
    subject = evaluate.subject(run.config, run.params, SPLIT.value, MAX_TARGETS.value, SAMPLES.value, TASK.value, TEXT.value)
  extra = {'step': run.step, 'split': evaluate.split_name(SPLIT.value, TEXT.value)}
  extra |= {'label': LABEL.value} if LABEL.value else {}
  with hosts.bound(WORKDIR.value), memory.explained_at(lengths):
    if PROTOCOLS.value or not PROBES.value:
      wanted = evaluate.protocols(subject) if PROTOCOLS.value == ['all'] else PROTOCOLS.value or evaluate.protocols(subject)[:2]
      rows = []

      def keep(new):
        evaluate.write(WORKDIR.value, new)
        rows.extend(new)

      try:
        rows, failed = evaluate.evaluate(subject, lengths, specs, wanted, extra, options, keep), None
      except UserError as error:  # what was measured before has been written, and is shown
        failed = error
      if rows:
        say(protocols.text(rows, three.of_rows(subject, rows, MEMORY.value * 1e9, MARGIN.value, BAR.value)))
      if failed:
        raise failed
    if PROBES.value:
      wanted = [] if PROBES.value == ['all'] else PROBES.value
      rows = probes.probe(subject, lengths, specs, wanted, extra, of_probes, lambda new: probes.write(WORKDIR.value, new))
      say(probes_text.text(rows))
      for path in probes_figure.draw(rows, figures) if figures and hosts.is_first() else ():
        say(path)


def say(text):
  """Prints, in one of the processes."""
  from pe_jax import hosts

  if hosts.is_first():
    print(text, flush=True)


if __name__ == '__main__':
  cli.run(main, __doc__)
