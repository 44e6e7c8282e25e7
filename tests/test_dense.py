"""Products with their own gradients against JAX's, and that the model uses them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from flax import linen as nn

from pe_jax import dense, model
from pe_jax.encodings.base import Where


@pytest.mark.parametrize(('width', 'out'), [(12, 5), (5, 12), (7, 7)])
@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_values_and_gradients_are_those_of_a_product(width, out, dtype):
  rng = np.random.default_rng(0)
  x, w, d_y = (jnp.asarray(rng.normal(size=s), dtype) for s in ((3, 4, width), (width, out), (3, 4, out)))
  y, pull = jax.vjp(dense.product, x, w)
  want, want_pull = jax.vjp(lambda x, w: x @ w, x, w)
  for got, exact in zip((y, *pull(d_y)), (want, *want_pull(d_y)), strict=True):
    assert got.dtype == exact.dtype
    np.testing.assert_allclose(
      got.astype(jnp.float32),
      exact.astype(jnp.float32),
      rtol=1e-5 if dtype == 'float32' else 2e-2,
      atol=1e-2 if dtype == 'bfloat16' else 1e-5,
    )


def test_other_contractions_are_left_to_jax():
  x, w = jnp.ones((2, 3, 4)), jnp.ones((3, 5))
  assert dense.dot_general(x, w, (((1,), (0,)), ((), ()))).shape == (2, 4, 5)


def test_what_is_compiled_for_an_accelerator_from_a_cpu_has_products_as_they_are():
  """scripts/fits.py and the lowering tests: barriers would make copies of the weights there."""
  config, enc, params = tiny.made('rope')

  def text(platform):
    c = config.copy_and_resolve_references()
    c.unlock()
    c.model.platform = platform
    pos = jnp.arange(8, dtype=jnp.int32)[None]

    def total(params):
      return jnp.sum(model.hidden(c.lock(), enc, params, pos, Where.forward(pos, pos * 0 + 1))[0] ** 2)

    return jax.jit(jax.grad(total)).trace(params).lower(lowering_platforms=(platform or 'cpu',)).as_text()

  assert 'optimization_barrier' in text('')
  assert 'optimization_barrier' not in text('tpu')
  assert 'optimization_barrier' not in text('cuda')


def test_every_dense_layer_of_the_model_uses_it(monkeypatch):
  """Otherwise half of the speed of their gradients is lost on a CPU without a test to say so."""
  seen = []
  original = dense.dot_general
  monkeypatch.setattr(dense, 'dot_general', lambda *a, **k: seen.append(a[1].shape) or original(*a, **k))
  config, enc, _ = tiny.made('rope', mlp='swiglu', num_layers=2)
  jax.eval_shape(lambda key: model.init(config, enc, key), jax.random.PRNGKey(0))
  assert len(seen) % (2 * 7) == 0  # query, key, value, out; gate, up; down: once or more while initialising
  assert nn.Dense(3, dot_general=original).init(jax.random.PRNGKey(0), jnp.ones((1, 2)))['params']['kernel'].shape == (2, 3)
