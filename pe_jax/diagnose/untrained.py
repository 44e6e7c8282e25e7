"""Position parameters that a long text reads and no training row ever did, found by gradients: what is not read has none.

They are the rows of a learned table that was extended, and buckets of distances beyond the training length. What was never read is as at
initialisation, whatever the rest has learned.
"""

import jax
import jax.numpy as jnp
import numpy as np

from pe_jax.encodings.base import Where


def sentences(case):
  """One for each array that is read beyond training, [] where all is read in training too; None where there is nothing to ask."""
  enc = case.encoding()
  if not enc.init or enc.positions:  # drawn positions reach further than a training row is long
    return None
  if not enc.embed and not any(record.distance_bias for record in case.layers()):
    return None
  before, now = (_reads(case, length) for length in (min(case.train_length, case.served), case.served))
  out = []
  names = [jax.tree_util.keystr(path, simple=True, separator='.') for path, _ in jax.tree_util.tree_flatten_with_path(before)[0]]
  arrays = zip(names, *(jax.tree.leaves(tree) for tree in (before, now, case.params['encoding'])), strict=True)
  for name, seen, read, values in arrays:
    if (read & ~seen).any():
      out.append(_sentence(case, name, *(np.reshape(x, (len(x) if np.ndim(x) else 1, -1)) for x in (seen, read, values))))
  return out + (_parameterless(case) if enc.embed else [])


def _reads(case, length):
  """True for the parameters that a text of this length reads."""
  enc, index_1T = case.encoding(), np.arange(length, dtype=np.int32)[None]
  rng = np.random.default_rng(0)
  weight_TD = rng.normal(size=(length, case.config.model.embed_dim)).astype(np.float32)
  weight_HT = rng.normal(size=(case.config.model.num_heads, length)).astype(np.float32)

  def output(params):
    where = Where.forward(jnp.asarray(index_1T), jnp.ones_like(index_1T))
    total = jnp.sum(enc.embed(params, jnp.zeros((1, *weight_TD.shape)), where) * weight_TD[None]) if enc.embed else 0.0
    for record in case.layers():
      if record.distance_bias:
        bias_HT = record.distance_bias(enc.tables(params, where), jnp.asarray(index_1T[0]))
        total = total + jnp.sum(bias_HT * weight_HT[: len(bias_HT)])
    return total

  return jax.tree.map(lambda g: np.asarray(g) != 0, jax.jit(jax.grad(output))(case.params['encoding']))


def _sentence(case, name, seen, read, values):
  """How many rows, and how they compare with the trained ones."""
  new, known = (read & ~seen).any(axis=1), seen.any(axis=1)
  norms = [float(np.linalg.norm(values[rows], axis=1).mean()) for rows in (known, new)]
  return (
    f'{new.sum()} of {len(new)} rows of {name} are read at {case.served} tokens and by no training row of {case.train_length}; '
    f'their mean norm is {norms[1]:.3g}, that of trained ones {norms[0]:.3g}'
  )


def _parameterless(case):
  """Positions whose row in the embeddings is made of no parameter, where others are: a sentence, '' if there are none."""
  enc, index_1T = case.encoding(), np.arange(case.served, dtype=np.int32)[None]

  @jax.jit
  def rows(params):
    zeros = jnp.zeros((1, case.served, case.config.model.embed_dim), jnp.float32)
    return enc.embed(params, zeros, Where.forward(jnp.asarray(index_1T), jnp.ones_like(index_1T)))[0]

  moved = jax.tree.map(lambda x: np.asarray(x) + 1, case.params['encoding'])
  fixed_T = (np.asarray(rows(moved)) == np.asarray(rows(case.params['encoding']))).all(axis=-1)
  if not fixed_T.any():
    return []
  return [f'{fixed_T.sum()} positions from {int(np.argmax(fixed_T))} on have rows that are made of no trained parameter']
