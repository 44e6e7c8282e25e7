"""A training step as a textbook writes it, in flax linen: pre-norm decoder, learned positions, dense attention over all pairs, AdamW.

Vaswani et al., 2017, arXiv:1706.03762, with the norms in front (Xiong et al., 2020, arXiv:2002.04745) and the output layer tied to the
embedding (Press and Wolf, 2017, arXiv:1608.05859). Nothing here is tuned. `options`: the step is compiled with the options of ours.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from benchmarks.worker import Case


class Attention(nn.Module):
  """softmax(q k / sqrt(K)) v over a full score matrix with a causal mask."""

  heads: int

  @nn.compact
  def __call__(self, x):
    width, length = x.shape[-1], x.shape[1]
    head = (self.heads, width // self.heads)
    q, k, v = (nn.DenseGeneral(head, use_bias=False, name=name)(x) for name in ('q', 'k', 'v'))
    scores = jnp.einsum('bthk,bshk->bhts', q, k) / head[1] ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool))[None, None], scores, -1e30)
    out = jnp.einsum('bhts,bshk->bthk', jax.nn.softmax(scores, axis=-1), v)
    return nn.DenseGeneral(width, axis=(-2, -1), use_bias=False, name='out')(out)


class Decoder(nn.Module):
  """Tokens to logits."""

  vocabulary: int
  width: int
  layers: int
  heads: int

  @nn.compact
  def __call__(self, tokens):
    embed = nn.Embed(self.vocabulary, self.width)
    x = embed(tokens) + nn.Embed(tokens.shape[1], self.width)(jnp.arange(tokens.shape[1]))[None]
    for _ in range(self.layers):
      x = x + Attention(self.heads)(nn.LayerNorm(use_bias=False)(x))
      h = nn.gelu(nn.Dense(4 * self.width, use_bias=False)(nn.LayerNorm(use_bias=False)(x)))
      x = x + nn.Dense(self.width, use_bias=False)(h)
    return embed.attend(nn.LayerNorm(use_bias=False)(x))


def train(width, layers, heads, vocabulary, length, rows, options=False):
  """Gradients of the mean loss and an AdamW update."""
  from pe_jax import process

  text = np.random.default_rng(0).integers(1, vocabulary, (rows, length + 1)).astype(np.int32)
  decoder, tx = Decoder(vocabulary, width, layers, heads), optax.adamw(1e-3, b2=0.95, weight_decay=0.1)

  def mean_loss(params, text):
    logits = decoder.apply(params, text[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, text[:, 1:]).mean()

  def step(params, opt, text):
    value, grads = jax.value_and_grad(mean_loss)(params, text)
    updates, opt = tx.update(grads, opt, params)
    return optax.apply_updates(params, updates), opt, value

  params = jax.jit(decoder.init)(jax.random.PRNGKey(0), text[:, :-1])
  held = [params, tx.init(params)]
  compiled = jax.jit(step, donate_argnums=(0, 1), compiler_options=process.options() if options else None)

  def run():
    *new, _ = jax.block_until_ready(compiled(*held, text))
    held[:] = new

  return Case(run, {'units': rows * length})


def versions():
  """Those of ours."""
  return {}


CASES = {'train': train}
