"""The notebook runs from top to bottom as it is committed, and its committed outputs came from such a run."""

import json
import os
import pathlib
import re

import pytest
import tiny_runs as runs

NOTEBOOK = runs.ROOT / 'scripts' / 'colab.ipynb'


def cells():
  """The cells of code."""
  return [cell for cell in json.loads(NOTEBOOK.read_text())['cells'] if cell['cell_type'] == 'code']


def said(cell):
  """What a cell printed and shows. Not its stderr: bars end without a line feed, and what is printed next would not begin a line."""
  outputs = [out for out in cell['outputs'] if out.get('name') != 'stderr']
  return ''.join(''.join(out.get('text', '')) + ''.join(out.get('data', {}).get('text/plain', '')) for out in outputs)


@pytest.mark.filterwarnings('ignore')  # of the kernel's packages
def test_the_notebook_runs_from_top_to_bottom(tmp_path, monkeypatch):
  nbclient, nbformat = pytest.importorskip('nbclient'), pytest.importorskip('nbformat')
  pytest.importorskip('ipykernel')
  for name, value in runs.environment(PE_JAX_NOTEBOOK='small').items():
    monkeypatch.setenv(name, value)
  monkeypatch.setenv('PE_JAX_DATA', str(runs.home() / 'data'))
  monkeypatch.setenv('PYTHONPATH', os.pathsep.join([str(runs.ROOT), os.environ.get('PYTHONPATH', '')]))
  notebook = nbformat.read(NOTEBOOK, as_version=4)
  nbclient.NotebookClient(notebook, timeout=400, kernel_name='python3', resources={'metadata': {'path': str(tmp_path)}}).execute()
  text = ''.join(said(cell) for cell in notebook.cells if cell.cell_type == 'code')
  assert re.search(r'^cpu: 1 x cpu$', text, re.M)
  for encoding in ('rope', 'alibi'):
    assert re.search(rf'^{encoding}: \d\.\d+ nats a byte', text, re.M)
  assert re.search(r'nonoverlapping +rope +yarn(\(factor=\d\))? +\d', text), text
  assert any('image/png' in out.get('data', {}) for cell in notebook.cells if cell.cell_type == 'code' for out in cell.outputs)
  assert (tmp_path / 'runs' / 'loss_by_position.png').stat().st_size > 10_000
  assert 'not on Colab' in text


def test_the_committed_outputs_are_of_one_whole_run_and_name_no_machine():
  counts = [cell['execution_count'] for cell in cells()]
  assert counts == list(range(1, len(counts) + 1))
  text = NOTEBOOK.read_text()
  assert len(text) < 300_000
  images = [out['data']['image/png'] for cell in cells() for out in cell['outputs'] if 'image/png' in out.get('data', {})]
  assert len(images) == 1
  assert 20_000 < len(images[0]) * 3 / 4 < 200_000
  spoken = ''.join(said(cell) for cell in cells())
  assert not any(out['output_type'] == 'error' or out.get('name') == 'stderr' for cell in cells() for out in cell['outputs'])
  for mine in (str(pathlib.Path.home()), os.uname().nodename, '/tmp/', '/home/', '/work/', '://'):
    assert mine not in spoken, mine
  assert re.search(r'rope: \d\.\d+ nats', spoken)
