"""Small real runs for tests: a corpus of a few kilobytes, a config file for it, and the entry points as processes."""

import atexit
import contextlib
import functools
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORDS = ('a', 'tree', 'stands', 'near', 'the', 'old', 'river', 'and', 'nobody', 'remembers', 'who', 'planted', 'it', 'there')

# A config file is a program, so it can also end the process at a given row of the log, as kill -9 or a cluster would.
CONFIG = """
import os, resource, signal
from pe_jax import metrics, workdir
from pe_jax.config import default, parse_arg

def get_config(arg=''):
  arg = parse_arg(arg, encoding='rope', train_length=16, factor=0.5, runlocal=False)
  c = default()
  c.encoding, c.train_length = arg.encoding, arg.train_length
  c.batch_size = 8
  c.num_train_steps = 4 if arg.runlocal else 40
  c.model.num_layers, c.model.embed_dim, c.model.num_heads = 1, 16, 2
  c.data.source, c.data.path, c.data.block_documents = 'text', CORPUS, 100
  c.optim.warmup_steps = 2
  c.log_every_steps, c.eval_every_steps, c.eval_targets, c.checkpoint_every_steps = 1, 10, 300, 5
  c.tensorboard = False
  return c

def stop(where):
  name, _, place = os.environ.get('STOP_AT', '').partition(' ')
  if place == where and name == 'FULL':  # from here on the disk has room for the logs and not for a checkpoint
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, resource.RLIM_INFINITY))
  elif place == where:
    if name == 'TORN':
      open(LOG, 'a').write('{"step": 3')
    os.kill(os.getpid(), signal.SIGKILL if name == 'TORN' else getattr(signal, name))

write_row, write_json = metrics.Log.metrics, workdir.write_json

def metrics_of(log, row):
  global LOG
  LOG = log._folder / 'metrics.jsonl'
  write_row(log, row)
  stop(f"{'validation' if 'validation_loss' in row else 'step'} {row['step']}")

def json_of(path, tree):
  stop(path.name)
  write_json(path, tree)

if 'STOP_AT' in os.environ:
  metrics.Log.metrics, workdir.write_json = metrics_of, json_of
"""


def corpus(folder, documents=240, seed=0):
  """Writes a text source of short documents, 10 to 400 bytes, into the folder."""
  rng = random.Random(seed)
  lines = [json.dumps({'text': ' '.join(rng.choices(WORDS, k=rng.randint(3, 80)))}) for _ in range(documents)]
  folder.mkdir(parents=True, exist_ok=True)
  (folder / 'some.jsonl').write_text('\n'.join(lines[::2]) + '\n')
  (folder / 'more.jsonl').write_text('\n'.join(lines[1::2]) + '\n')
  return folder


@functools.cache
def home():
  """A folder for the tests of this process: the corpus, a config file and a compilation cache."""
  folder = pathlib.Path(tempfile.mkdtemp(prefix='pe_jax_runs_'))
  atexit.register(shutil.rmtree, folder, ignore_errors=True)
  corpus(folder / 'corpus')
  (folder / 'tiny.py').write_text(CONFIG.replace('CORPUS', repr(str(folder / 'corpus'))))
  return folder


def config(**changes):
  """The config of tiny.py in this process. Keys with a double underscore are nested fields: optim__learning_rate."""
  from pe_jax import config as config_lib

  c = config_lib.default()
  c.update(batch_size=8, train_length=16, num_train_steps=4, log_every_steps=1, eval_every_steps=0, eval_targets=300)
  c.update(checkpoint_every_steps=0, tensorboard=False)
  c.model.update(num_layers=1, embed_dim=16, num_heads=2)
  c.data.update(source='text', path=str(home() / 'corpus'), block_documents=100)
  c.optim.warmup_steps = 0
  for key, value in changes.items():
    c.update_from_flattened_dict({key.replace('__', '.'): value})
  return c


def environment(devices=1, **more):
  """For a process with that many devices; compiled programs are shared, or every start would compile for seconds."""
  cache = {'JAX_COMPILATION_CACHE_DIR': str(home() / 'cache'), 'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0'}
  cache['JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES'] = '-1'
  return os.environ | cache | {'XLA_FLAGS': f'--xla_force_host_platform_device_count={devices}', 'JAX_PLATFORMS': 'cpu'} | more


def start(script, *args, devices=1, **more):
  """A running process of train.py or eval.py."""
  return subprocess.Popen(
    [sys.executable, str(ROOT / script), *map(str, args)],
    env=environment(devices, **more),
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def finish(process, timeout=120):
  """(exit code, stdout, stderr)."""
  out, err = process.communicate(timeout=timeout)
  return process.returncode, out, err


def served(cases, timeout=300):
  """[(exit code, stdout, stderr, seconds)] of command lines {'argv', 'env'}, from one process that has imported everything.

  A list of such in the place of one is run at once (fork_server.py). After `timeout` seconds all of them are killed.
  """
  command = [sys.executable, str(ROOT / 'tests' / 'fork_server.py')]
  pipes = {name: subprocess.PIPE for name in ('stdin', 'stdout', 'stderr')}
  with subprocess.Popen(command, env=environment(), cwd=ROOT, text=True, start_new_session=True, **pipes) as server:
    try:
      out, err = server.communicate(json.dumps(cases), timeout=timeout)
    finally:
      with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(server.pid, signal.SIGKILL)  # what it may have left too
  assert server.returncode == 0, err
  return json.loads(out)


@functools.cache
def trained(encoding='rope', **changes):
  """The workdir of a run of four steps, made once in this process."""
  from pe_jax import train

  folder = pathlib.Path(tempfile.mkdtemp(dir=home()))
  train.run(config(encoding=encoding, **changes), folder)
  return folder


def contents(folder):
  """{path: bytes} of all files."""
  return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(pathlib.Path(folder).rglob('*')) if p.is_file()}


@contextlib.contextmanager
def quick_compiles():
  """Compiles in this process with few optimizations and once only: a tiny step takes XLA seconds and runs for milliseconds."""
  import jax
  from jax.experimental.compilation_cache import compilation_cache

  settings = {
    'jax_compilation_cache_dir': str(home() / 'quick_cache'),
    'jax_persistent_cache_min_compile_time_secs': 0.0,
    'jax_persistent_cache_min_entry_size_bytes': -1,
  }
  before = {name: getattr(jax.config, name) for name in settings}
  for name, value in settings.items():
    jax.config.update(name, value)
  jax.config.update('jax_disable_most_optimizations', True)
  compilation_cache.reset_cache()
  try:
    yield
  finally:
    jax.config.update('jax_disable_most_optimizations', False)
    for name, value in before.items():
      jax.config.update(name, value)
    compilation_cache.reset_cache()
