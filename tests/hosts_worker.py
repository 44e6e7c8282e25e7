"""One of two processes that test_hosts_together.py starts: does what several do together, and prints what came out as JSON."""

import contextlib
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

  from pe_jax import fingerprint, hosts
  from pe_jax.checkpoint import Checkpoints
  from pe_jax.evaluate import score

  out = {}
  whole = score.as_batch(rows(8))
  for name, changes in (('jit', {}), ('fsdp', {'mesh__fsdp': 4}), ('pmap', {'parallel': 'pmap'})):
    spread, state = made(config(**changes), jax.devices())
    losses = []
    for _ in range(3):
      state, numbers = spread.step(state, spread.put_batch(hosts.own_rows(whole)))
      losses.append(float(numbers['loss']))
    params = spread.get_state(state).params
    nll, _ = score.sums(spread.evaluate, params if name == 'pmap' else state.params, rows(5), 8)
    out[name] = {'losses': losses, 'validation': nll, 'digest': fingerprint.digest(hosts.fetch(params))}
    folder = pathlib.Path(FOLDER.value) / name.replace(' ', '_')
    checkpoints = Checkpoints(folder)
    checkpoints.save(3, hosts.shared(spread.get_state(state)), {'position': {}, 'targets': 3})
    checkpoints.close()
    checkpoints = Checkpoints(folder)
    like = spread.get_state(state)
    restored, progress = checkpoints.restore(3, like)
    checkpoints.close()
    out[name] |= {'restored': fingerprint.digest(hosts.fetch(restored.params)), 'targets': progress['targets']}
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
  return out | {'stop': said, 'now': stopped_by.now()}


def too_long(index):
  """What both are told of a length that process 1 alone has no memory for."""
  import jax
  import jax.numpy as jnp

  from pe_jax.evaluate import memory

  compiled, available = jax.jit(lambda x: x + 1).lower(jnp.zeros(LENGTH)).compile(), memory.available
  memory.available = lambda: available() if index == 0 else 1
  try:
    memory.check(compiled, LENGTH)
  except UserError as error:
    return [error.exit_code, str(error)]
  finally:
    memory.available = available


def damage(index):
  """Of two checkpoints process 1 finds the newer one damaged: from which both go on, and what is set aside."""
  import jax

  from pe_jax import hosts, saved
  from pe_jax.checkpoint import Checkpoints

  folder = pathlib.Path(FOLDER.value) / 'damaged'
  spread, state = made(config(), jax.devices())
  checkpoints = Checkpoints(folder, keep=9)
  for n in (3, 4):
    checkpoints.save(n, hosts.shared(spread.get_state(state)), {'position': {}, 'targets': n})
  checkpoints.close()
  checkpoints, read = Checkpoints(folder), saved.read_record

  def found(path):
    if index == 1 and path.name == '4':
      raise saved.Damaged('a hole')
    return read(path)

  saved.read_record = found
  step, _, record = checkpoints.restore_newest(spread.get_state(state))
  saved.read_record = read
  checkpoints.close()
  return {'from': [step, record['targets']], 'left': checkpoints.steps(), 'aside': [p.name for p in (folder / 'checkpoints_bad').iterdir()]}


def taken_over(index):
  """What both are told once another writes in their folder."""
  from pe_jax import owner, workdir

  folder = pathlib.Path(FOLDER.value) / 'taken'
  with workdir.locked(folder) if index == 0 else contextlib.nullcontext():
    still_mine = owner.claim_for_all(folder)
    still_mine()
    if index == 0:
      workdir.write_json(folder / 'OWNER', {'token': 'another', 'process': 1, 'host': 'elsewhere'})
    try:
      still_mine()
    except UserError as error:
      return [error.exit_code, str(error)]


def not_finite(index):
  """What is written of a batch whose rows are spread over processes, beside the hash of all of its rows."""
  import jax

  from pe_jax import fingerprint, hosts, nonfinite
  from pe_jax.evaluate import score

  folder, whole = pathlib.Path(FOLDER.value) / 'not_finite', score.as_batch(rows(8))
  numbers = dict.fromkeys(('loss', 'gradient_norm', 'learning_rate'), float('nan'))
  _, state = made(config(mesh__fsdp=2), jax.devices())
  nonfinite.dump(folder, 5, numbers, hosts.all_rows(hosts.own_rows(whole)), {'row': 0}, state, index == 0)
  hosts.gathered('written')
  told = json.loads((folder / 'nonfinite_5.json').read_text())
  same = told['batch_sha256'] == fingerprint.digest(whole) and len(told['rows_sha256']) == 8
  return {'same batch': same, 'files': [p.name for p in folder.iterdir()], 'arrays': len(told['arrays'])}


def main():
  flags.FLAGS(sys.argv)
  join.from_flags()
  import jax

  index = jax.process_index()
  with runs.quick_compiles():
    out = {'index': index, 'devices': [jax.process_count(), jax.device_count(), jax.local_device_count()]}
    out |= {'evaluations': evaluations(), 'by_position': by_position(), 'training': training(), 'agreements': agreements(index)}
    out |= {'too long': too_long(index), 'damage': damage(index), 'taken over': taken_over(index), 'not finite': not_finite(index)}
  print(json.dumps(out))


if __name__ == '__main__':
  main()
