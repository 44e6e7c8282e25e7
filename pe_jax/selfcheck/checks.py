"""What the processes of the self-check do: the checks that need a backend, and the training run that gets killed."""

import time

import jax
import numpy as np

from pe_jax import config as config_lib
from pe_jax import encodings, model, optim, parallel, resolve, step, train
from pe_jax.data import packing
from pe_jax.errors import UserError
from pe_jax.selfcheck import Row, contract, kernels
from pe_jax.selfcheck.order import emit

ROWS = 8  # of a batch; more only where more devices share it
TRAINED = ('learned', 'rope', 't5')  # gradients of a table, of products, and of a table that pairs look things up in


def run(seconds, quick):
  """Emits the machine and then a row for each check; encodings have this many seconds."""
  emit({'machine': train.environment(config('rope'))})
  for spec in TRAINED[:1] if quick else TRAINED:
    emit(timed(f'three runs of ten steps: {spec}', lambda spec=spec: three_times(spec)))
  for name, spec, dtype in kernels.cases():
    emit(timed(f'kernel {name}: {spec}, {dtype}', lambda case=(name, spec, dtype): kernels.compared(*case)))
  if not kernels.cases():
    emit(Row('kernels', None, note=f'there are none for {jax.default_backend()}'))
  emit(timed('float32 products as the backend makes them', contract.default_precision))
  for row in contract.rows(time.monotonic() + seconds):
    emit(row)
  emit({'end': True})


def timed(check, function):
  """The Row of a check, whatever becomes of it."""
  start = time.monotonic()
  try:
    found = function()
  except Exception as error:  # another backend's errors have no common type, and the table shall have them all
    found = {'holds': False, 'note': f'{type(error).__name__}: {" ".join(str(error).split())[:300]}'}
  return Row(check, **found, seconds=time.monotonic() - start)


def config(spec, corpus='', steps=120):
  """A resolved config of a tiny model, with rows for all devices."""
  devices = jax.device_count()
  c = config_lib.default()
  c.update(encoding=spec, train_length=32, batch_size=-(-ROWS // devices) * devices, num_train_steps=steps, tensorboard=False)
  c.update(log_every_steps=1, eval_every_steps=40, eval_targets=500, checkpoint_every_steps=10)
  c.model.update(num_layers=2, embed_dim=32, num_heads=4, num_kv_heads=2)
  c.data.update(source='text', path=str(corpus), block_documents=64)
  return resolve.resolve(c)


def three_times(spec):
  """Ten steps on the same rows from the same seed, three times: one result, to the last bit."""
  c, rng = config(spec), np.random.default_rng(0)
  enc, tx = encodings.make(c.encoding, model.dims(c)), optim.make(c)
  spread = parallel.make(c, step.make(c, enc, tx), step.make_eval(c, enc), jax.devices())
  documents = [rng.integers(0, 256, 40).astype(np.int32) for _ in range(2 * c.batch_size)]
  rows = packing.windows(documents, c.train_length, 256).take(slice(c.batch_size))
  batch = {k: v for k, v in rows.as_dict().items() if k != 'source'} | {'row': np.arange(c.batch_size, dtype=np.int32)}
  digests = set()
  for _ in range(3):
    state = spread.put_state(step.init(c, enc, tx))
    for _ in range(10):
      state, numbers = spread.step(state, spread.put_batch(batch))
    if not numbers['finite']:
      return {'holds': False, 'note': f'loss {numbers["loss"]}'}
    digests.add(train.digest(spread.get_state(state).params))
  different = len(digests)
  flag = 'XLA_FLAGS=--xla_gpu_deterministic_ops=true may help' if jax.default_backend() == 'gpu' else ''
  note = flag if different > 1 else ''
  return {'holds': different == 1, 'worst': f'{different} result{"s" * (different > 1)}', 'allowed': '1 result', 'note': note}


def train_run(workdir, corpus):
  """Trains there."""
  try:
    train.run(config('rope', corpus), workdir)
  except UserError as error:
    raise SystemExit(f'{error}') from error
