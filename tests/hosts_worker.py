"""One of two processes that test_hosts.py starts: does what several processes do together and prints what came out as one JSON object."""

import json
import pathlib
import sys

import numpy as np
import tiny_runs as runs
from absl import flags

from pe_jax import join
from pe_jax.errors import UserError

FOLDER = flags.DEFINE_string('folder', None, 'For checkpoints.')
LENGTH = 16


def rows(count):
  """Packed rows of random tokens with ragged ends, the same in every process."""
  from pe_jax.data import packing

  rng = np.random.default_rng(1)
  found = packing.windows([rng.integers(0, 256, size).astype(np.int32) for size in rng.integers(3, 40, 4 * count)], LENGTH, 256)
  return found.take(rng.permutation(len(found))[:count])


def config(**changes):
  from pe_jax import resolve

  return resolve.resolve(runs.config(**({'encoding': 'learned', 'batch_size': 8} | changes)))


def made(c, devices):
  """(spread, state) over some devices."""
  from pe_jax import encodings, model, optim, parallel, step

  enc, tx = encodings.make(c.encoding, model.dims(c)), optim.make(c)
  spread = parallel.make(c, step.make(c, enc, tx), step.make_eval(c, enc), devices)
  return spread, spread.put_state(step.init(c, enc, tx))


def evaluations():
  """Sums over 1 to 9 rows in batches of 8, of which each process has 4: 3 v 0, 4 v 1, 4 v 3 and so on; and the same on local devices."""
  import jax

  from pe_jax.evaluate import score

  out = {'together': [], 'alone': []}
  for name, devices in (('together', jax.devices()), ('alone', jax.local_devices())):
    spread, state = made(config(), devices)
    for count in range(1, 10):
      out[name].append(score.sums(spread.evaluate, state.params, rows(count), 8))
  return out


def by_position():
  """What eval.py does with rows, in a number that no batch divides."""
  import jax

  from pe_jax import encodings, model
  from pe_jax.evaluate import score

  c = config()
  enc = encodings.make(c.encoding, model.dims(c))
  params = jax.jit(lambda: model.init(c, enc, jax.random.PRNGKey(0)))()
  return [column.tolist() for column in score.by_position(c, enc, params, rows(7))]


def training():
  """Losses of three steps, and the digest after them, under each way of spreading; of the checkpoint too."""
  import jax

  from pe_jax import hosts, train
  from pe_jax.checkpoint import Checkpoints
  from pe_jax.evaluate import score

  out = {}
  whole = score.as_batch(rows(8))
  for name, changes in (('jit', {}), ('fsdp 2', {'mesh__fsdp': 2}), ('fsdp 4', {'mesh__fsdp': 4}), ('pmap', {'parallel': 'pmap'})):
    spread, state = made(config(**changes), jax.devices())
    losses = []
    for _ in range(3):
      state, numbers = spread.step(state, spread.put_batch(hosts.own_rows(whole)))
      losses.append(float(numbers['loss']))
    params = spread.get_state(state).params
    nll, _ = score.sums(spread.evaluate, params if name == 'pmap' else state.params, rows(5), 8)
    out[name] = {'losses': losses, 'validation': nll, 'digest': train.digest(hosts.fetch(params))}
    folder = pathlib.Path(FOLDER.value) / name.replace(' ', '_')
    checkpoints = Checkpoints(folder)
    checkpoints.save(3, hosts.shared(spread.get_state(state)), {'position': {}, 'targets': 3})
    checkpoints.close()
    checkpoints = Checkpoints(folder)
    like = spread.get_state(state)
    restored, progress = checkpoints.restore(3, like)
    checkpoints.close()
    out[name] |= {'restored': train.digest(hosts.fetch(restored.params)), 'targets': progress['targets']}
    if name == 'pmap':
      spread.put_state(restored)
  return out


def agreements(index):
  """What an error, a difference and a signal in one process are in both."""
  from pe_jax import hosts
  from pe_jax.errors import DataError

  out = {'gathered': hosts.gathered({'me': 'ä' * (index + 1)})}
  for name, raising in (('one', [1]), ('both', [0, 1]), ('none', [])):
    try:
      with hosts.together():
        if index in raising:
          raise DataError(f'text of {index} is torn')
      out[name] = 'went on'
    except UserError as error:
      out[name] = [error.exit_code, str(error)]
  try:
    hosts.agree({'optim': {'rate': 0.1 * (1 + index)}, 'seed': 1}, 'give all the same')
  except UserError as error:
    out['differ'] = [error.exit_code, str(error)]
  caught, said = [], []
  stopped_by = hosts.Stop(caught)
  for n in range(1, 7):
    if n == 3 and index == 1:
      caught.append('SIGTERM')
    said.append(stopped_by())
  return out | {'stop': said}


def main():
  flags.FLAGS(sys.argv)
  join.from_flags()
  import jax

  index = jax.process_index()
  with runs.quick_compiles():
    out = {'index': index, 'devices': [jax.process_count(), jax.device_count(), jax.local_device_count()]}
    out |= {'evaluations': evaluations(), 'by_position': by_position(), 'training': training(), 'agreements': agreements(index)}
  print(json.dumps(out))


if __name__ == '__main__':
  main()
