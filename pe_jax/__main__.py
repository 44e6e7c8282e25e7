"""`python -m pe_jax` lists the commands; with a word after it, it is one of them."""

import ast
import pathlib
import sys

from pe_jax.config import did_you_mean

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main(argv):
  """The exit code of a word, or of the list."""
  word = argv[1] if len(argv) > 1 else ''
  if word == 'selfcheck':
    from pe_jax import selfcheck

    sys.argv = [f'{argv[0]} {word}', *argv[2:]]
    return selfcheck.main()
  if word and word not in ('help', '--help', '-h'):
    print(f"ERROR: '{word}' is no command of python -m pe_jax{did_you_mean(word, words())} (without a word it lists all)", file=sys.stderr)
    return 2
  print(listing())
  return 0


def words():
  """What python -m pe_jax does itself."""
  return {'selfcheck': "Try this machine's devices: a table to paste into an issue, in a few minutes."}


def listing():
  """The commands with the first sentence of what each says of itself."""
  found = [(f'python -m pe_jax {word}', said) for word, said in words().items()]
  found += [(f'python {path.relative_to(ROOT)}', said) for path in commands() if (said := _first_sentence(path))]
  width = max(len(name) for name, _ in found)
  lines = [f'  {name.ljust(width)}  {said}' for name, said in found]
  return '\n'.join(['Each of these shows its flags with --help:', '', *lines, '', f'They lie in {ROOT}; make lists what it can do.'])


def commands():
  """The files that are commands: those of the root and of scripts/, which know what to do when they are called."""
  files = [ROOT / 'train.py', ROOT / 'eval.py', *sorted((ROOT / 'scripts').glob('*.py'))]
  return [path for path in files if path.exists() and "__name__ == '__main__'" in path.read_text()]


def _first_sentence(path):
  """Read and not imported: importing takes seconds."""
  doc = ast.get_docstring(ast.parse(path.read_text())) or ''
  return ' '.join(doc.partition('\n\n')[0].split())


if __name__ == '__main__':
  sys.exit(main(sys.argv))
