"""Write a run's text with needles in it, to train the needle probe in.

  scripts/mix_needles.py --config=configs/quickstart.py:rope --output=mixed.jsonl --share=0.2 --length=64
  train.py --config=configs/quickstart.py:rope --config.data.source=text --config.data.path=mixed.jsonl --workdir=runs/mixed

A share of the documents becomes pieces of `length` characters, each with one needle at a uniform place and the question at its end
(pe_jax/probes/mixing.py); the others stay as they are. Documents of all splits are written, and the new run splits them anew.
Exit codes as train.py's.
"""

import json
import pathlib

from absl import flags
from ml_collections import config_flags

from pe_jax import cli
from pe_jax.errors import ConfigError

CONFIG = config_flags.DEFINE_config_file('config', None, 'The run whose text is read: FILE.py or FILE.py:argument.')
OUTPUT = flags.DEFINE_string('output', None, 'The .jsonl to write.')
SHARE = flags.DEFINE_float('share', 0.2, 'Of documents that get needles, 0 to 1.', lower_bound=0.0, upper_bound=1.0)
LENGTH = flags.DEFINE_integer('length', 64, 'Characters of a piece, needle and question included.')
STYLE = flags.DEFINE_string('style', 'short', "'short' or 'sentence', as the probe has it.")
DIGITS = flags.DEFINE_integer('digits', 1, 'Of a value.')
SEED = flags.DEFINE_integer('seed', 0, 'Of what is drawn.', lower_bound=0)


def main():
  """Hands over to pe_jax.probes.mixing."""
  cli.required('config', 'configs/quickstart.py:rope')
  output = pathlib.Path(cli.required('output', 'mixed.jsonl'))
  config = cli.checked(CONFIG.value)
  if output.suffix != '.jsonl':
    raise ConfigError(f"--output: '{output}' must end in .jsonl")

  import numpy as np

  from pe_jax import data, probes, workdir
  from pe_jax.data.documents import ROLES
  from pe_jax.probes import mixing

  probes.Options(style=STYLE.value, digits=DIGITS.value).check()
  if config.data.source == 'task':
    raise ConfigError("data.source: 'task' has no text (train on data.name=niah instead: its words are those of the probe)")
  rng, lines, changed = np.random.default_rng(SEED.value), [], 0
  for role in ROLES:
    for text in data.open_documents(config.data, role):
      mixed = mixing.mix(text, rng, SHARE.value, LENGTH.value, STYLE.value, DIGITS.value)
      changed += mixed is not text
      lines.append(json.dumps({config.data.text_key: mixed.decode()}) + '\n')
  workdir.write(output, ''.join(lines))
  print(f'{len(lines)} documents, {changed} of them with needles: {output}', flush=True)


if __name__ == '__main__':
  cli.run(main, __doc__)
