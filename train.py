"""Train a small language model with one encoding.

  python train.py --config=configs/quickstart.py:alibi,train_length=64 --workdir=runs/a
  python train.py --config=configs/lm.py:rope,runlocal --workdir=runs/b --config.optim.learning_rate=3e-4 --config.encoding='yarn(factor=4)'
  python train.py --config=configs/quickstart.py:alibi --workdir='runs/a-{seed}' --seeds=101,102,103

The same command again goes on where it was left. Several hosts: the same command on each, with --coordinator,
--process_count and --process_index (docs/running.md), and --timeout, the seconds to wait for one another.
Exit codes: 0 done, 2 bad settings or not enough memory, 3 bad data, 4 cannot write, or no checkpoint can be read, 5 workdir in use,
6 config differs, 7 not finite, 75 stopped by a signal, with what it had reached saved, or another host is gone: run the same command again.
"""

from absl import flags
from ml_collections import config_flags

from pe_jax import cli, join, signals

CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'Config file, with an argument after a colon; --config.field=value changes a field.'
)
WORKDIR = flags.DEFINE_string('workdir', None, 'Folder of the run.')
OVERRIDE = flags.DEFINE_boolean('override_config', False, 'Go on in a workdir of another configuration; config_history.jsonl keeps both.')
SEEDS = flags.DEFINE_list(
  'seeds', None, 'Seeds, trained together in this process, each a run in its own folder: {seed} in --workdir is the seed.'
)


def main():
  """Hands over to pe_jax.train."""
  cli.required('config', 'configs/quickstart.py:alibi')
  cli.required('workdir', 'runs/a')
  config = cli.checked(CONFIG.value)
  folders = cli.seed_folders(WORKDIR.value) if SEEDS.present else {}

  join.from_flags()

  with signals.noted() as caught:
    from pe_jax import seeds, train  # after the cheap checks: jax takes seconds to import

    if folders:
      seeds.run(config, folders, OVERRIDE.value, caught)
    else:
      train.run(config, WORKDIR.value, OVERRIDE.value, caught)


if __name__ == '__main__':
  cli.run(main, __doc__)
