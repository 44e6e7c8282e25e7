"""Another encoding for each group of heads: heads(nope, alibi) gives half of the heads no position and the other half a penalty.

That is NAPE (Vasylenko et al., 2025, arXiv:2506.16640); heads(hard_alibi, nope) is the split of Jelassi et al., 2024, arXiv:2402.01032.
Groups are equal, first heads first; each encoding is made for the heads it serves, so ALiBi on 4 of 8 heads has the slopes of 4.
"""

import dataclasses

import jax.numpy as jnp

from pe_jax.attention import softmax
from pe_jax.encodings.base import Encoding, scores
from pe_jax.encodings.combine import joint_sides, joint_token, joint_traits, part, refuse, together
from pe_jax.errors import ConfigError


def encoding(dims, *inner):
  """The record."""
  count = len(inner)
  if dims.num_heads % count:
    raise ConfigError(f'encoding: heads(…) lists {count} encodings and {dims.num_heads} heads cannot be shared out equally')
  share = dataclasses.replace(dims, num_heads=dims.num_heads // count, num_kv_heads=max(dims.num_kv_heads // count, 1))
  records = [one(share) for one in inner]
  for record in records:
    refuse(record, 'heads', 'embed', 'positions', 'schedule')
    if dims.num_kv_heads % count and any(record.at_layer(n).rotate or record.at_layer(n).score for n in range(dims.num_layers)):
      raise ConfigError(
        f"encoding: heads(…): '{record.spec}' needs keys of its own and {dims.num_kv_heads} key-value heads cannot be shared out "
        f'among {count} encodings (set model.num_kv_heads to a multiple of {count})'
      )

  def layer(n):
    return side_by_side([part(r.at_layer(n), m) for m, r in enumerate(records)], share.num_heads, dims.head_dim)

  return Encoding(**together(records), layer=layer, traits=joint_traits(records))


def side_by_side(parts, size, width):
  """One layer's record: part m does its work on heads m size .. (m + 1) size - 1. `width`: head_dim."""

  def some(slot):
    return any(getattr(p, slot) for p in parts)

  def rotate(tables, q_BTHK, k_BSGK):
    pairs = zip(parts, *(jnp.split(x, len(parts), axis=2) for x in (q_BTHK, k_BSGK)), strict=True)
    q, k = zip(*(p.rotate(tables, q, k) if p.rotate else (q, k) for p, q, k in pairs), strict=True)
    widths = {x.shape[-1] for x in q}
    if len(widths) > 1:
      raise ConfigError(f'encoding: heads(…): its encodings turn heads of {q_BTHK.shape[-1]} into different widths {sorted(widths)}')
    return jnp.concatenate(q, axis=2), jnp.concatenate(k, axis=2)

  def score(tables, q_BTHK, k_BSGK, where):
    qk = zip(parts, *(jnp.split(x, len(parts), axis=2) for x in (q_BTHK, k_BSGK)), strict=True)
    return jnp.concatenate([p.score(tables, q, k, where) if p.score else scores(q, k, width) for p, q, k in qk], axis=1)

  def distance_bias(tables, distance):
    nothing = jnp.zeros((size, *distance.shape), jnp.float32)
    return jnp.concatenate([p.distance_bias(tables, distance) if p.distance_bias else nothing for p in parts])

  def everywhere(slot, otherwise):
    def function(tables, where):
      shape = (where.i_BT.shape[0], size, where.i_BT.shape[1], 1 if slot == 'scale' else where.j_BS.shape[1])
      values = [getattr(p, slot)(tables, where) if getattr(p, slot) else jnp.asarray(otherwise) for p in parts]
      return jnp.concatenate([jnp.broadcast_to(v, shape) for v in values], axis=1)

    return function

  def normalise(tables, s_BHTS, visible):
    visible = jnp.broadcast_to(visible, s_BHTS.shape)
    cut = zip(parts, jnp.split(s_BHTS, len(parts), axis=1), jnp.split(visible, len(parts), axis=1), strict=True)
    return jnp.concatenate([p.normalise(tables, s, v) if p.normalise else softmax(s, v) for p, s, v in cut], axis=1)

  slots = {'rotate': rotate, 'score': score, 'distance_bias': distance_bias, 'normalise': normalise}
  slots |= {slot: everywhere(slot, otherwise) for slot, otherwise in (('bias', 0.0), ('visible', True), ('scale', 1.0))}
  used = {slot: function for slot, function in slots.items() if some(slot)}
  return Encoding(**used, token=joint_token(parts), sides=joint_sides(parts), traits=joint_traits(parts))
