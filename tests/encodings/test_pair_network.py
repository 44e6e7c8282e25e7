"""The network over pairs of tokens, against the same formula written for all pairs at once, in value and in every gradient."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pe_jax.encodings import pair_network


def plain(w1_UI, b_U, w2_UH, x_BIP, slope):
  z_BUP = jnp.einsum('ui,bip->bup', w1_UI, x_BIP) + b_U[None, :, None]
  return jnp.einsum('uh,bup->bhp', w2_UH, jnp.where(z_BUP > 0, z_BUP, slope * z_BUP))


@pytest.mark.parametrize('slope', [0.0, 0.01])
@pytest.mark.parametrize('pairs', [1, 7, 8, 33])
def test_pieces_give_the_value_and_the_gradients_of_all_pairs_at_once(monkeypatch, pairs, slope):
  monkeypatch.setattr(pair_network, 'PIECE', 16)  # 8 pairs of each of two rows
  rng = np.random.default_rng(0)
  arrays = [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((5, 3), (5,), (5, 4), (2, 3, pairs))]
  got, pull = jax.vjp(lambda *a: pair_network.network(*a, slope), *arrays)
  expected, pull_plain = jax.vjp(lambda *a: plain(*a, slope), *arrays)
  np.testing.assert_allclose(got, expected, atol=1e-5)
  weight = jnp.asarray(rng.normal(size=got.shape), jnp.float32)
  for ours, theirs in zip(pull(weight), pull_plain(weight), strict=True):
    np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_more_rows_than_a_piece_has_pairs(monkeypatch):
  monkeypatch.setattr(pair_network, 'PIECE', 2)
  x = jnp.linspace(-1.0, 1.0, 5 * 3).reshape(5, 1, 3)
  out = pair_network.network(jnp.ones((1, 1)), jnp.zeros(1), jnp.ones((1, 1)), x)
  np.testing.assert_array_equal(out, jnp.maximum(x, 0))


def test_no_array_has_the_hidden_units_of_all_pairs():
  """Their number times that of the pairs is what a CPU or a chip would have to keep."""
  units, pairs = 32, 2**15
  arrays = jnp.ones((units, 1)), jnp.zeros(units), jnp.ones((units, 2)), jnp.ones((1, 1, pairs))
  text = jax.jit(jax.grad(lambda *a: pair_network.network(*a).sum(), (0, 1, 2, 3))).lower(*arrays).compile().as_text()
  sizes = [np.prod([int(n) for n in shape.split(',')]) for shape in re.findall(r'f32\[([\d,]+)\]', text)]
  assert max(sizes) < units * pairs / 4
