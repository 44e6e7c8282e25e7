"""The decoder's layers. The only file that knows flax.

Blocks of attention and MLP on a residual stream. Parameters are float32; activations have `config.model.dtype`; norms compute in float32.
What real checkpoints need (norm kind and place, biases, parallel blocks, q-k norm …) are fields, not classes.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn

from pe_jax import attention, dense
from pe_jax.config import GATED
from pe_jax.encodings.base import Encoding

ACTIVATIONS = {
  'gelu': nn.gelu,
  'gelu_exact': lambda x: nn.gelu(x, approximate=False),
  'relu': nn.relu,
  'relu2': lambda x: jnp.square(nn.relu(x)),
  'silu': nn.silu,
  'swiglu': nn.silu,
  'geglu': nn.gelu,
  'geglu_exact': lambda x: nn.gelu(x, approximate=False),
}
WATCHED = 'intermediates'  # flax's name for what is kept only where it is asked for
PIECE = 16_384  # positions that an MLP takes at a time: its hidden units are the widest array of a very long text


class Decoder(nn.Module):
  """tokens, positions -> last hidden states; owns the head's parameters too."""

  m: object
  enc: Encoding
  join: Callable | None = None

  @nn.compact
  def __call__(self, tokens_BT, where, alone, params, key_B):
    m, enc = self.m, self.enc
    embedding = nn.Embed(m.vocab_size, m.embed_dim, name='embed', embedding_init=nn.initializers.normal(m.embed_dim**-0.5))
    x_BTD = embedding(tokens_BT).astype(m.dtype) * (m.embed_scale or (m.embed_dim**0.5 if enc.embed else 1.0))
    if m.embed_norm:
      x_BTD = norm(m, 'embed_norm')(x_BTD)
    if enc.embed:
      x_BTD = enc.embed(params, x_BTD, where)
    x_BTD = dropout(x_BTD, m.dropout, key_B, 0)
    # Keys that are cached rotated are turned among themselves, before they join the others.
    tables = enc.tables(params, alone if enc.traits.cache == 'rotated' else where)
    # A record for each layer, as another encoding at evaluation may have, cannot be scanned.
    if m.scan_layers and not enc.layer and not self.join and not self.is_initializing():
      x_BTD, layers = self.scanned(x_BTD, where, tables, key_B), []
    else:
      x_BTD, layers = self.unrolled(x_BTD, where, tables, key_B)
    x_BTD = norm(m, 'final_norm')(x_BTD).astype(jnp.float32)
    if not m.tie_head:
      Kernel(m.embed_dim, m.vocab_size, name='head')()
    if m.head_bias:
      self.param('head_bias', nn.initializers.zeros, (m.vocab_size,))
    return x_BTD, layers

  def unrolled(self, x_BTD, where, tables, key_B):
    """One block after the other, each compiled on its own."""
    block, layers = (nn.remat(Block) if self.m.remat else Block), []
    for n in range(self.m.num_layers):
      join = self.join and functools.partial(self.join, n)
      x_BTD, layer = block(self.m, self.enc.at_layer(n), join, name=f'block_{n}')(x_BTD, where, tables, layer_keys(key_B, n))
      layers.append(layer)
    return x_BTD, layers

  def scanned(self, x_BTD, where, tables, key_B):
    """One block compiled once and run over all layers' parameters, which keep their names: a checkpoint fits both ways."""
    params, count = self.variables['params'], self.m.num_layers
    params_N = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(params[f'block_{n}'] for n in range(count)))
    block = Block(self.m, self.enc, parent=None)

    def layer(x_BTD, this):
      params, n = this
      return block.apply({'params': params}, x_BTD, where, tables, layer_keys(key_B, n))[0], None

    return jax.lax.scan(jax.checkpoint(layer) if self.m.remat else layer, x_BTD, (params_N, jnp.arange(count)))[0]


def layer_keys(key_B, n):
  """Each row's random key in layer n, None without dropout."""
  return None if key_B is None else jax.vmap(jax.random.fold_in, (0, None))(key_B, n + 1)


class Kernel(nn.Module):
  """The weights of an untied head, applied in loss.py piece by piece."""

  width: int
  vocabulary: int

  @nn.compact
  def __call__(self):
    return self.param('kernel', nn.initializers.lecun_normal(), (self.width, self.vocabulary))


class Block(nn.Module):
  """One layer."""

  m: object
  enc: Encoding
  join: Callable | None = None

  @nn.compact
  def __call__(self, x_BTD, where, tables, key_B):
    m = self.m
    self.sow(WATCHED, 'entered', x_BTD)
    attend, mlp = Attention(m, self.enc, self.join, name='attention'), Mlp(m, name='mlp')
    if m.norm_place == 'after':
      y_BTD, layer = attend(x_BTD, where, tables)
      x_BTD = x_BTD + dropout(norm(m, 'attention_norm')(y_BTD), m.dropout, key_B, 0)
      return x_BTD + dropout(norm(m, 'mlp_norm')(in_pieces(mlp, x_BTD)), m.dropout, key_B, 1), layer
    a_BTD = norm(m, 'attention_norm')(x_BTD)
    y_BTD, layer = attend(a_BTD, where, tables)
    y_BTD = dropout(y_BTD, m.dropout, key_B, 0)
    if m.parallel_block:
      b_BTD = a_BTD if m.shared_block_norm else norm(m, 'mlp_norm')(x_BTD)
      return x_BTD + y_BTD + dropout(in_pieces(mlp, b_BTD), m.dropout, key_B, 1), layer
    x_BTD = x_BTD + y_BTD
    return x_BTD + dropout(in_pieces(mlp, norm(m, 'mlp_norm')(x_BTD)), m.dropout, key_B, 1), layer


def linear(m, width, bias, name):
  """A layer of weights, in the dtype and for the platform of `config.model`."""
  return nn.Dense(width, use_bias=bias, dtype=m.dtype, name=name, dot_general=dense.dot_general_on(m.platform))


def in_pieces(function, x_BTD):
  """function(x), which looks at each position alone, for `PIECE` positions at a time."""
  parts = [function(x_BTD[:, n : n + PIECE]) for n in range(0, x_BTD.shape[1], PIECE)]
  return jnp.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]


class Attention(nn.Module):
  """Projections around `attention.attend`. `join` turns these tokens' keys, values and side values into those of all tokens."""

  m: object
  enc: Encoding
  join: Callable | None = None

  @nn.compact
  def __call__(self, x_BTD, where, tables):
    m, enc = self.m, self.enc

    def heads(count, name):
      y = linear(m, count * m.head_dim, m.qkv_bias, name)(x_BTD)
      if m.qk_norm == 'full' and name != 'value':
        y = norm(m, f'{name}_norm')(y)
      y = y.reshape(*x_BTD.shape[:2], count, m.head_dim)
      return norm(m, f'{name}_norm')(y) if m.qk_norm == 'head' and name != 'value' else y

    q_BTHK, k_BTGK, v_BTGK = heads(m.num_heads, 'query'), heads(m.num_kv_heads, 'key'), heads(m.num_kv_heads, 'value')
    turn_first = enc.rotate and (not self.join or enc.traits.cache == 'rotated')
    if turn_first:
      q_BTHK, k_BTGK = enc.rotate(tables, q_BTHK, k_BTGK)
    layer = (k_BTGK, v_BTGK, enc.token(tables, x_BTD) if enc.token else None)
    if self.join:
      layer = self.join(layer)
    k_BSGK, v_BSGK, side = layer
    where = dataclasses.replace(where, side=side)
    if enc.rotate and not turn_first:
      q_BTHK, k_BSGK = enc.rotate(tables, q_BTHK, k_BSGK)
    self.sow(WATCHED, 'attended', (q_BTHK, k_BSGK, where))
    out_BTHK = attention.attend(enc, tables, q_BTHK, k_BSGK, v_BSGK, where, m.attention, m.attention_chunk, m.platform)
    out = out_BTHK.reshape(*x_BTD.shape[:2], -1)
    return linear(m, m.embed_dim, m.attention_out_bias, 'out')(out), layer


class Mlp(nn.Module):
  """Plain or gated."""

  m: object

  @nn.compact
  def __call__(self, x_BTD):
    m = self.m
    act = ACTIVATIONS[m.mlp]

    def layer(width, name):
      return linear(m, width, m.mlp_bias, name)

    h_BTF = act(layer(m.mlp_dim, 'gate')(x_BTD)) * layer(m.mlp_dim, 'up')(x_BTD) if m.mlp in GATED else act(layer(m.mlp_dim, 'up')(x_BTD))
    return layer(m.embed_dim, 'down')(h_BTF)


def norm(m, name):
  """The config's norm; statistics in float32."""
  if m.norm == 'rms':
    return nn.RMSNorm(epsilon=m.norm_epsilon, dtype=m.dtype, name=name)
  return nn.LayerNorm(epsilon=m.norm_epsilon, dtype=m.dtype, use_bias=m.norm_bias, name=name)


def dropout(x_BTD, rate, key_B, salt):
  """Drops entries by a mask that depends on the row's own key, so that it is the same on any number of devices."""
  if key_B is None or rate == 0:
    return x_BTD
  keys = jax.vmap(jax.random.fold_in, (0, None))(key_B, salt)
  keep = jax.vmap(lambda k: jax.random.bernoulli(k, 1 - rate, x_BTD.shape[1:]))(keys)
  return jnp.where(keep, x_BTD / (1 - rate), 0).astype(x_BTD.dtype)
