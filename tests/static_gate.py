"""What this program's own sources may not do: execute data, unpack without a filter, hand text to a shell. Read from the syntax tree.

A function is known by where it was imported from, whatever it is called here.
"""

import ast

MODULES = {'pickle', 'cPickle', 'dill', 'cloudpickle', 'shelve', 'marshal', 'joblib', 'code', 'codeop'}
BUILTINS = {'eval', 'exec', 'compile', '__import__'}
CALLS = {
  ('os', 'system'),
  ('os', 'popen'),
  ('subprocess', 'getoutput'),
  ('subprocess', 'getstatusoutput'),
  ('yaml', 'load'),
  ('yaml', 'unsafe_load'),
  ('yaml', 'full_load'),
  ('torch', 'load'),
  ('runpy', 'run_path'),
  ('runpy', 'run_module'),
  ('shutil', 'unpack_archive'),
}
IMPORTING = {('importlib', 'import_module'), ('importlib', '__import__')}
KEYWORDS = {'shell', 'allow_pickle', 'trust_remote_code'}  # = True


def faults(source, name='source', tests=False):
  """Sentences on what a file does that it may not. `tests`: they may run files of this tree and import by name."""
  nodes = list(ast.walk(ast.parse(source)))
  names = imported(nodes)
  return [f'{name}:{node.lineno}: {said}' for node in nodes for said in dict.fromkeys(_of(node, names, tests))]


def imported(nodes):
  """{name: all that it stands for somewhere in the file, as ('os', 'path')} of what is imported, and of names that are set to that."""
  names = {}
  for node in nodes:
    if isinstance(node, ast.Import):
      for alias in node.names:
        path = tuple(alias.name.split('.'))
        names.setdefault(alias.asname or path[0], set()).add(path if alias.asname else path[:1])
    if isinstance(node, ast.ImportFrom):
      path = tuple((node.module or '').split('.'))
      for alias in node.names:
        found = [c[-1] for c in CALLS | IMPORTING if c[:-1] == path] if alias.name == '*' else [alias.name]
        for name in found:
          names.setdefault(alias.asname or name, set()).add((*path, name))
  for node in nodes:
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Attribute):
      for target in node.targets:
        if isinstance(target, ast.Name):
          names.setdefault(target.id, {(target.id,)}).update(_called(node.value, names))
  return names


def _of(node, names, tests):
  if isinstance(node, ast.Import | ast.ImportFrom):
    module = [node.module or ''] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    yield from (f'imports {m}' for m in module if m.partition('.')[0] in MODULES)
  if isinstance(node, ast.Call):
    for called in sorted(_called(node.func, names)):
      yield from _of_call(node, called, tests)


def _of_call(node, called, tests):
  if called[:-1] in ((), ('builtins',)) and called[-1] in BUILTINS and not (tests and called[-1] == '__import__'):
    yield f'calls {called[-1]}'
  if called[-2:] in CALLS and not (tests and called[0] == 'runpy'):
    yield f'calls {".".join(called[-2:])}'
  for word in node.keywords:
    if word.arg in KEYWORDS and not (isinstance(word.value, ast.Constant) and word.value.value in (False, None)):
      yield f'passes {word.arg}'
  if called[-1] in ('extract', 'extractall') and not any(
    w.arg == 'filter' and getattr(w.value, 'value', '') == 'data' for w in node.keywords
  ):
    yield f"calls {called[-1]} without filter='data'"
  if called[-2:] in IMPORTING and not tests and not (node.args and _of_this_package(node.args[0])):
    yield 'imports a module whose name does not begin with pe_jax.'


def _called(function, names):
  """All that an expression may stand for: {('os', 'path', 'join')} of os.path.join; '' for what is not a name."""
  if isinstance(function, ast.Attribute):
    return {(*path, function.attr) for path in _called(function.value, names)}
  return names.get(function.id, {(function.id,)}) if isinstance(function, ast.Name) else {('',)}


def _of_this_package(name):
  if isinstance(name, ast.Constant):
    return str(name.value).startswith('pe_jax.')
  first = name.values[0] if isinstance(name, ast.JoinedStr) else None
  if isinstance(first, ast.FormattedValue):
    return isinstance(first.value, ast.Name) and first.value.id == '__name__'
  return isinstance(first, ast.Constant) and first.value.startswith('pe_jax.')
