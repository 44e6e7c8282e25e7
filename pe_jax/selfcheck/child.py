"""The processes that the self-check starts.

python -m pe_jax.selfcheck.child checks END WORKDIR CORPUS [quick]    one JSON object a line: the machine, then a row for each check
python -m pe_jax.selfcheck.child train WORKDIR CORPUS                 a training run, from where it was left
"""

import sys


def main(arguments):
  """Dispatches."""
  from pe_jax.selfcheck import checks

  if arguments[0] == 'train':
    checks.train_run(*arguments[1:])
  else:
    end, workdir, corpus, *rest = arguments[1:]
    checks.run(float(end), 'quick' in rest, workdir, corpus)


if __name__ == '__main__':
  main(sys.argv[1:])
