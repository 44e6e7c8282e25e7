"""One training step, pure, with no device in sight.

Loss, weight and gradients are SUMS over targets until `total` has added them up over whatever the step is spread on (nothing under jit,
a `psum` under pmap); then there is one division. So every target counts the same on ragged packed rows, under accumulation and on any
number of devices, and a micro-batch without targets changes nothing.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import optax

from pe_jax import loss, model
from pe_jax.encodings.base import Where


@functools.partial(jax.tree_util.register_dataclass, data_fields=['params', 'opt', 'step', 'key', 'finite'], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class State:
  """Everything that training changes. `finite` turns False at the first NaN or infinity, and from then on nothing is updated.

  With config.nonfinite = 'skip' it stays True: such a step counts, and changes neither parameters nor optimizer.
  """

  params: dict
  opt: optax.OptState
  step: jax.Array
  key: jax.Array
  finite: jax.Array


def init(config, enc, tx, params=None):
  """The state before the first step, from the config's seed."""
  init_key, key = jax.random.split(jax.random.PRNGKey(config.seed))
  params = model.init(config, enc, init_key) if params is None else params
  return State(params, tx.init(params), jnp.int32(0), key, jnp.bool_(True))


def make_sums(config, enc):
  """sums(state, batch) -> ((sum of nll, number of targets), gradient of that sum), of the batch as it would be trained on."""

  def gradient(record):
    def loss_sum(params, batch, key):
      key, position_key = jax.random.split(key)
      key_B = jax.vmap(jax.random.fold_in, (None, 0))(key, batch['row']) if config.model.dropout else None
      return _nll_sums(config, record, params, batch, key_B, position_key)

    return jax.value_and_grad(loss_sum, has_aux=True)

  def sums(record):
    def of_batch(params, batch, key):
      if config.accumulate == 1:
        return gradient(record)(params, batch, key)
      # Row r goes to micro-batch r mod A: each device keeps its own rows.
      micro = jax.tree.map(lambda x: jnp.moveaxis(x.reshape(-1, config.accumulate, *x.shape[1:]), 1, 0), batch)
      one = gradient(record)
      zero = jax.tree.map(jnp.zeros_like, jax.eval_shape(one, params, jax.tree.map(lambda x: x[0], micro), key))
      return jax.lax.scan(lambda carry, b: (jax.tree.map(jnp.add, carry, one(params, b, key)), None), zero, micro)[0]

    return of_batch

  # A schedule's records in one compiled step, so that a resumed run needs to know nothing but its step.
  begins = [round(share * config.num_train_steps) for share, _ in enc.schedule] or [0]
  branches = [sums(record) for _, record in enc.schedule] or [sums(enc)]

  def of_state(state, batch):
    key = jax.random.fold_in(state.key, state.step)
    stage = jnp.sum(state.step >= jnp.asarray(begins)) - 1
    return jax.lax.switch(stage, branches, state.params, batch, key) if len(branches) > 1 else branches[0](state.params, batch, key)

  return of_state


def make(config, enc, tx):
  """train_step(state, batch, total) -> (state, metrics)."""
  sums = make_sums(config, enc)
  skip = config.nonfinite == 'skip'

  def train_step(state, batch, total=lambda x: x):
    (nll, weight), grads = total(sums(state, batch))
    one = 1.0 / jnp.maximum(weight, 1.0)
    grads = jax.tree.map(lambda g: g * one, grads)
    norm = optax.tree.norm(grads)
    updates, opt = tx.update(grads, state.opt, state.params)
    params = optax.apply_updates(state.params, updates)
    # The new state too: a huge learning rate can overflow it where loss and gradient are still finite.
    finite = jnp.isfinite(nll) & jnp.isfinite(norm) & all_finite((params, opt))
    finite = finite if skip else finite & state.finite
    new = State(params, opt, state.step + 1, state.key, jnp.bool_(True))
    old = dataclasses.replace(state, step=state.step + 1) if skip else dataclasses.replace(state, finite=finite)
    metrics = {'loss': nll * one, 'targets': weight, 'gradient_norm': norm, 'finite': finite}
    return jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, old), metrics

  return train_step


def all_finite(tree):
  """Whether no array of the tree has a NaN or an infinity."""
  return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact)]))


def make_eval(config, enc):
  """eval_step(params, batch) -> (sum of nll, number of targets)."""
  return lambda params, batch: _nll_sums(config, enc, params, batch)


def _nll_sums(config, enc, params, batch, key_B=None, position_key=None):
  single = config.data.packing == 'pad'
  where = enc.placed(Where.forward(batch['pos'], batch['doc'], config.model.causal, single=single), batch['row'], position_key)
  x_BTD, _ = model.hidden(config, enc, params, batch['tokens'], where, key_B=key_B)
  return loss.weighted_sum(x_BTD, *model.head(config, params), batch['targets'], batch['weight']), jnp.sum(batch['weight'])
