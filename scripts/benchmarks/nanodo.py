"""A checkout of nanodo (github.com/google-deepmind/nanodo), run through its own Trainer; used only where one is given.

Its training step needs neither TensorFlow nor clu nor grain, but the file that holds it imports them: where they are not installed, empty
stand-ins are put in their place.
"""

import importlib
import sys
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.worker import Case

UNUSED = ('clu', 'grain', 'grain.python', 'sentencepiece', 'tensorflow')


def train(path, width, layers, heads, vocabulary, length, rows):
  """Its default configuration but for the sizes and float32."""
  import tensorflow_datasets  # noqa: F401  # before any stand-in for TensorFlow, which it would take for the real one

  sys.path.insert(0, path)
  for name in UNUSED:
    try:
      importlib.import_module(name)
    except ImportError:
      sys.modules[name] = mock.MagicMock(name=name)
  from jax.experimental import mesh_utils
  from nanodo import model_factory
  from nanodo import train as trainer_lib
  from nanodo.configs import default

  c = default.get_config()
  c.batch_size = rows
  c.model.update({'D': width, 'H': heads, 'L': length, 'N': layers, 'F': 4 * width, 'dtype': 'float32'})
  module, get_loss_fn = model_factory.get_model_and_loss(c, vocabulary)
  mesh = jax.sharding.Mesh(mesh_utils.create_device_mesh((jax.device_count(),)), ('data',))
  shardings, state = trainer_lib._init_train_state(c, module, rng=jax.random.PRNGKey(0), mesh=mesh)
  trainer = trainer_lib.Trainer(c=c, state=state, mesh=mesh, shardings=shardings, get_loss_fn=get_loss_fn)
  text = np.random.default_rng(0).integers(1, vocabulary, (rows, length)).astype(np.int32)
  count = [0]

  def run():
    jax.block_until_ready(trainer.do_step(count[0], jnp.asarray(text)))
    count[0] += 1

  return Case(run, {'units': rows * length})


def versions():
  """Those of ours."""
  return {}


CASES = {'train': train}
