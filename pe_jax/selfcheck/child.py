"""The processes that the self-check starts.

python -m pe_jax.selfcheck.child checks SECONDS [quick]    one JSON object a line: the machine, then a row for each check
python -m pe_jax.selfcheck.child train WORKDIR CORPUS      a training run, from where it was left
"""

import sys


def main(arguments):
  """Dispatches."""
  from pe_jax.selfcheck import checks

  if arguments[0] == 'train':
    checks.train_run(*arguments[1:])
  else:
    checks.run(float(arguments[1]), 'quick' in arguments[2:])


if __name__ == '__main__':
  main(sys.argv[1:])
