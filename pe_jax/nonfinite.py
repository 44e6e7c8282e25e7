"""A step that was not finite: what is written down of it, and how to see it again.

That a step is not finite is decided inside the compiled step, which then changes nothing (step.py). Here it leaves nonfinite_<step>.json:
step, loss, gradient norm, learning rate, where in the data the batch is and its hash, and of every array of the state the largest entry and
how many are not finite. `replay` takes the steps from the newest checkpoint before it once more and looks into the gradient. A run that
stops leaves one; a run that skips the step goes on, and its older checkpoints go as keep_checkpoints says: then nothing can be replayed.
"""

import contextlib
import functools
import json
import math

import jax
import jax.numpy as jnp

from pe_jax import checkpoint, data, encodings, fingerprint, hosts, model, optim, parallel, progress, remote, step
from pe_jax import workdir as workdir_lib
from pe_jax.errors import DataError


def dump(folder, n, numbers, batch, position, state, writes):
  """Writes nonfinite_<n>.json, in the process that `writes`; all processes must call it.

  `numbers`: of the step; `batch`: all of its rows; `position`: of the data before it; `state`: the state it left as it was.
  """
  row = {name: number(numbers[name]) for name in ('loss', 'gradient_norm', 'learning_rate')}
  row |= {'step': n, 'position': position, 'batch_sha256': fingerprint.digest(batch)}
  row['rows_sha256'] = [fingerprint.digest(tokens) for tokens in batch['tokens']]
  row['arrays'] = stats({'params': state.params, 'opt': state.opt})
  if writes:
    workdir_lib.write_json(remote.path(folder) / f'nonfinite_{n}.json', row)


def number(x):
  """A number for strict JSON, which has no word for NaN and infinity: those become text."""
  x = float(x)
  return x if math.isfinite(x) else str(x)


def stats(tree):
  """{name: {'largest': of the finite entries, 'not_finite': how many are not}} of the arrays of floats."""
  leaves = {name: x for name, x in fingerprint.by_name(tree).items() if jnp.issubdtype(x.dtype, jnp.inexact)}
  fetched = jax.device_get({name: hosts.settled(_stats(x)) for name, x in leaves.items()})
  return {name: {'largest': number(large), 'not_finite': int(bad)} for name, (large, bad) in fetched.items()}


@jax.jit
def _stats(x):
  finite = jnp.isfinite(x)
  return jnp.max(jnp.where(finite, jnp.abs(x), 0), initial=0), jnp.sum(~finite, dtype=jnp.int32)


def replay(workdir, n=0):
  """Takes step n again, of which there must be a nonfinite_<n>.json; 0: the newest. Returns what was found, a dict.

  'from': the step of the checkpoint it began from; 'same_batch', 'same_numbers': whether batch and numbers came out as they were written;
  'loss', 'gradient_norm', 'finite'; 'arrays': `stats` of parameters, optimizer and gradient.
  """
  told = _told(workdir, n)
  n, config = told['step'], workdir_lib.read_config(workdir)
  enc, tx = encodings.make(config.encoding, model.dims(config)), optim.make(config)
  spread = parallel.make(config, step.make(config, enc, tx), step.make_eval(config, enc), jax.devices())
  batches, _, record = data.streams(config)
  workdir_lib.check_data(workdir, record)
  state, first = _restored(workdir, config, spread, batches, functools.partial(step.init, config, enc, tx), n)
  with progress.bar(n - first, label=f'{workdir}: from step {first} to {n}') as bar:
    for k in range(first + 1, n + 1):
      batch = next(batches)
      if k == n:
        grads = _gradient(config, enc, spread, state, batch)
        arrays = stats({'params': spread.get_state(state).params, 'opt': spread.get_state(state).opt, 'gradient': grads})
      state, numbers = spread.step(state, spread.put_batch(batch))
      bar.advance()
  numbers = {name: number(x) for name, x in jax.device_get(numbers).items()}
  return {
    'step': n,
    'from': first,
    'same_batch': fingerprint.digest(batch) == told['batch_sha256'],
    'same_numbers': all(numbers[name] == told[name] for name in ('loss', 'gradient_norm')),
    'loss': numbers['loss'],
    'gradient_norm': numbers['gradient_norm'],
    'finite': bool(numbers['finite']),
    'arrays': arrays,
  }


def _told(workdir, n):
  paths = {int(p.stem.partition('_')[2]): p for p in remote.path(workdir).glob('nonfinite_*.json')}
  if not paths or (n and n not in paths):
    there = ', '.join(map(str, sorted(paths))) or 'none'
    which = f'step {n}' if n else 'step'
    raise DataError(f'{workdir}: no {which} there that was not finite (nonfinite_<step>.json: {there})')
  return json.loads(paths[n or max(paths)].read_text())


def _restored(workdir, config, spread, batches, init, n):
  """(state, step) of the newest checkpoint before step n, with the data where it stood."""
  with contextlib.closing(checkpoint.Checkpoints(workdir, read_only=True)) as checkpoints:
    before = [k for k in checkpoints.steps() if k < n]
    if not before:
      there = ', '.join(map(str, checkpoints.steps())) or 'none'
      kept = (
        f'keep_checkpoints={config.keep_checkpoints} keeps the newest and the best; a larger one, or nonfinite=stop, keeps what is needed'
      )
      raise DataError(f'{workdir}: step {n} cannot be taken again, for no checkpoint from before it is left (there are {there}; {kept})')
    start = jax.jit(init)()
    pmap = config.parallel == 'pmap'
    state, saved = checkpoints.restore(before[-1], start if pmap else spread.put_state(start))
  batches.set_state(saved['position'])
  return spread.put_state(state) if pmap else state, before[-1]


def _gradient(config, enc, spread, state, batch):
  """The gradient of the batch's mean loss."""
  sums = step.make_sums(config, enc)
  if config.parallel == 'jit':
    sums, batch = parallel.within(parallel.mesh(config, jax.devices()), sums), spread.put_batch(batch)
  (_, weight), grads = jax.jit(sums)(spread.get_state(state), batch)
  return jax.tree.map(lambda g: g / jnp.maximum(weight, 1.0), grads)
