"""Sweep files for tests: a base of one tiny layer, and what sweep() yields on top of it."""

from pe_jax import workdir
from pe_jax.sweep import plan

BASE = """
from pe_jax.config import default
from pe_jax.errors import ConfigError

def get_config(arg=''):
  c = default()
  c.train_length, c.num_train_steps, c.batch_size = 16, 10, 4
  c.model.num_layers, c.model.embed_dim, c.model.num_heads = 1, 16, 2
  return c

"""
TWO = "def sweep():\n  yield 'a', {'encoding': 'rope'}\n  yield 'b', {'encoding': 'alibi', 'seed': 3}\n"
STAGES = """
def sweep(done, folder):
  for name in 'ab':
    yield name, {'encoding': 'rope' if name == 'a' else 'alibi'}, ()
  if len(done) >= 2:
    yield 'best', {'encoding': min(done, key=done.get), 'init_from': f'{folder}/a'}
"""

# Of runs that are really trained, on CORPUS.
REAL = """
from pe_jax.config import default

def get_config(arg=''):
  c = default()
  c.update(batch_size=8, train_length=16, num_train_steps=300, log_every_steps=1, eval_every_steps=0, eval_targets=300)
  c.update(checkpoint_every_steps=1000, tensorboard=False)
  c.model.update(num_layers=1, embed_dim=16, num_heads=2)
  c.data.update(source='text', path=CORPUS, block_documents=100)
  c.optim.warmup_steps = 0
  return c

def sweep(done, folder):
  yield 'good', {'seed': 1, 'num_train_steps': 2000}
  yield 'no-text', {'data.path': CORPUS + '/nosuch'}
  yield 'diverges', {'optim.learning_rate': 1e9, 'optim.clip_norm': 0.0}, ()
  for name in ('crashes', 'hangs', 'memory'):
    yield name, {}
  yield 'long', {'num_train_steps': 1_000_000}
  if 'good' in done:
    yield 'after', {'init_from': f'{folder}/good', 'num_train_steps': 5}, ()

def evaluation():
  return {'lengths': [16, 32], 'protocols': 'nonoverlapping', 'max_targets': 500}

def notes(done):
  return [f'trained or not finite: {" ".join(sorted(done))}']
"""


def sweep_of(tmp_path, text, arg=''):
  """The Sweep of a file with the base and this text, in tmp_path/runs."""
  (tmp_path / 'sweep.py').write_text(BASE + text)
  return plan.Sweep(f'{tmp_path}/sweep.py:{arg}', tmp_path / 'runs')


def finish(folder, loss):
  """As if a run had been trained there."""
  folder.mkdir(parents=True, exist_ok=True)
  workdir.write_json(folder / 'DONE', {'step': 10, 'validation_loss': loss, 'params_sha256': ''})
