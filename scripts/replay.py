"""Take a step that was not finite once more, and see where it breaks.

  scripts/replay.py --workdir=runs/a
  scripts/replay.py --workdir=runs/a --step=57 --json

A run that stops because a step is not finite leaves nonfinite_<step>.json and a checkpoint of the step before. This begins at the newest
checkpoint before the step, checks that it is the same batch and comes to the same numbers, and prints of every array of parameters,
optimizer and gradient the largest entry and how many are not finite, the worst first. Writes nothing. Exit codes as train.py's.
With nonfinite='skip' the run goes on, and the step can be taken again only as long as a checkpoint from before it is kept
(keep_checkpoints); after that this says so and ends with 3.
"""

import json

from absl import flags

from pe_jax import cli

WORKDIR = flags.DEFINE_string('workdir', None, 'Folder of the run.')
STEP = flags.DEFINE_integer('step', 0, 'The step; 0: the newest that was not finite.', lower_bound=0)
JSON = flags.DEFINE_boolean('json', False, 'Print one JSON object.')
ROWS = flags.DEFINE_integer('rows', 12, 'Arrays to print.', lower_bound=1)


def main():
  """Hands over to pe_jax.nonfinite."""
  cli.required('workdir', 'runs/a')
  from pe_jax import nonfinite

  found = nonfinite.replay(WORKDIR.value, STEP.value)
  print(json.dumps(found) if JSON.value else text(found))


def text(found):
  """The report as lines."""
  same = {True: 'as it was', False: 'NOT as it was'}
  lines = [
    f'step {found["step"]}, from the checkpoint of step {found["from"]}: batch {same[found["same_batch"]]}, '
    f'numbers {same[found["same_numbers"]]}',
    f'loss {found["loss"]}, gradient norm {found["gradient_norm"]}, {"finite" if found["finite"] else "not finite"}',
    f'{"not finite":>10}  {"largest":>10}  array',
  ]
  worst = sorted(found['arrays'].items(), key=lambda item: (-item[1]['not_finite'], -float(item[1]['largest'])))
  lines += [f'{s["not_finite"]:>10}  {float(s["largest"]):>10.3g}  {name}' for name, s in worst[: ROWS.value]]
  return '\n'.join(lines)


if __name__ == '__main__':
  cli.run(main, __doc__)
