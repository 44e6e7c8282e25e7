"""A tiny run that ends itself at a chosen place: what `make soak` and the kill tests train.

  SOAK_AT='SIGKILL torn 2' python train.py --config=scripts/studies/kill_points.py:rope,corpus=some_folder --workdir=runs/cut

SOAK_AT is a signal (or two, joined by +, 20 ms apart), a place, and at which time that the place is reached:

  env       env.json is to be written: nothing is compiled yet      save      a save has begun, the disk is being written
  restore   a checkpoint is to be read                              commit    the arrays are on disk, the checkpoint has no name yet
  compile   the training step is traced                             deletion  half of the files of an old checkpoint are gone
  step      a row of the log is written                             eval      the validation rows are to be scored
  torn      half a row of the log is written                        done      DONE is to be written
  import    jax is to be imported, by pe_jax.seeds                  read      the data are to be read
"""

import json
import os
import pathlib
import shutil
import signal
import sys
import time

from pe_jax.config import default, parse_arg


def get_config(arg=''):
  """`:<encoding>,corpus=<folder of text>,packing=concat,accumulate=1,steps=300,seed=0`."""
  arg = parse_arg(arg, encoding='rope', corpus='', packing='concat', accumulate=1, steps=300, seed=0)
  c = default()
  c.encoding, c.train_length, c.seed, c.num_train_steps = arg.encoding, 16, arg.seed, arg.steps
  c.batch_size, c.accumulate = 8, arg.accumulate
  c.model.num_layers, c.model.embed_dim, c.model.num_heads = 1, 16, 2
  c.model.dropout = 0.1  # so that a forgotten key shows
  c.data.source, c.data.path, c.data.packing, c.data.block_documents = 'text', arg.corpus, arg.packing, 60
  c.optim.warmup_steps = 2
  c.log_every_steps, c.log_batches, c.eval_every_steps, c.eval_targets, c.checkpoint_every_steps = 1, True, 30, 300, 10
  c.tensorboard = False
  if place := os.environ.pop('SOAK_AT', ''):  # once, however often a config file is read
    Places(place).install()
  return c


class Places:
  """Sends the signals when the place is reached for the nth time."""

  def __init__(self, text):
    signals, self.place, time_ = text.split()
    self.signals, self.left = [getattr(signal, name) for name in signals.split('+')], int(time_)

  def due(self, place):
    """Whether this is the time."""
    self.left -= place == self.place
    return place == self.place and self.left == 0

  def reached(self, place):
    """Sends the signals if this is the time."""
    if self.due(place):
      self.send()

  def send(self):
    """The process may live on, if it handles them."""
    for number in self.signals:
      os.kill(os.getpid(), number)
      time.sleep(0.02)

  def around(self, owner, name, before='', after=''):
    """Makes the function `name` of a module or class a place."""
    call = getattr(owner, name)

    def wrapped(*args, **kwargs):
      self.reached(before)
      result = call(*args, **kwargs)
      self.reached(after)
      return result

    setattr(owner, name, wrapped)

  def install(self):
    """Puts itself where the places are."""
    import orbax.checkpoint as ocp

    from pe_jax import checkpoint, data, metrics, saved, step, workdir
    from pe_jax.evaluate import score

    sys.meta_path.insert(0, self)
    self.around(data, 'streams', before='read')
    self.around(workdir, 'write_environment', before='env')
    self.around(saved, 'read', before='restore')
    self.around(metrics.Log, 'metrics', after='step')
    self.around(score, 'sums', before='eval')
    self.around(checkpoint.Checkpoints, 'save', after='save')
    self.around(ocp.StandardCheckpointHandler, 'finalize', before='commit')
    self.trace(step)
    self.tear(metrics)
    self.delete()
    self.finish(workdir)

  def find_spec(self, name, path, target=None):
    """Finds no module, and is asked for each that is not imported yet."""
    del path, target
    if name == 'pe_jax.seeds':
      self.reached('import')

  def trace(self, step):
    """The step as a function that is only called to be traced."""
    make = step.make

    def made(*args):
      train_step = make(*args)

      def traced(*inner):
        self.reached('compile')
        return train_step(*inner)

      return traced

    step.make = made

  def tear(self, metrics):
    """Half a row."""
    append = metrics.append

    def torn(path, rows):
      if path.name == 'metrics.jsonl' and self.due('torn'):
        text = json.dumps(rows[0])
        with path.open('a') as file:
          file.write(text[: len(text) // 2])
        self.send()
      append(path, rows)

    metrics.append = torn

  def delete(self):
    """Half a checkpoint."""
    rmtree = shutil.rmtree

    def removed(path, *args, **kwargs):
      folder = pathlib.Path(path)
      if folder.parent.name == 'checkpoints' and folder.name.isdecimal() and self.due('deletion'):
        files = sorted(p for p in folder.rglob('*') if p.is_file())
        for file in files[::2]:
          file.unlink()
        self.send()
      rmtree(path, *args, **kwargs)

    shutil.rmtree = removed

  def finish(self, workdir):
    """Right before the last file of a run."""
    write_json = workdir.write_json

    def written(path, tree):
      if pathlib.Path(path).name == 'DONE':
        self.reached('done')
      write_json(path, tree)

    workdir.write_json = written
