"""Train short, test long: four encodings trained at 64 positions, read out to 512, in one table and one figure.

  make demo        (or: python scripts/demo.py --workdir=runs/demo)

Interrupted, it goes on where it was. --steps=50 shows in a minute what it does, without meaning.
"""

import os
import pathlib
import time

from absl import flags

from pe_jax import cli, launch

WORKDIR = flags.DEFINE_string('workdir', 'runs/demo', 'Folder of the runs, the table and the figure.')
STEPS = flags.DEFINE_integer('steps', 1000, 'Training steps of each encoding.', lower_bound=1)
SEED = flags.DEFINE_integer('seed', 0, 'Seed of parameters and data order.')
MAX_TARGETS = flags.DEFINE_integer('max_targets', 80_000, 'Bytes scored at each length.', lower_bound=1)

LENGTH = 64
LENGTHS = [LENGTH, 2 * LENGTH, 4 * LENGTH, 8 * LENGTH]
# T5's last bucket begins at half the training length, so that it is trained.
ARMS = {'sinusoidal': 'sinusoidal', 'rope': 'rope', 't5': f't5(max_distance={LENGTH // 2})', 'alibi': 'alibi'}
MAPS = ['linear', 'ntk', 'ntk(factor=16)', 'yarn']  # read with the trained RoPE's parameters; the factor is that of the length


def main():
  """Data, training, evaluation, table and figure."""
  folder, seconds = pathlib.Path(WORKDIR.value), {}
  if 'INSTALL_SECONDS' in os.environ:
    seconds['installing'] = float(os.environ['INSTALL_SECONDS'])
  start = time.time()
  build_data()
  seconds['data'], start = time.time() - start, time.time()
  train(folder)
  seconds['training'], start = time.time() - start, time.time()
  text = evaluate(folder)
  seconds['evaluation'] = time.time() - start
  text += '\n\nwall time: ' + ', '.join(f'{phase} {value:.0f} s' for phase, value in seconds.items())
  (folder / 'table.txt').write_text(text + '\n')
  print(text + f'\nfigure: {folder / "figures" / "loss_by_position.png"}')


def build_data():
  """The default corpus, once."""
  from pe_jax import config, data

  data.open_documents(config.default().data, 'train')


def train(folder):
  """All arms."""
  config = f'{launch.ROOT}/configs/quickstart.py'
  args = f'train_length={LENGTH},steps={STEPS.value},seed={SEED.value}'
  jobs = [launch.Job(folder / name, f'{config}:{encoding},{args}', STEPS.value) for name, encoding in ARMS.items()]
  launch.train(jobs, 'training ' + ', '.join(ARMS))


def evaluate(folder):
  """Every checkpoint at every length; returns the table and draws the figure."""
  import pe_jax
  from pe_jax import evaluate as evaluation
  from pe_jax.report import figure, table

  short, long = [], []
  for name in ARMS:
    run = pe_jax.load(folder / name)
    rows = run.evaluate(LENGTHS, max_targets=MAX_TARGETS.value)
    readings = [run.config.encoding, *MAPS] if name == 'rope' else None
    curves = run.evaluate(LENGTHS[-1:], readings, protocols=['prefix'], max_targets=MAX_TARGETS.value)
    for written in (rows, curves):
      evaluation.write(folder / name, written)
    short, long = short + rows, long + curves
  trained = [r for r in long if r['asked_encoding'] == r['trained_encoding']]
  maps = [r for r in long if r['trained_encoding'] == 'rope']
  baseline = next(r for r in trained if r['asked_encoding'] == 'alibi')
  panels = [(f'trained at {LENGTH}, each with its own encoding', trained), ('one RoPE checkpoint, read under frequency maps', maps)]
  figure.loss_by_position(panels, LENGTH, folder / 'figures' / 'loss_by_position.png', baseline)
  in_distribution = {r['trained_encoding']: r['nll'] for r in short if r['length'] == LENGTH}
  return (
    f'Loss by position (nats a byte) in windows of {LENGTHS[-1]} bytes of unseen files; trained at {LENGTH} for {STEPS.value} steps, '
    f'seed {SEED.value}\n{table.by_position(long, in_distribution)}\n\nNon-overlapping windows of each length\n{table.losses(short)}'
  )


if __name__ == '__main__':
  cli.run(main, __doc__)
