"""KERPLE against values worked by hand from the paper's two formulas."""

import jax
import jax.numpy as jnp
import numpy as np

from pe_jax import encodings
from pe_jax.encodings import kerple
from pe_jax.encodings.base import Dims


def test_the_two_kernels_by_hand():
  # log: -2 ln(1 + .5 * 4) = -2 ln 3;  -1 ln(1 + .25 * 4) = -ln 2.   power: -.5 * 4^2 = -8;  -.25 * 4^1 = -1.
  p, a = jnp.asarray([2.0, 1.0]), jnp.asarray([0.5, 0.25])
  np.testing.assert_allclose(kerple.bias(p, a, jnp.asarray([0, 4]), 'log'), [[0, -2.197225], [0, -0.693147]], atol=1e-6)
  np.testing.assert_allclose(kerple.bias(p, a, jnp.asarray([0, 4]), 'power'), [[0, -8.0], [0, -1.0]], atol=1e-6)


def test_scalars_are_kept_in_the_range_where_the_kernel_is_one():
  small, large = jnp.asarray([-3.0]), jnp.asarray([9.0])
  np.testing.assert_allclose(kerple.bias(small, small, 100, 'log'), [-0.01 * np.log(2.0)], rtol=1e-6)
  np.testing.assert_allclose(kerple.bias(large, jnp.asarray([1.0]), 3, 'power'), [-9.0], rtol=1e-6)


def test_initial_scalars_and_their_gradient_at_distance_zero():
  enc = encodings.make("kerple(kind='power')", Dims(64, 64, 8, 512, 16))
  params = enc.parameters(jax.random.PRNGKey(0))
  assert {k: v.shape for k, v in params.items()} == {'p': (64,), 'a': (64,)}
  assert 0 <= float(params['p'].min()) < float(params['p'].max()) <= 2
  assert 0 <= float(params['a'].min()) < float(params['a'].max()) <= 1
  for kind in ('log', 'power'):
    gradient = jax.grad(lambda q, k=kind: jnp.sum(kerple.bias(q['p'], q['a'], jnp.arange(-2, 5), k)))(params)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradient))
