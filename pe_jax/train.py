"""Trains a run: what must hold before it starts, its data, its folder and who may write there, and then the loop (loop.py).

Started again with the same config in the same workdir it continues from the newest checkpoint, and ends with the same bits as a run that
was never interrupted (on the same machine and versions; env.json says which).
"""

import contextlib

import jax

from pe_jax import (
  attention,
  boards,
  checkpoint,
  data,
  encodings,
  hosts,
  init_from,
  memory,
  model,
  owner,
  parallel,
  process,
  progress,
  remote,
  resolve,
  signals,
)
from pe_jax import environment as environment_lib
from pe_jax import workdir as workdir_lib
from pe_jax.loop import Loop


def run(config, workdir, override=False, caught=None):
  """Trains the config in the workdir, from where it was left. Returns the final validation loss in nats.

  `override`: go on even if the workdir holds a run of another configuration or other data. `caught`: the list of `signals.noted`, of a
  caller who has listened to them from earlier on.
  """
  config = resolve.resolve(config)
  with signals.noted(caught) as caught, hosts.forsaken(workdir):
    with hosts.at_once(caught, workdir):
      if done := check(config, workdir, override):
        return done['validation_loss']
      streams = read(config, workdir, override)
    with begun(config, workdir, streams, environment(config), caught, override=override) as loop:
      if hint := process.hint():
        progress.say(hint)
      return loop.run()


def check(config, workdir, override=False):
  """Refuses a run that cannot go on here, and creates nothing. Returns what DONE says of one that is finished, None otherwise."""
  with hosts.together():
    remote.check(workdir, 'workdir')
    boards.check(config)
    workdir_lib.check_config(workdir, config, override)
    done = workdir_lib.finished(workdir)
  same = {'config': config.to_dict(), 'override_config': override, 'DONE': done or {}}
  hosts.agree(same, 'give all the same command, and a workdir that all of them see, such as gs://… or a shared disk')
  if done and done['step'] >= config.num_train_steps:
    progress.say(f'{workdir}: finished already ({done["step"]} steps)')
    return done
  with hosts.together():
    workdir_lib.check_free(workdir)
    parallel.check(config, jax.devices())
    if config.init_from and not (remote.path(workdir) / 'config.json').exists():
      init_from.check(config)
  return None


def read(config, workdir, override=False):
  """(batches, validation rows, record) of a run's data, as from `data.streams`; refused if the run began with other data."""
  with hosts.together():
    streams = data.streams(config, jax.process_index(), jax.process_count())
    if not override:
      workdir_lib.check_data(workdir, streams[-1])
  same = {'data': streams[-1], 'packages': environment_lib.packages(), 'sources_sha256': environment_lib.sources()}
  hosts.agree(same, 'all need the same text and the same installation')
  return streams


@contextlib.contextmanager
def begun(config, workdir, streams, environment, caught, spread=None, override=False):
  """The Loop of a run whose folder this process holds; of several processes the first holds and writes it."""
  batches, rows, record = streams
  with contextlib.ExitStack() as held:
    with hosts.together():
      folder = held.enter_context(workdir_lib.locked(workdir)) if hosts.is_first() else remote.path(workdir)
    with hosts.together():
      if hosts.is_first():
        changed = workdir_lib.check_config(workdir, config, override)
    writer = owner.claim_for_all(folder)
    with hosts.together():
      if hosts.is_first():
        workdir_lib.write_environment(folder, environment)
    made = checkpoint.Checkpoints(workdir, config.keep_checkpoints, still_mine=writer)
    checkpoints = held.enter_context(contextlib.closing(made))
    with hosts.bound(folder), memory.explained(config):
      loop = Loop(config, folder, batches, rows, checkpoints, writer, caught, spread)
      with hosts.together():
        if hosts.is_first() and writer.holds():
          # Only now: a configuration with which the run cannot go on leaves no trace, and reading a checkpoint may have taken minutes.
          workdir_lib.note_changes(workdir, changed, override)
          workdir_lib.write(folder / 'config.json', workdir_lib.config_lib.to_json(config))
          workdir_lib.write_json(folder / 'data.json', record)
          (folder / 'DONE').unlink(missing_ok=True)
      yield loop


def environment(config):
  """What env.json says of this run in this process: versions, devices, options, and the path that attention takes."""
  enc, length = encodings.make(config.encoding, model.dims(config)), config.train_length
  records = [record for _, record in enc.schedule] or [enc]
  taken = [attention.paths(config, record, length, single=config.data.packing == 'pad') for record in records]
  return environment_lib.of_process(', then '.join(taken), parallel.options(config))
