"""The cases of this repository: training steps, attention and losses. What needs more than a compiled function is in ours_whole.py."""

import dataclasses
import platform
from importlib import metadata

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import ours_whole
from benchmarks.worker import Case
from pe_jax import attention, config, encodings, flops, loss, model, optim, parallel, process, resolve, step
from pe_jax.encodings import phases, rope
from pe_jax.encodings.base import Dims, Where

# What a model of a peer's kind is in our fields; 'plain' is the default: RMS norms, GELU, no biases.
FORMS = {
  'plain': {},
  'llama': {'mlp': 'swiglu'},
  'gpt2': {'norm': 'layer', 'norm_bias': True, 'qkv_bias': True, 'attention_out_bias': True, 'mlp_bias': True},
}


def versions():
  """Of what these cases run on, with the compiler options that a training step gets."""
  packages = {name: metadata.version(name) for name in ('jax', 'jaxlib', 'flax', 'optax', 'numpy')}
  return {'python': platform.python_version()} | packages | {'compiler options': process.options()}


def settings(encoding='rope', form='plain', *, width, layers, heads, vocabulary, length, rows):
  """A resolved config."""
  c = config.default()
  c.encoding, c.train_length, c.batch_size = encoding, length, rows
  c.model.embed_dim, c.model.num_layers, c.model.num_heads, c.model.vocab_size = width, layers, heads, vocabulary
  c.model.update(FORMS[form])
  return resolve.resolve(c)


def batch(vocabulary, length, rows):
  """Seeded random tokens, one document a row."""
  tokens = np.random.default_rng(0).integers(1, vocabulary, (rows, length + 1)).astype(np.int32)
  ones = np.ones((rows, length), np.int32)
  pos = np.cumsum(ones, axis=1, dtype=np.int32) - 1
  whole = {'tokens': tokens[:, :-1], 'targets': tokens[:, 1:], 'weight': ones.astype(np.float32), 'doc': ones, 'pos': pos}
  return whole | {'row': np.arange(rows, dtype=np.int32)}


def train(encoding='rope', form='plain', float_phases=False, **sizes):
  """A training step as train.py runs it: batch put on the device, gradients, clipping, AdamW, checks for what is not finite."""
  c = settings(encoding, form, **sizes)
  enc = encodings.make(c.encoding, model.dims(c))
  if float_phases:
    enc = dataclasses.replace(enc, prepare=plain_phases(model.dims(c)))
  tx = optim.make(c)
  spread = parallel.make(c, step.make(c, enc, tx), step.make_eval(c, enc), jax.devices())
  held = [spread.put_state(jax.jit(lambda: step.init(c, enc, tx))())]
  rows = batch(sizes['vocabulary'], sizes['length'], sizes['rows'])

  def run():
    held[0], numbers = spread.step(held[0], spread.put_batch(rows))
    jax.block_until_ready((held[0], numbers))

  tokens = sizes['rows'] * sizes['length']
  return Case(run, {'units': tokens, 'flops': flops.per_token(c) * tokens})


def plain_phases(dims):
  """RoPE's tables as most code makes them, position x frequency in float32, instead of exact integer phases."""
  frequency_F = jnp.asarray(rope.frequencies(dims.head_dim), jnp.float32)
  return lambda params, w: (phases.cos_sin(w.i_BT, frequency_F), phases.cos_sin(w.j_BS, frequency_F))


def attend(encoding, length, method='blockwise', backward=False, heads=4, width=64, documents=1):
  """Attention over one row, float32, with all that the encoding does around it: tables, rotation, biases. Documents are equally long.

  `backward`: output and the gradients for queries, keys, values and the encoding's parameters.
  """
  enc = encodings.make(encoding, Dims(heads, heads, width, heads * width, 512))
  params = enc.parameters(jax.random.PRNGKey(0))
  q, k, v, d_out = jax.random.normal(jax.random.PRNGKey(1), (4, 1, length, heads, width))
  index = jnp.arange(length, dtype=jnp.int32)[None]
  pos, doc = index % (length // documents), 1 + index // (length // documents)

  def forward(params, q, k, v, pos, doc):
    where = Where.forward(pos, doc)
    tables = enc.tables(params, where)
    if enc.rotate:
      q, k = enc.rotate(tables, q, k)
    return attention.attend(enc, tables, q, k, v, where, method)

  def both(params, q, k, v, pos, doc, d_out):
    out, pull = jax.vjp(lambda *x: forward(*x, pos, doc), params, q, k, v)
    return out, pull(d_out)

  options = process.options(long=length >= attention.LONG)
  f = jax.jit(both if backward else forward, compiler_options=options)
  args = (params, q, k, v, pos, doc, *([d_out] if backward else []))
  return Case(lambda: jax.block_until_ready(f(*args)))


def products(length, heads=4, width=64, block=512):
  """Of attention in blocks nothing but its two matrix products for every block up to the diagonal: what is left is XLA's to gain."""
  q, k, v = jax.random.normal(jax.random.PRNGKey(1), (3, heads, length, width))

  def rows(q, k, v, n):
    def add(m, total):
      k_m, v_m = (jax.lax.dynamic_slice_in_dim(x, m * block, block, axis=1) for x in (k, v))
      return total + jnp.einsum('hts,hsk->htk', jnp.einsum('htk,hsk->hts', q_n, k_m), v_m)

    q_n = jax.lax.dynamic_slice_in_dim(q, n * block, block, axis=1)
    return jax.lax.fori_loop(0, n + 1, add, jnp.zeros_like(q_n))

  options = process.options(long=length >= attention.LONG)
  f = jax.jit(lambda q, k, v: jax.lax.map(lambda n: rows(q, k, v, n), jnp.arange(length // block)), compiler_options=options)
  return Case(lambda: jax.block_until_ready(f(q, k, v)))


def head_loss(tokens, width, vocabulary, pieces=True):
  """Loss of the last hidden states, with its gradients for them and for the head's weights. pieces=False: all logits at once."""
  x_BTD = jax.random.normal(jax.random.PRNGKey(0), (8, tokens // 8, width))
  head_VD = jax.random.normal(jax.random.PRNGKey(1), (vocabulary, width)) * width**-0.5
  targets_BT = jax.random.randint(jax.random.PRNGKey(2), (8, tokens // 8), 0, vocabulary)
  weight_BT = jnp.ones(targets_BT.shape)

  def whole(x_BTD, head_VD):
    if pieces:
      return loss.weighted_sum(x_BTD, head_VD, None, targets_BT, weight_BT)
    return jnp.sum(loss.nll(loss.logits(x_BTD, head_VD, None), targets_BT) * weight_BT)

  f = jax.jit(jax.value_and_grad(whole, argnums=(0, 1)), compiler_options=process.options())
  return Case(lambda: jax.block_until_ready(f(x_BTD, head_VD)), {'units': tokens})


def evaluate_one(encoding, length, **sizes):
  """One document scored in one pass, as the evaluation does it."""
  c = settings(encoding, length=512, rows=1, **sizes)
  enc = encodings.make(c.encoding, model.dims(c), length)
  params = model.init(c, enc, jax.random.PRNGKey(0))
  rows = {name: jnp.asarray(x) for name, x in batch(sizes['vocabulary'], length, 1).items()}

  @jax.jit
  def score(params, rows):
    where = Where.forward(rows['pos'], rows['doc'], c.model.causal)
    x_BTD, _ = model.hidden(c, enc, params, rows['tokens'], where)
    return loss.each(x_BTD, *model.head(c, params), rows['targets'])

  return Case(lambda: jax.block_until_ready(score(params, rows)), {'units': length})


def matmul(size=1024):
  """The probe: a float32 matrix product, compiled as XLA comes."""
  x = jnp.ones((size, size), jnp.float32)
  f = jax.jit(jnp.dot)
  return Case(lambda: f(x, x).block_until_ready(), {'flops': 2 * size**3})


def lengths(lengths, **args):
  """Evaluation of one model at lengths."""
  return ours_whole.lengths(lambda **sizes: settings(args['encoding'], rows=1, **sizes), lengths, **args)


def decode(encoding='rope', form='plain', *, context, new, rows, **sizes):
  """Decoding after a prompt."""
  c = settings(encoding, form, length=512, rows=1, **sizes)
  return ours_whole.decode(c, context, new, rows)


CASES = {
  'matmul': matmul,
  'train': train,
  'attention': attend,
  'products': products,
  'loss': head_loss,
  'evaluate_one': evaluate_one,
  'lengths': lengths,
  'decode': decode,
  'pipeline': ours_whole.pipeline,
  'start': ours_whole.start,
}
