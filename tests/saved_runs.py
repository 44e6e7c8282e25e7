"""Checkpoints of a small state for tests, and what damage can be done to them."""

import contextlib
import functools
import pathlib
import shutil
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tiny_runs as runs

from pe_jax import fingerprint
from pe_jax.checkpoint import Checkpoints

STEPS = (2, 4)


def state(step, width=64):
  """What training saves, with other numbers at every step."""
  rng = np.random.default_rng(step)
  draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
  params = {'decoder': {'embed': draw(width, 32), 'norm': {'scale': draw(32)}}, 'encoding': {'table': draw(8, 32)}}
  opt = jax.tree.map(lambda x: draw(*x.shape) if x.ndim else x + step, optax.adamw(1e-3).init(params))
  key = jnp.asarray(rng.integers(2**32, size=2, dtype=np.uint32))
  return {'params': params, 'opt': opt, 'step': jnp.int32(step), 'key': key, 'finite': jnp.bool_(True)}


def progress(step):
  return {'position': {'epoch': 0, 'block': step, 'row': 0}, 'targets': 10 * step}


@functools.cache
def written():
  """A workdir with checkpoints of steps 2 and 4, made once."""
  folder = pathlib.Path(tempfile.mkdtemp(dir=runs.home()))
  with contextlib.closing(Checkpoints(folder)) as checkpoints:
    for step in STEPS:
      checkpoints.save(step, state(step), progress(step), 4.0 / step)
  return folder


def copied(folder):
  """Its own copy, to be damaged."""
  shutil.copytree(written() / 'checkpoints', folder / 'checkpoints')
  return folder


@functools.cache
def digests():
  """{step: digest} of the states as they were saved."""
  return {step: fingerprint.digest(state(step)) for step in STEPS}


def resumed(folder, capsys):
  """(step, digest, progress, warnings) of what training would go on from."""
  capsys.readouterr()
  with contextlib.closing(Checkpoints(folder)) as checkpoints:
    step, tree, record = checkpoints.restore_newest(state(0))
  warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith('WARNING')]
  return step, fingerprint.digest(tree), {k: record[k] for k in ('position', 'targets')}, warnings


def files(folder, step):
  """The files of a checkpoint, by their names in it."""
  root = folder / 'checkpoints' / str(step)
  return [p.relative_to(root).as_posix() for p in sorted(root.rglob('*')) if p.is_file()]


def biggest(folder, step):
  """The file that holds most of the arrays of a checkpoint."""
  state = folder / 'checkpoints' / str(step) / 'state'
  return max((p for p in state.rglob('*') if p.parent.name == 'd'), key=lambda p: p.stat().st_size)


def half(path, rng):
  del rng
  path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path, rng):
  del rng
  path.write_bytes(b'')


def delete(path, rng):
  del rng
  path.unlink()


def flip(path, rng):
  """One bit."""
  data = bytearray(path.read_bytes())
  bit = int(rng.integers(8 * len(data))) if data else 0
  if data:
    data[bit // 8] ^= 1 << bit % 8
  path.write_bytes(bytes(data))


def append(path, rng):
  del rng
  path.write_bytes(path.read_bytes() + b'\0garbage')


DAMAGES = (half, empty, delete, flip, append)
