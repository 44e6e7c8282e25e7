"""What this program's own sources may not do: execute data, unpack without a filter, hand text to a shell. Read from the syntax tree."""

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
}
KEYWORDS = {'shell', 'allow_pickle', 'trust_remote_code'}  # = True


def faults(source, name='source', tests=False):
  """Sentences on what a file does that it may not. `tests`: they may run files of this tree and import by name."""
  return [f'{name}:{node.lineno}: {said}' for node in ast.walk(ast.parse(source)) for said in _of(node, tests)]


def _of(node, tests):
  if isinstance(node, ast.Import | ast.ImportFrom):
    module = [node.module or ''] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    yield from (f'imports {m}' for m in module if m.partition('.')[0] in MODULES)
  if not isinstance(node, ast.Call):
    return
  called = _called(node.func)
  if called[-1] in BUILTINS and len(called) == 1 and not (tests and called[-1] == '__import__'):
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
  if called[-2:] == ('importlib', 'import_module') and not tests and not _of_this_package(node.args[0]):
    yield 'imports a module whose name does not begin with pe_jax.'


def _called(function):
  """('os', 'path', 'join') of the expression os.path.join; '' for what is not a name."""
  if isinstance(function, ast.Attribute):
    return (*_called(function.value), function.attr)
  return (function.id,) if isinstance(function, ast.Name) else ('',)


def _of_this_package(name):
  if isinstance(name, ast.Constant):
    return str(name.value).startswith('pe_jax.')
  first = name.values[0] if isinstance(name, ast.JoinedStr) else None
  if isinstance(first, ast.FormattedValue):
    return isinstance(first.value, ast.Name) and first.value.id == '__name__'
  return isinstance(first, ast.Constant) and first.value.startswith('pe_jax.')
