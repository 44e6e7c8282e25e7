"""What the processes of the self-check do: the checks that need a backend, and the training runs, one of which gets killed."""

import functools
import math
import time

import jax
import numpy as np

from pe_jax import config as config_lib
from pe_jax import encodings, fingerprint, model, optim, parallel, resolve, step, train
from pe_jax.data import packing
from pe_jax.errors import UserError
from pe_jax.selfcheck import Row, contract, kernels
from pe_jax.selfcheck.killed import STEPS
from pe_jax.selfcheck.order import emit

ROWS = 8  # of a batch; more only where more devices share it
TRAINED = ('learned', 'rope', 't5')  # gradients of a table, of products, and of a table that pairs look things up in
LAST = 4  # seconds that the last encoding may take


def run(end, quick, workdir, corpus):
  """Emits the machine, what is to be checked, and a row for each check.

  `end`, of time.monotonic(), which all processes of a machine share, is when this one is stopped. In `workdir` it trains the run that is
  left alone (killed.py).
  """
  first = fixed(quick, workdir, corpus)
  emit({'machine': train.environment(config('rope')), 'wanted': [*first, *contract.names(quick)]})
  for name, function in first.items():
    emit(timed(name, function))
  if not kernels.cases():
    emit(Row('kernels', None, note=f'there are none for {jax.default_backend()}', count=0))
  for row in contract.rows(quick, end - LAST):
    emit(row)
  emit({'end': True})


def fixed(quick, workdir, corpus):
  """{name: function that gives a Row's fields} of what is checked whatever it takes, before the encodings."""
  found = {f'three runs of ten steps: {spec}': functools.partial(three_times, spec) for spec in (TRAINED[:1] if quick else TRAINED)}
  for name, spec, dtype in kernels.cases():
    found[f'kernel {name}: {spec}, {dtype}'] = functools.partial(kernels.compared, name, spec, dtype)
  found['float32 products as the backend makes them'] = contract.default_precision
  found['a run that is left alone'] = functools.partial(whole_run, workdir, corpus)
  return found


def whole_run(workdir, corpus):
  """Trains it, for killed.py to compare with."""
  loss = train.run(config(TRAINED[0], corpus), workdir)
  return {'holds': math.isfinite(loss), 'worst': f'{loss:.3f} nats', 'note': f'{STEPS} steps'}


def timed(check, function):
  """The Row of a check, whatever becomes of it."""
  start = time.monotonic()
  try:
    found = function()
  except Exception as error:  # another backend's errors have no common type, and the table shall have them all
    found = {'holds': False, 'note': f'{type(error).__name__}: {" ".join(str(error).split())[:300]}'}
  return Row(check, **found, seconds=time.monotonic() - start)


def config(spec, corpus=''):
  """A resolved config of a tiny model, with rows for all devices."""
  devices = jax.device_count()
  c = config_lib.default()
  c.update(encoding=spec, train_length=32, batch_size=-(-ROWS // devices) * devices, num_train_steps=STEPS, tensorboard=False)
  c.update(log_every_steps=1, eval_every_steps=20, eval_targets=500, checkpoint_every_steps=10)
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
  begin, digests = jax.jit(lambda: step.init(c, enc, tx)), set()
  for _ in range(3):
    state = spread.put_state(begin())
    for _ in range(10):
      state, numbers = spread.step(state, spread.put_batch(batch))
    if not numbers['finite']:
      return {'holds': False, 'note': f'loss {numbers["loss"]}'}
    digests.add(fingerprint.digest(spread.get_state(state).params))
  different = len(digests)
  flag = 'XLA_FLAGS=--xla_gpu_deterministic_ops=true may help' if jax.default_backend() == 'gpu' else ''
  note = flag if different > 1 else ''
  return {'holds': different == 1, 'worst': f'{different} result{"s" * (different > 1)}', 'allowed': '1 result', 'note': note}


def train_run(workdir, corpus):
  """Trains there."""
  try:
    train.run(config(TRAINED[0], corpus), workdir)
  except UserError as error:
    raise SystemExit(f'{error}') from error
