"""What `kept` promises: the same values and gradients, computed once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pe_jax import encodings
from pe_jax.encodings.base import Dims, Where
from pe_jax.kept import kept


@pytest.fixture(autouse=True)
def one_device(monkeypatch):
  monkeypatch.setattr(jax, 'device_count', lambda: 1)


@pytest.mark.parametrize('kind', ['positions', 'numbers'])
def test_a_kept_value_is_computed_once_however_many_use_it(kind):
  x = jnp.arange(8) if kind == 'positions' else jnp.linspace(0.0, 1.0, 8)

  def used_often(cosine, x, y):
    wave = cosine(x.astype(jnp.float32) * 0.1)
    return [jnp.sum(y[:, :, n] * wave[None] + jnp.tanh(y[:, :, n]), axis=n % 2) for n in range(4)]

  def cosines(cosine):
    return jax.jit(lambda *a: used_often(cosine, *a)).lower(x, jnp.ones((8, 8, 4))).compile().as_text().count(' cosine(')

  assert cosines(kept(jnp.cos)) <= 2  # one in each of two branches of which one is taken
  assert cosines(jnp.cos) > 2  # else XLA has learned it, and `kept` can go


def test_values_gradients_and_batches_of_a_kept_function_are_its_own():
  def make(table, place):
    return {'a': jnp.sin(table * place), 'b': table + 1}

  table, place = jnp.linspace(-2.0, 2.0, 6), jnp.arange(6)
  for kind in (lambda f: f, jax.jit):
    ours, plain = kind(kept(make))(table, place), make(table, place)
    assert all(np.array_equal(ours[name], plain[name]) for name in plain)
  gradient = jax.grad(lambda t: jnp.sum(kept(make)(t, place)['a'] ** 2))(table)
  assert np.allclose(gradient, jax.grad(lambda t: jnp.sum(make(t, place)['a'] ** 2))(table), rtol=1e-6)
  many = jnp.stack([table, 2 * table])
  assert np.allclose(jax.vmap(kept(make), (0, None))(many, place)['a'][1], make(2 * table, place)['a'], rtol=1e-6)


def test_a_kept_function_of_what_is_not_finite_is_still_itself():
  x = jnp.array([-jnp.inf, jnp.nan, 1.0, jnp.finfo(jnp.float32).min])
  assert np.array_equal(kept(jnp.abs)(x), jnp.abs(x), equal_nan=True)


@pytest.mark.parametrize(('rows', 'branches'), [(1, 0), (2, 1)])
def test_a_bias_by_distance_is_kept_for_rows_that_share_it(rows, branches):
  enc = encodings.make('kerple', Dims(2, 2, 8, 16, 64))
  pos = jnp.broadcast_to(jnp.arange(8, dtype=jnp.int32), (rows, 8))
  f = jax.jit(lambda params, pos: enc.added(enc.tables(params, w := Where.forward(pos, pos + 1)), w))
  assert f.lower(enc.parameters(jax.random.PRNGKey(0)), pos).compile().as_text().count(' conditional(') == branches
