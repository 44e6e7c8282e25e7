"""No source of this program executes data; what would is found, whatever the file."""

import pathlib
import tomllib

import pytest
import static_gate

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = [ROOT / 'train.py', ROOT / 'eval.py', *(p for folder in ('pe_jax', 'configs') for p in sorted((ROOT / folder).rglob('*.py')))]
# The reader of --allow_pickle, which knows no name but those of tensors, and the evil pickles that it is given.
EXCEPT = ('pe_jax/weights/pickled.py', 'tests/weights/test_pickled.py')
AROUND = [p for folder in ('scripts', 'tests') for p in sorted((ROOT / folder).rglob('*.py'))]


def test_no_source_does_what_it_may_not():
  found = [said for path in SOURCES for said in static_gate.faults(path.read_text(), path.relative_to(ROOT).as_posix())]
  found += [said for path in AROUND for said in static_gate.faults(path.read_text(), path.relative_to(ROOT).as_posix(), tests=True)]
  assert [said for said in found if not said.startswith(EXCEPT)] == []
  assert {said.partition(':')[0] for said in found} == set(EXCEPT)
  assert len(SOURCES) > 150


@pytest.mark.parametrize(
  'line',
  [
    'import pickle',
    'from cloudpickle import loads',
    'import os, dill.session',
    'eval(text)',
    'exec(text)',
    "compile(text, 'x', 'exec')",
    '__import__(name)',
    "os.system('ls')",
    "subprocess.run('ls', shell=True)",
    'subprocess.run(command, shell=shell)',
    "subprocess.getoutput('ls')",
    'yaml.load(text)',
    'torch.load(path)',
    'np.load(path, allow_pickle=True)',
    'AutoModel.from_pretrained(name, trust_remote_code=True)',
    'tarfile.open(path).extractall(folder)',
    "tar.extract(member, filter='fully_trusted')",
    'runpy.run_path(path)',
    'importlib.import_module(name)',
    "importlib.import_module(f'{name}.x')",
    "shutil.unpack_archive('a.zip')",
    'builtins.eval(text)',
  ],
)
def test_what_may_not_be_done_is_found(line):
  (said,) = static_gate.faults(f'def f():\n  {line}\n')
  assert said.startswith('source:2: ')


@pytest.mark.parametrize(
  ('imported', 'line'),
  [
    ('from os import system', "system('ls')"),
    ('from os import system as run', "run('ls')"),
    ('import os as o', "o.popen('ls')"),
    ('from os import *', "system('ls')"),
    ('from subprocess import getoutput', "getoutput('ls')"),
    ('from yaml import load', 'load(text)'),
    ('from yaml import unsafe_load as load', 'load(text)'),
    ('import yaml as y', 'y.full_load(text)'),
    ('from torch import load', 'load(path)'),
    ('import torch as t', 't.load(path)'),
    ('from importlib import import_module', 'import_module(name)'),
    ('from importlib import import_module as get', "get(f'{name}.x')"),
    ('import importlib', 'importlib.__import__(name)'),
    ('from shutil import unpack_archive', "unpack_archive('a.zip')"),
    ('import shutil as s', "s.unpack_archive('a.zip')"),
    ('from runpy import run_path', 'run_path(path)'),
    ('from builtins import exec as do', 'do(text)'),
    ('import os; run = os.system', "run('ls')"),
    ('run = eval', 'run(text)'),
    ('eval = model.eval', 'eval(text)'),
    ('from yaml import load; from json import load', 'load(text)'),  # whichever it is
  ],
)
def test_it_is_found_by_whatever_name_it_is_imported(imported, line):
  (said,) = static_gate.faults(f'{imported}\ndef f():\n  {line}\n')
  assert said.startswith('source:3: ')


@pytest.mark.parametrize(
  'line',
  [
    "tar.extractall(folder, filter='data')",
    'jax.jit(f).lower(x).compile()',
    'ast.literal_eval(text)',
    'model.eval()',
    'np.load(path, allow_pickle=False)',
    "importlib.import_module(f'pe_jax.tasks.{name}')",
    "importlib.import_module(f'{__name__}.{name}')",
    'json.load(file)',
    'from json import load; load(file)',
    'from re import compile; compile(text)',
    'import re as os; os.compile(text)',
    "from importlib import import_module; import_module('pe_jax.tasks.x')",
    'from pe_jax.yaml import safe_load as load; load(text)',
    'from shutil import make_archive as pack; pack(text)',
  ],
)
def test_what_is_like_it_and_harmless_is_not(line):
  assert static_gate.faults(line) == []


def test_the_linter_looks_for_the_same():
  settings = tomllib.loads((ROOT / 'pyproject.toml').read_text())['tool']['ruff']['lint']
  assert {'S301', 'S302', 'S307', 'S506', 'S602'} <= set(settings['select'])
  assert not any(code.startswith('S') and not code.startswith('SIM') for code in settings['ignore'])
