"""Does a run fit on a TPU? Compiles its training step for one that is not here, and prints the memory that each chip needs.

  make fits ARGS='--config=configs/lm.py:alibi --topology=v5e:4x4'
  .venv-tpu/bin/python scripts/fits.py --config=configs/lm.py:rope --topology=v5p:2x2x2 --config.batch_size=512

Needs no TPU: libtpu compiles for v4, v5e, v5p and v6e on any machine with Linux. It stays in an environment of its own, `make fits` makes
.venv-tpu (a download of 700 MB), since JAX looks for a TPU wherever libtpu is installed. Exit code 0 whether it fits or not.
"""

import os
import time

from absl import flags
from ml_collections import config_flags

from pe_jax import cli
from pe_jax.errors import ConfigError

CONFIG = config_flags.DEFINE_config_file('config', None, 'Config file, as of train.py.')
TOPOLOGY = flags.DEFINE_string('topology', 'v5e:4x4', 'Chips and how they lie: v4:2x2x1, v5e:4x4, v5p:2x2x2, v6e:2x4 …')
# What a chip has, in GiB, as its maker publishes; the runtime keeps some of it.
MEMORY = {'v4': 32, 'v5e': 16, 'v5p': 95, 'v6e': 32}


def main():
  """Compiles and prints."""
  cli.required('config', 'configs/lm.py:alibi')
  config = cli.checked(CONFIG.value)
  kind = TOPOLOGY.value.partition(':')[0]
  if kind not in MEMORY:
    raise ConfigError(
      f"--topology: '{TOPOLOGY.value}' begins with no TPU that is known (there are {', '.join(MEMORY)}; for instance v5e:4x4)"
    )
  os.environ['JAX_PLATFORMS'] = 'cpu'
  os.environ['JAX_COMPILATION_CACHE_DIR'] = ''  # what is compiled for absent chips cannot be read back
  if config.parallel == 'pmap':
    raise ConfigError("--config.parallel: 'pmap' is not compiled from here (leave it out: the step and its memory are those of 'jit')")
  devices = chips(TOPOLOGY.value)

  from pe_jax import attention, encodings, model, progress, resolve

  config.unlock()
  config.model.platform = 'tpu'
  config = resolve.resolve(config)
  enc = encodings.make(config.encoding, model.dims(config))
  start = time.monotonic()
  found = needs(config, enc, devices, MEMORY[kind] * 2**30)
  took = attention.paths(config, enc, config.train_length, single=config.data.packing == 'pad')
  print(
    f'{config.encoding}, {config.batch_size} rows of {config.train_length} on {len(devices)} chips of {TOPOLOGY.value}; attention: {took}'
  )
  print(found)
  progress.say(f'compiled in {time.monotonic() - start:.0f} s')


def chips(topology):
  """The devices of a topology, for compiling only."""
  try:
    import libtpu
  except ImportError:
    raise ConfigError(
      '--topology: there is no libtpu in this environment, which compiles for a TPU (make fits makes one that has it)'
    ) from None
  del libtpu
  # What a TPU's machine would be asked for.
  for name, value in {'TPU_SKIP_MDS_QUERY': '1', 'TPU_WORKER_HOSTNAMES': 'localhost', 'TPU_ACCELERATOR_TYPE': 'v5litepod-4'}.items():
    os.environ.setdefault(name, value)

  from jax.experimental import topologies

  try:
    return topologies.get_topology_desc(topology, 'tpu').devices
  except Exception as error:  # libtpu's own errors have no common type
    said = ' '.join(str(error).split())
    raise ConfigError(f"--topology: libtpu knows no '{topology}' (for instance v5e:4x4): {said[:200]}") from error


def needs(config, enc, devices, limit):
  """What the compiler says of memory: the table, or its own sentence where it has refused."""
  import jax

  from pe_jax import memory

  try:
    return table(compiled(config, enc, devices).memory_analysis(), limit)
  except jax.errors.JaxRuntimeError as error:
    if not (said := memory.exhausted(error)):
      raise
    return f'does not fit: {said[:300]}'


def compiled(config, enc, devices):
  """The sharded training step, compiled, from shapes alone."""
  import jax

  from pe_jax import optim, parallel, step

  tx = optim.make(config)
  spread = parallel.make(config, step.make(config, enc, tx), step.make_eval(config, enc), devices)
  state, batch = parallel.abstract(config, jax.eval_shape(lambda: step.init(config, enc, tx)), devices)
  return spread.step.trace(state, batch).lower(lowering_platforms=('tpu',)).compile()


def table(memory, limit):
  """Lines of memory for each chip, and whether they fit."""
  parts = {
    'parameters, optimizer state and batch': memory.argument_size_in_bytes,
    'outputs that are not in their place': memory.output_size_in_bytes - memory.alias_size_in_bytes,
    'temporaries': memory.temp_size_in_bytes,
    'program': memory.generated_code_size_in_bytes,
  }
  total = sum(parts.values())
  lines = [f'{name:40}{size / 2**20:12.1f} MiB' for name, size in [*parts.items(), ('each chip', total), ('it has', limit)]]
  return '\n'.join([*lines, f'{"fits" if total <= limit else "does not fit"}: {100 * total / limit:.0f} % of what a chip has'])


if __name__ == '__main__':
  cli.run(main, __doc__)
