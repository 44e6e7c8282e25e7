"""Pointers from a document into the tree, and whether they point at something.

test      tests/test_model.py::test_x     a test, or what tests/encodings/test_contract.py makes of a property
example   docs/encodings.md#rope          a section with code whose output the tests compare with what stands below it
command   python eval.py --lengths=64     a script of the tree with flags that it defines, or a target of the Makefile
measured  README.md#synthetic-tasks       a section with numbers of our own runs, with their date
figure    docs/demo.png
code      pe_jax/encodings/rope.py        a file; file::name a function, class or constant in it
doc       docs/encodings.md#1-notation    a section
"""

import ast
import functools
import pathlib
import re
import shlex

KINDS = ('test', 'example', 'command', 'measured', 'figure', 'code', 'doc')
SHOWING = KINDS[:4]  # these show that something is so; the others say it
CONTRACT, PROPERTIES = 'tests/encodings/test_contract.py', 'pe_jax/selfcheck/properties.py'


def fault(root: pathlib.Path, pointer: str) -> str:
  """What is wrong with a pointer such as 'doc: README.md#encodings', in a sentence; '' if it points at something."""
  kind, colon, target = pointer.partition(': ')
  if kind not in KINDS or not colon:
    return f"'{pointer}' is of no kind (there are {', '.join(KINDS)})"
  if kind == 'command':
    return _command(root, target)
  path, _, name = target.partition('::' if kind in ('test', 'code') else '#')
  if not (root / path).is_file():
    return f"'{pointer}': there is no file {path}"
  if kind in ('test', 'code'):
    return _name(root, pointer, kind, path, name)
  if kind == 'figure':
    return ''
  if name not in (there := sections(root / path)):
    return f"'{pointer}': {path} has no heading with that anchor"
  if kind == 'example' and '>>> ' not in there[name][1]:
    return f"'{pointer}': there is no example in that section"
  if kind == 'measured' and not re.search(r'\b20\d\d-\d\d-\d\d\b', there[name][1]):
    return f"'{pointer}': that section has no date of a measurement"
  return ''


def _name(root, pointer, kind, path, name):
  if kind == 'test' and not name.startswith('test_'):
    return f"'{pointer}': names no test"
  known = names(root / path)
  if path == CONTRACT:
    known |= {f'test_{function}' for function in _properties(root / PROPERTIES)}
  return '' if not name or name in known else f"'{pointer}': {path} has no {name}"


def _command(root, command):
  """A command is either `make target` or `python script --flag=value …`."""
  first, *rest = shlex.split(command)
  if first == 'make':
    there = re.findall(r'^([a-z]+):', (root / 'Makefile').read_text(), re.MULTILINE)
    return '' if rest and rest[0] in there else f"'{command}': the Makefile has no such target"
  if first != 'python' or not rest or not (root / rest[0]).is_file():
    return f"'{command}': there is no such script"
  known = flags(root / rest[0])
  for argument in rest[1:]:
    name, _, value = argument.removeprefix('--').partition('=')
    if not argument.startswith('--') or name.partition('.')[0] not in known:
      return f"'{command}': {rest[0]} has no flag {argument}"
    if name == 'config' and not (root / value.partition(':')[0]).is_file():
      return f"'{command}': there is no {value}"
  return ''


@functools.cache
def _parsed(path):
  return ast.parse(path.read_text(encoding='utf-8'))


def names(path: pathlib.Path) -> set:
  """Functions, classes and constants at the top level of a Python file."""
  found = set()
  for node in _parsed(path).body:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
      found.add(node.name)
    elif isinstance(node, ast.Assign):
      found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
  return found


def _properties(path):
  (table,) = (n for n in _parsed(path).body if isinstance(n, ast.Assign) and getattr(n.targets[0], 'id', '') == 'PROPERTIES')
  return {node.id for node in ast.walk(table.value) if isinstance(node, ast.Name)}


def flags(path: pathlib.Path) -> set:
  """Names of the absl flags that a script defines."""
  calls = [node for node in ast.walk(_parsed(path)) if isinstance(node, ast.Call) and node.args]
  return {c.args[0].value for c in calls if getattr(c.func, 'attr', '').startswith('DEFINE_') and isinstance(c.args[0], ast.Constant)}


@functools.cache
def sections(path: pathlib.Path) -> dict:
  """{anchor: (heading, text up to the next heading)} of a Markdown file, with the anchors that GitHub gives."""
  found, fenced, anchor = {}, False, ''
  for line in path.read_text(encoding='utf-8').splitlines():
    fenced ^= line.removeprefix('> ').startswith('```')
    heading = re.match(r'#+ (.*)', line)
    if heading and not fenced:
      plain = re.sub(r'[^\w\- ]', '', heading[1].lower()).replace(' ', '-')
      again = sum(re.fullmatch(re.escape(plain) + r'(-\d+)?', other) is not None for other in found)
      anchor = f'{plain}-{again}' if again else plain
      found[anchor] = (heading[1], '')
    elif anchor:
      found[anchor] = (found[anchor][0], f'{found[anchor][1]}{line}\n')
  return found
