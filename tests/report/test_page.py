"""The page holds what the runs hold, nothing of it as markup, and loads nothing."""

import base64
import hashlib
import html.parser
import json
import re
import signal
import subprocess
import sys

import pages
import pytest
import tiny_runs
import written_runs as written

from pe_jax.errors import ConfigError
from pe_jax.report import markup, page

HOSTILE = '<script>alert(1)</script>"\'&<img src=x onerror=alert(2)>$policy'


class Read(html.parser.HTMLParser):
  """Tags with attributes, and text by the element it stands in."""

  def __init__(self, path):
    super().__init__(convert_charrefs=True)
    self.tags, self.texts, self._open = [], [], []
    self.feed(path.read_text())

  def handle_starttag(self, tag, attributes):
    self.tags.append((tag, dict(attributes)))
    self._open.append(tag)

  def handle_endtag(self, tag):
    while self._open and self._open.pop() != tag:
      pass

  def handle_data(self, data):
    self.texts.append((self._open[-1] if self._open else '', data))

  def all(self, tag):
    return [attributes for name, attributes in self.tags if name == tag]

  def text(self, tag=None):
    return [text for name, text in self.texts if (tag is None and name not in ('script', 'style')) or name == tag]


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  folder = tmp_path_factory.mktemp('page')
  written.sweep(folder / 'runs', ['rope', 'alibi'], rise=0.1)
  written.run(folder / 'runs' / 'probed', written.config('nope'), [
    *written.context('nope', dict.fromkeys(written.LENGTHS, 1.5), targets='other'),
    *(written.needle('nope', n, 0.5, variant) for n in (64, 128) for variant in ('single', 'multi_key')),
    *(written.attention('nope', n, [1.0, 2.0]) for n in (64, 128)),
  ])  # fmt: skip
  written.run(folder / 'runs' / 'failed', written.config('t5'), steps=300, done=False, log='ERROR: loss: is nan\n')
  return pages.make(folder / 'runs', folder / 'out')


def test_the_page_reads_without_javascript(made):
  read = Read(made)
  text = ' '.join(read.text())
  for said in (
    'rope', 'alibi', 'nope', 'context at 64', '+0.300', '1.505', 'ERROR: loss: is nan', 'must pass', 'needle (4 rows)',
    'not comparable: other targets than the others were scored at 64, 91, 128, 256', 'multi_key', 'D(n) <= 0.05 nats', 'jax',
  ):  # fmt: skip
    assert said in text, said
  names = {attributes['id'] for attributes in read.all('table')}
  assert {'ranking', 'runs', 'table_context_difference', 'table_length_nonoverlapping', 'table_entropy'} <= names
  pictures = [attributes['src'] for attributes in read.all('img')]
  assert len(pictures) == 15
  assert all(base64.b64decode(src.removeprefix('data:image/png;base64,')).startswith(b'\x89PNG') for src in pictures)


def test_cards_have_the_commands_that_give_the_run_again(made):
  blocks = Read(made).text('pre')
  again = [block for block in blocks if block.startswith('python train.py')]
  assert len(again) == 6
  (rope,) = [block for block in again if '000_1/config.json' in block]
  assert re.search(r'--config=\S*/000_1/config.json --workdir=\S*/000_1_again\n', rope)
  assert '--lengths=64,91,128,256 --protocols=context,nonoverlapping,prefix --max_targets=1200' in rope
  assert any('environment 1' in text for text in Read(made).text('a'))


def test_cards_tell_six_lengths_apart(made):
  blocks = [block.splitlines() for block in Read(made).text('pre') if block.startswith('trained')]
  found = next(lines for lines in blocks if 'alibi: acceptable' in lines[-1])
  told = {line[:11].strip(): line[13:] for line in found}
  assert list(told) == ['trained', 'configured', 'framework', 'one request', 'a batch', 'reliable']
  assert told['trained'].startswith('64 ')
  assert told['configured'].startswith('any ')
  assert told['framework'].startswith('2147483647 ')
  assert told['one request'].startswith('>= 256 (4 L) ')
  assert told['a batch'].startswith('>= 64 ')
  assert 'by D(n) <= 0.05 nats' in told['reliable']


def test_all_of_the_configuration_is_on_the_page(made):
  """What runs share stands once, what is a run's own in its card."""
  blocks = Read(made).text('pre')
  shared = next(block for block in blocks if 'optim.learning_rate = ' in block)
  assert 'model.num_layers = 2' in shared
  assert 'encoding' not in [line.partition(' = ')[0] for line in shared.splitlines()]
  assert sum('encoding = "alibi"\n' in block and 'seed = 1' in block for block in blocks) == 1


def test_nothing_is_loaded_and_only_our_scripts_may_run(made):
  text, read = made.read_text(), Read(made)
  assert not [attributes for tag, attributes in read.tags if tag in ('link', 'iframe', 'object', 'base', 'form')]
  assert all(src.startswith('data:image/png') for tag, a in read.tags if (src := a.get('src')))
  assert all(href.startswith('#') for tag, a in read.tags if (href := a.get('href')))
  assert not [name for _, a in read.tags for name in a if name.startswith('on')]
  policy = next(a['content'] for a in read.all('meta') if a.get('http-equiv') == 'Content-Security-Policy')
  assert policy.startswith("default-src 'none'; script-src 'sha256-")
  assert 'unsafe-eval' not in policy
  scripts = re.findall(r'<script>(.*?)</script>', text, re.DOTALL)
  assert len(scripts) == 2
  for script in scripts:
    assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy
  assert 'uPlot' in scripts[0]


def test_what_a_run_is_called_or_says_is_never_markup(tmp_path):
  tree = written.config(HOSTILE, seed=0) | {'data': written.config()['data'] | {'path': HOSTILE}}
  rows = [*written.context(HOSTILE, dict.fromkeys(written.LENGTHS, 1.5)), written.row('sliding', HOSTILE, 64, 1.5)]
  rows += [written.needle(HOSTILE, 64, 0.5, HOSTILE), written.attention(HOSTILE, 64, [1.0])]
  for row in rows:
    row['split'] = row['targets_sha256'] = HOSTILE
  name = HOSTILE.replace('/', '|')
  written.run(tmp_path / 'runs' / name, tree, rows)
  written.run(tmp_path / 'runs' / 'b', tree, done=False, log=f'ERROR: {HOSTILE}\n')
  (tmp_path / 'runs' / 'b' / 'env.json').write_text(json.dumps({'python': HOSTILE, 'device_kind': HOSTILE, 'packages': HOSTILE}))
  read = Read(pages.make(tmp_path / 'runs', tmp_path / 'out', title=HOSTILE))
  assert [a.get('id') for a in read.all('script')] == ['data', None, None]
  assert all(a['src'].startswith('data:') for a in read.all('img'))
  assert not [key for _, a in read.tags for key in a if key.startswith('on')]
  assert HOSTILE in ''.join(read.text('h1'))
  data = json.loads(''.join(text for tag, text in read.texts if tag == 'script' and text.startswith('{"lines"')))
  assert [line['label'] for line in data['lines']] == [f'{HOSTILE}, on {HOSTILE}']
  assert any(f'ERROR: {HOSTILE}' in text for text in read.text())


def test_text_that_would_mislead_is_shown_as_such():
  assert markup.esc('a\u202eb\x00\x1b[2J\ud800') == 'a\ufffdb\ufffd\ufffd[2J\ufffd'
  assert markup.esc('é ∑ 中\n') == 'é ∑ 中\n'
  assert json.loads(page._json({'x': '</script><!--'})) == {'x': '</script><!--'}
  assert '<' not in page._json({'x': '</script><!--'})


def test_a_library_that_is_absent_or_altered_is_refused(monkeypatch):
  monkeypatch.setitem(page.UPLOT, 'uplot.min.css', '0' * 64)
  with pytest.raises(ConfigError, match=r'its uplot\.min\.css is not that of uPlot'):
    page.library()
  monkeypatch.setattr(page, 'PACKAGE', 'no-such-package')
  with pytest.raises(ConfigError, match='no-such-package: not installed'):
    page.library()


def test_a_folder_of_runs_without_results_gives_a_page(tmp_path):
  written.run(tmp_path / 'runs' / 'a', written.config(), steps=300, done=False)
  text = ' '.join(Read(pages.make(tmp_path / 'runs', tmp_path / 'out')).text())
  assert 'stopped at step 300' in text


def test_a_watched_page_loads_itself_again(tmp_path):
  written.run(tmp_path / 'runs' / 'a', written.config())
  read = Read(pages.make(tmp_path / 'runs', tmp_path / 'out', refresh=20))
  assert [a['content'] for a in read.all('meta') if a.get('http-equiv') == 'refresh'] == ['20']


def test_the_command_writes_everything(tmp_path):
  written.sweep(tmp_path / 'runs', ['rope', 'alibi'], seeds=(0,))
  command = [sys.executable, tiny_runs.ROOT / 'scripts' / 'report.py', f'--workdir={tmp_path / "runs"}']
  done = subprocess.run(command, capture_output=True, text=True, timeout=300)
  assert done.returncode == 0, done.stderr
  assert 'index.html: 2 runs (2 finished), ' in done.stdout
  out = tmp_path / 'runs' / 'report'
  assert {p.name for p in out.iterdir()} >= {'index.html', 'figures', 'results.parquet', 'results.csv', 'runs.csv', 'positions.parquet'}
  wrong = subprocess.run([*command[:2], f'--workdir={tmp_path / "nosuch"}'], capture_output=True, text=True, timeout=300)
  assert (wrong.returncode, wrong.stderr.count('\n')) == (3, 1)
  assert 'there is no such folder' in wrong.stderr
  (tmp_path / 'empty').mkdir()
  empty = subprocess.run([*command[:2], f'--workdir={tmp_path / "empty"}'], capture_output=True, text=True, timeout=300)
  assert (empty.returncode, 'no run below it' in empty.stderr) == (3, True)


@pytest.mark.parametrize('flag', ['--margin=0', '--margin=nan', '--margin=-1', '--bar=0'])
def test_a_margin_of_nothing_is_refused_at_once(flag, tmp_path):
  command = [sys.executable, tiny_runs.ROOT / 'scripts' / 'report.py', f'--workdir={tmp_path}', flag]
  done = subprocess.run(command, capture_output=True, text=True, env=tiny_runs.environment(), timeout=100)
  assert done.returncode == 2
  assert f'{flag.partition("=")[0]}: ' in done.stderr
  assert 'must be a number above 0' in done.stderr
  assert [*tmp_path.iterdir()] == []


def test_while_a_run_goes_on_the_page_is_written_again_until_ctrl_c(tmp_path):
  path = written.run(tmp_path / 'a', written.config(), steps=300, done=False)
  command = [sys.executable, tiny_runs.ROOT / 'scripts' / 'report.py', f'--workdir={tmp_path}', '--watch', '--every=1']
  with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
    assert '1 stopped' in watching.stdout.readline()
    page = tmp_path / 'report' / 'index.html'
    assert 'http-equiv="refresh"' in page.read_text()
    written.jsonl(path / 'metrics.jsonl', [{'step': 400, 'loss': 1.0}])
    assert '1 stopped' in watching.stdout.readline()
    assert 'stopped at step 400' in page.read_text()
    watching.send_signal(signal.SIGINT)
    assert '1 stopped' in watching.stdout.readline()
    assert watching.wait(60) == 0
  assert 'http-equiv="refresh"' not in page.read_text()  # no longer written, and so no longer loaded again


def watching(folder, planted=''):
  """scripts/report.py --watch as a process, in which some lines of Python are run first."""
  script = str(tiny_runs.ROOT / 'scripts' / 'report.py')
  argv = [script, f'--workdir={folder}', '--watch', '--every=1']
  program = f'{planted}\nimport runpy, sys\nsys.argv = {argv!r}\nrunpy.run_path({script!r}, run_name="__main__")'
  command = [sys.executable, '-c', program]
  return subprocess.Popen(command, cwd=tiny_runs.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def told(process, text):
  """Reads what a process says up to a line that holds the text."""
  for line in process.stdout:
    if text in line:
      return line
  raise AssertionError(f'ended with {process.wait()} and has not said: {text}')


def test_a_watch_may_begin_before_the_first_run_and_sees_one_that_is_killed(tmp_path):
  """The run's process holds LOCK and writes nothing more: that it is gone is all that changes."""
  folder = tmp_path / 'runs' / 'a'
  holds = f'import time\nfrom pe_jax import workdir\nwith workdir.locked({str(folder)!r}):\n  print(1, flush=True)\n  time.sleep(600)'
  with watching(tmp_path / 'runs') as watch:
    told(watch, 'no run below it yet, so this waits')
    written.run(folder, written.config(), steps=300, done=False)
    with subprocess.Popen([sys.executable, '-c', holds], cwd=tiny_runs.ROOT, stdout=subprocess.PIPE, text=True) as run:
      assert run.stdout.readline() == '1\n'
      told(watch, '1 runs (1 running)')
      run.kill()
    told(watch, '1 runs (1 stopped)')
    watch.kill()


def test_a_fault_while_the_page_is_written_is_told_and_the_watch_goes_on_but_what_a_user_must_mend_ends_it(tmp_path):
  path = written.run(tmp_path / 'a', written.config(), steps=300, done=False)
  planted = 'from pe_jax.report import page\nfrom pe_jax.errors import WriteError\n'
  planted += 'write, faults = page.write, [KeyError("half"), WriteError("full")]\n'
  planted += (
    'def once(*args):\n  if len(faults) > 1 or args[2][0].step > 300:\n    raise faults.pop(0)\n  return write(*args)\npage.write = once'
  )
  with watching(tmp_path, planted) as watch:
    told(watch, "not written this time: KeyError: 'half'")
    (path / 'log.txt').write_text('something\n')
    told(watch, '1 runs (1 stopped)')
    written.jsonl(path / 'metrics.jsonl', [{'step': 400, 'loss': 1.0}])
    told(watch, 'ERROR: full')
    assert watch.wait(60) == 4


def test_a_stored_configuration_is_a_config_file(tmp_path):
  from pe_jax import json_config, resolve

  tree = written.config('alibi', seed=3)
  path = written.run(tmp_path / 'a', tree) / 'config.json'
  assert resolve.resolve(json_config.get_config(str(path))).to_dict() == tree
