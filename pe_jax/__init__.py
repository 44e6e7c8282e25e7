"""Positional encodings and length extrapolation: train short, test long."""

import os
import typing

if typing.TYPE_CHECKING:
  from pe_jax.run import Run

__version__ = '0.1.0'


def load(workdir: 'str | os.PathLike[str]', step: 'int | str | None' = None) -> 'Run':
  """The run in `workdir` with its parameters, config and encoding; see `pe_jax.run.Run`."""
  from pe_jax import run  # imported here so that `import pe_jax` stays instant

  return run.load(workdir, step)
