"""Every encoding's programs, in training, evaluation and decoding, can be made for a TPU and for an NVIDIA GPU, from any machine.

They call the kernels that `attention.paths` names and no others.
"""

import re

import jax
import jax.numpy as jnp
import optax
import properties
import pytest
import tiny
from jax._src.cudnn import fused_attention_stablehlo

from pe_jax import attention, kernels, loss, model, step
from pe_jax import cache as kv
from pe_jax.encodings.base import Where

pytestmark = pytest.mark.parametrize('spec', properties.SPECS)
LENGTH = 144  # the smallest that is worth a kernel
CALLS = {'flash': r'kernel_name = "flash_\w+"', 'splash': r'kernel_name = "splash_\w+"', 'cudnn': r'custom_call @__cudnn\$fmha\w*'}


@pytest.fixture(autouse=True)
def long_is_short(monkeypatch):
  monkeypatch.setattr(attention, 'LONG', LENGTH)  # so that what no kernel serves goes blockwise, as long texts do


def check(function, args, platform, expected):
  """Makes the program; it calls each of the expected kernels, and no other."""
  text = jax.jit(function).trace(*args).lower(lowering_platforms=(platform,)).as_text()
  assert 'f64' not in text, platform  # accelerators emulate doubles
  called = {name: set(re.findall(pattern, text)) for name, pattern in CALLS.items()}
  for name, calls in called.items():
    assert bool(calls) == (name in expected), (platform, name, expected, calls)
  return called


def training(spec, platform, **changes):
  """(config, record, train step, abstract arguments) of the tiny model."""
  config, enc, params = tiny.made(spec, platform=platform, **changes)
  tx = optax.adamw(1e-3)
  row = {'tokens': jnp.int32, 'targets': jnp.int32, 'weight': jnp.float32, 'pos': jnp.int32, 'doc': jnp.int32}
  batch = {name: jax.ShapeDtypeStruct((2, LENGTH), dtype) for name, dtype in row.items()} | {'row': jax.ShapeDtypeStruct((2,), jnp.int32)}
  state = jax.eval_shape(lambda p: step.init(config, enc, tx, p), params)
  return config, (enc.schedule[0][1] if enc.schedule else enc), step.make(config, enc, tx), (state, batch)


@pytest.mark.parametrize('platform', ['tpu', 'cuda'])
def test_a_training_step_can_be_made_for_accelerators(spec, platform):
  config, enc, function, args = training(spec, platform)
  called = check(function, args, platform, attention.paths(config, enc, LENGTH).split(', '))
  for names in called.values():
    assert not names or len(names) == 3  # forward, and backward for queries and for keys


def test_a_training_step_on_rows_of_one_document_is_cudnns_on_nvidia(spec, monkeypatch):
  """JAX asks for cuDNN's version before it makes the call, and there is none on this machine."""
  monkeypatch.setattr(fused_attention_stablehlo, 'check_cudnn_version', lambda: 91_000)
  config, enc, params = tiny.made(spec, platform='cuda', dtype='bfloat16')
  expected = attention.paths(config, enc, LENGTH, single=True).split(', ')
  if 'cudnn' not in expected:
    pytest.skip(f'goes {expected}, as in the test above')
  tokens = jax.ShapeDtypeStruct((2, LENGTH), jnp.int32)

  def total(params, tokens, pos, doc):
    where = enc.placed(Where.forward(pos, doc, single=True))
    return jnp.sum(loss.each(model.hidden(config, enc, params, tokens, where)[0], *model.head(config, params), tokens))

  called = check(jax.grad(total), (params, tokens, tokens, tokens), 'cuda', expected)
  assert len(called['cudnn']) == 2


@pytest.mark.parametrize('platform', ['tpu', 'cuda'])
def test_evaluation_and_decoding_can_be_made_for_accelerators(spec, platform):
  config, enc, params = tiny.made(spec, dtype='bfloat16', platform=platform)
  tokens = jax.ShapeDtypeStruct((2, LENGTH), jnp.int32)

  def evaluate(params, tokens, pos, doc):
    x, _ = model.hidden(config, enc, params, tokens, enc.placed(Where.forward(pos, doc)))
    return loss.each(x, *model.head(config, params), tokens)

  check(evaluate, (params, tokens, tokens, tokens), platform, attention.paths(config, enc, LENGTH).split(', '))
  cache = kv.create(config.model, enc, 2, LENGTH, LENGTH)
  one = jax.ShapeDtypeStruct((2, 1), jnp.int32)
  decode = (lambda params, cache, t, p, d: model.apply(config, enc, params, t, (p, d), cache=cache)), (params, cache, one, one, one)
  assert not set(kernels.NAMES) & {attention.choose(enc.at_layer(n), 1, LENGTH, 'auto', platform) for n in range(2)}
  check(*decode, platform, ())
