"""Write a run as a folder that transformers loads, AutoModelForCausalLM.from_pretrained(folder), without code of ours.

  scripts/export_checkpoint.py --workdir=runs/rope --to=hf --folder=exported

What transformers has no model type for is refused with the part that it cannot express. Parameters are written as float32, exactly.
Exit codes as train.py's.
"""

from absl import flags

from pe_jax import cli

WORKDIR = flags.DEFINE_string('workdir', None, 'Folder of the run.')
TO = flags.DEFINE_enum('to', 'hf', ['hf'], "What to write; 'hf': a Hugging Face folder.")
FOLDER = flags.DEFINE_string('folder', '', 'Where; default: WORKDIR/hf.')
STEP = flags.DEFINE_string('step', 'last', "Checkpoint: 'last', 'best' (by validation loss) or a step.")


def main():
  """Hands over to pe_jax.weights.exporting."""
  workdir = cli.required('workdir', 'runs/rope')
  step = STEP.value if STEP.value == 'best' else None if STEP.value == 'last' else cli.integer('step', STEP.value)

  import pe_jax
  from pe_jax.weights import exporting

  folder = FOLDER.value or f'{workdir}/{TO.value}'
  kind = exporting.run(pe_jax.load(workdir, step), folder)
  print(f'{folder}: a {kind} of transformers', flush=True)


if __name__ == '__main__':
  cli.run(main, __doc__)
