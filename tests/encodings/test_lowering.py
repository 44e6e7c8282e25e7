"""Every encoding's programs, in training, evaluation and decoding, can be made for a TPU and for an NVIDIA GPU, from any machine."""

import jax
import jax.numpy as jnp
import optax
import properties
import pytest
import tiny

from pe_jax import cache as kv
from pe_jax import loss, model, step
from pe_jax.encodings.base import Where

pytestmark = pytest.mark.parametrize('spec', properties.SPECS)
LENGTH = 16


def lowered(function, *args):
  """Text of the program for each platform."""
  traced = jax.jit(function).trace(*args)
  return {platform: traced.lower(lowering_platforms=(platform,)).as_text() for platform in ('tpu', 'cuda')}


def check(texts):
  for platform, text in texts.items():
    assert 'f64' not in text, platform  # accelerators emulate doubles


def test_a_training_step_can_be_made_for_accelerators(spec):
  config, enc, params = tiny.made(spec, attention='blockwise')
  tx = optax.adamw(1e-3)
  row = {'tokens': jnp.int32, 'targets': jnp.int32, 'weight': jnp.float32, 'pos': jnp.int32, 'doc': jnp.int32}
  batch = {name: jax.ShapeDtypeStruct((2, LENGTH), dtype) for name, dtype in row.items()} | {'row': jax.ShapeDtypeStruct((2,), jnp.int32)}
  state = jax.eval_shape(lambda p: step.init(config, enc, tx, p), params)
  check(lowered(step.make(config, enc, tx), state, batch))


def test_evaluation_and_decoding_can_be_made_for_accelerators(spec):
  config, enc, params = tiny.made(spec, dtype='bfloat16')
  tokens = jax.ShapeDtypeStruct((2, LENGTH), jnp.int32)

  def evaluate(params, tokens, pos, doc):
    x, _ = model.hidden(config, enc, params, tokens, enc.placed(Where.forward(pos, doc)))
    return loss.each(x, *model.head(config, params), tokens)

  check(lowered(evaluate, params, tokens, tokens, tokens))
  cache = kv.create(config.model, enc, 2, LENGTH, LENGTH)
  one = jax.ShapeDtypeStruct((2, 1), jnp.int32)
  check(lowered(lambda params, cache, t, p, d: model.apply(config, enc, params, t, (p, d), cache=cache), params, cache, one, one, one))
