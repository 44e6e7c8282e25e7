"""The folder where datasets are: the config's, else the environment's, else the user's cache."""

import os


def data_dir(data):
  """`data.data_dir`, or $PE_JAX_DATA, or the cache folder. May be gs://."""
  return os.path.expanduser(data.data_dir or os.environ.get('PE_JAX_DATA', '') or cache_dir())


def cache_dir():
  """A folder of this machine that a user may always write to: $XDG_CACHE_HOME/pe_jax/data or ~/.cache/pe_jax/data."""
  cache = os.environ.get('XDG_CACHE_HOME') or os.path.join('~', '.cache')
  return os.path.expanduser(os.path.join(cache, 'pe_jax', 'data'))
