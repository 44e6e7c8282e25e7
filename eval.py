"""Evaluate a checkpoint at lengths and under encodings it was not trained with.

  python eval.py --workdir=runs/a --lengths=64,128,256,512
  python eval.py --workdir=runs/rope --lengths=64,512 --encodings='rope, linear, ntk, yarn(factor=8)' --protocols=nonoverlapping,prefix
  python eval.py --workdir=runs/copy --lengths=8,16,32

Prints a table and appends one JSON object a line to WORKDIR/eval/<protocol>.jsonl. A map without a factor takes max(1, length /
train_length) at each length. A run on a task is tested on samples of exactly those lengths. Exit codes as train.py's.
"""

from absl import flags

from pe_jax import cli

WORKDIR = flags.DEFINE_string('workdir', None, 'Folder of the run.')
LENGTHS = flags.DEFINE_list('lengths', None, 'Lengths in tokens, comma-separated.')
ENCODINGS = flags.DEFINE_string('encodings', '', 'Encodings to read the same parameters under; default: the trained one.')
PROTOCOLS = flags.DEFINE_list(
  'protocols', [], "nonoverlapping, prefix, task; default: the first, or 'task' for a run that was trained on one."
)
SPLIT = flags.DEFINE_enum('split', 'test', ['train', 'validation', 'test'], 'Documents to score.')
STEP = flags.DEFINE_string('step', 'last', "Checkpoint: 'last', 'best' (by validation loss) or a step.")
MAX_TARGETS = flags.DEFINE_integer('max_targets', 200_000, 'Targets to score at each length; 0: all.', lower_bound=0)
SAMPLES = flags.DEFINE_integer('samples', 500, 'Samples of a task at each length.', lower_bound=1)
TASK = flags.DEFINE_string('task', '', "Another task in the same words, as 'flip_flop(ignore=.98)'; default: the trained one.")


def main():
  """Hands over to pe_jax.evaluate."""
  cli.required('workdir', 'runs/a')
  lengths = cli.integers('lengths', '512,1024,2048')
  step = STEP.value if STEP.value == 'best' else None if STEP.value == 'last' else cli.integer('step', STEP.value)
  specs = cli.encoding_list(ENCODINGS.value)

  import pe_jax
  from pe_jax import evaluate
  from pe_jax.report import table

  run = pe_jax.load(WORKDIR.value, step)
  rows = run.evaluate(lengths, specs, PROTOCOLS.value, SPLIT.value, MAX_TARGETS.value, SAMPLES.value, TASK.value)
  print(table.tasks(rows) if rows[0]['protocol'] == 'task' else table.losses(rows), flush=True)
  evaluate.write(WORKDIR.value, rows)


if __name__ == '__main__':
  cli.run(main, __doc__)
