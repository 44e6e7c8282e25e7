"""Negative log-likelihood in nats, float32 whatever the model's dtype.

With a large vocabulary the logits of all tokens at once are the largest array of a training step. Beyond `LARGE` entries they are made for
a piece of the text at a time; in training the gradients are computed in the same pass, so that no piece's logits are kept or made twice.
"""

import jax
import jax.numpy as jnp

LARGE = 2**25  # logits, 128 MiB; below that pieces gain nothing
PIECE = 2**24  # logits in a piece


def nll(logits_BTV, targets_BT):
  """-log p(target) at each place, float32 (B, T). Targets are in 0 .. V-1; the data pipeline has checked that."""
  logits_BTV = logits_BTV.astype(jnp.float32)
  hit_BT = jnp.take_along_axis(logits_BTV, targets_BT[..., None], axis=-1)[..., 0]
  return jax.nn.logsumexp(logits_BTV, axis=-1) - hit_BT


def logits(x_BTD, head_VD, bias_V):
  """Next-token scores, float32 (B, T, V)."""
  scores_BTV = jnp.einsum('btd,vd->btv', x_BTD.astype(jnp.float32), head_VD.astype(jnp.float32))
  return scores_BTV if bias_V is None else scores_BTV + bias_V[None, None]


def each(x_BTD, head_VD, bias_V, targets_BT, piece=0):
  """`nll` of the last hidden states x, without all logits at once. For evaluation: a gradient would keep every piece."""
  width = piece or _piece(targets_BT, head_VD)
  if not width:
    return nll(logits(x_BTD, head_VD, bias_V), targets_BT)
  parts_XBT = jax.lax.map(lambda part: nll(logits(part[0], head_VD, bias_V), part[1]), _cut(width, x_BTD, targets_BT))
  return jnp.moveaxis(parts_XBT, 0, 1).reshape(targets_BT.shape[0], -1)[:, : targets_BT.shape[1]]


def weighted_sum(x_BTD, head_VD, bias_V, targets_BT, weight_BT, piece=0):
  """The sum of weight x `nll`, for training. `piece`: positions at a time; 0: all, or as many as make `PIECE` logits when they are many."""
  width = piece or _piece(targets_BT, head_VD)
  if not width:
    return jnp.sum(nll(logits(x_BTD, head_VD, bias_V), targets_BT) * weight_BT)
  return _in_pieces(width, x_BTD, head_VD, bias_V, targets_BT, weight_BT)


def _piece(targets_BT, head_VD):
  """Positions at a time, 0 for all of them."""
  batch, length = targets_BT.shape
  entries = batch * head_VD.shape[0]
  return 0 if entries * length <= LARGE else max(1, min(length, PIECE // entries))


def _cut(width, *arrays):
  """(pieces, B, width, ...) of arrays (B, T, ...), filled up with zeros."""

  def cut(x):
    x = jnp.pad(x, [(0, 0), (0, -x.shape[1] % width)] + [(0, 0)] * (x.ndim - 2))
    return jnp.moveaxis(x.reshape(x.shape[0], -1, width, *x.shape[2:]), 1, 0)

  return tuple(map(cut, arrays))


def _pieces(width, x, head, bias, targets, weight):
  """(the sum, its gradients for x, head and bias), in one pass."""

  def one(sums, part):
    x_BCD, target_BC, weight_BC = part
    scores = logits(x_BCD, head, bias)
    peak = jnp.max(scores, axis=-1, keepdims=True)
    weights = jnp.exp(scores - peak)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    hit = jnp.take_along_axis(scores, target_BC[..., None], axis=-1)
    loss = jnp.sum((peak + jnp.log(total) - hit)[..., 0] * weight_BC)
    here = jnp.arange(head.shape[0])[None, None] == target_BC[..., None]
    g = (weights / total - here) * weight_BC[..., None]
    d_head = jnp.einsum('bcv,bcd->vd', g, x_BCD.astype(jnp.float32))
    sums = jax.tree.map(jnp.add, sums, (loss, d_head, jnp.sum(g, axis=(0, 1))))
    return sums, jnp.einsum('bcv,vd->bcd', g, head.astype(jnp.float32))

  zero = jnp.float32(0), jnp.zeros(head.shape, jnp.float32), jnp.zeros(head.shape[:1], jnp.float32)
  (loss, d_head, d_bias), d_x = jax.lax.scan(one, zero, _cut(width, x, targets, weight))
  d_x = jnp.moveaxis(d_x, 0, 1).reshape(x.shape[0], -1, x.shape[-1])[:, : x.shape[1]]
  return loss, (d_x.astype(x.dtype), d_head.astype(head.dtype), None if bias is None else d_bias.astype(bias.dtype))


def _forward(width, x, head, bias, targets, weight):
  return _pieces(width, x, head, bias, targets, weight)


def _backward(width, gradients, cotangent):
  del width
  return *jax.tree.map(lambda g: cotangent * g, gradients), None, None


_in_pieces = jax.custom_vjp(lambda *args: _pieces(*args)[0], nondiff_argnums=(0,))
_in_pieces.defvjp(_forward, _backward)
