"""A small network that looks at each pair of tokens alone: inputs -> hidden units -> heads, one pair after the other in the cache.

    out = W2^T a(W1 x + b),   a(z) = z where z > 0, slope z elsewhere

All pairs at once would be `hidden` arrays of T x S, written to memory and read again. So pairs are taken `PIECE` at a time, and the
gradient makes the hidden units again, piece by piece.
"""

import functools

import jax
import jax.numpy as jnp

PIECE = 4096  # pairs: 32 hidden units of them fill half a megabyte


def network(w1_UI, b_U, w2_UH, x_BIP, slope=0.0):
  """Outputs, float32 (B, H, P), for inputs (B, I, P)."""
  batch, inputs, pairs = x_BIP.shape
  size = min(max(PIECE // batch, 1), pairs)
  pieces = -(-pairs // size)
  x_BIP = jnp.pad(x_BIP, ((0, 0), (0, 0), (0, pieces * size - pairs)))
  # A piece has pairs of every row, so that a batch spread over devices stays where it is.
  x_NIP = jnp.transpose(x_BIP.reshape(batch, inputs, pieces, size), (2, 1, 0, 3)).reshape(pieces, inputs, batch * size)
  out_NHP = _pieces(slope, w1_UI, b_U, w2_UH, x_NIP).reshape(pieces, -1, batch, size)
  return jnp.transpose(out_NHP, (2, 1, 0, 3)).reshape(batch, -1, pieces * size)[:, :, :pairs]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _pieces(slope, w1_UI, b_U, w2_UH, x_NIP):
  return jax.lax.map(lambda x_IP: w2_UH.T @ _active(slope, w1_UI @ x_IP + b_U[:, None]), x_NIP)


def _forward(slope, *arrays):
  return _pieces(slope, *arrays), arrays


def _backward(slope, arrays, d_out_NHP):
  w1_UI, b_U, w2_UH, x_NIP = arrays

  def add(sums, piece):
    x_IP, d_out_HP = piece
    z_UP = w1_UI @ x_IP + b_U[:, None]
    d_z_UP = w2_UH @ d_out_HP
    d_z_UP = jnp.where(z_UP > 0, d_z_UP, slope * d_z_UP)
    parts = d_z_UP @ x_IP.T, d_z_UP.sum(1), _active(slope, z_UP) @ d_out_HP.T
    return jax.tree.map(jnp.add, sums, parts), w1_UI.T @ d_z_UP

  zeros = tuple(jnp.zeros_like(a) for a in (w1_UI, b_U, w2_UH))
  sums, d_x_NIP = jax.lax.scan(add, zeros, (x_NIP, d_out_NHP))
  return *sums, d_x_NIP


_pieces.defvjp(_forward, _backward)


def _active(slope, z):
  return jnp.where(z > 0, z, slope * z)
