"""Every encoding's programs, in training, evaluation and decoding, can be made for a TPU and for an NVIDIA GPU, from any machine.

They call the kernels that `attention.paths` names and no others.
"""

import re

import jax
import jax.numpy as jnp
import optax
import pytest
import tiny
from jax._src.cudnn import fused_attention_stablehlo

from pe_jax import attention, loss, model, step
from pe_jax import cache as kv
from pe_jax.encodings.base import Where
from pe_jax.selfcheck import properties

pytestmark = pytest.mark.parametrize('spec', properties.SPECS)
LENGTH, CHUNK = 48, 32  # a text that is worth a kernel, where rows as they are end at CHUNK x CHUNK
CALLS = {'flash': r'kernel_name = "flash_\w+"', 'splash': r'kernel_name = "splash_\w+"', 'cudnn': r'custom_call @__cudnn\$fmha\w*'}


@pytest.fixture(autouse=True)
def short_is_long(monkeypatch):
  monkeypatch.setattr(attention, 'CHUNK', CHUNK)
  monkeypatch.setattr(attention, 'LONG', LENGTH)  # so that what no kernel serves goes blockwise, as long texts do


def check(platforms, program, expected):
  """Makes the program, (function, abstract arguments), for the platforms. It calls the kernels among the expected paths, and no others.

  Returns the names of what is called, for each platform.
  """
  function, args = program
  traced = jax.jit(function).trace(*args)
  found = {}
  for platform in platforms:
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert not re.search(r'\bf64\b|xf64\b', re.sub(r'"[^"]*"', '', text)), platform  # accelerators emulate doubles
    found[platform] = {name: set(re.findall(pattern, text)) for name, pattern in CALLS.items()}
    for name, calls in found[platform].items():
      assert bool(calls) == (name in expected), (platform, name, expected, calls)
  return found


def check_both(make, spec, **changes):
  """`check` of make(config, record, params) for both platforms, traced once where they take the same paths."""
  of = {platform: tiny.made(spec, platform=platform, attention_chunk=24, **changes) for platform in ('tpu', 'cuda')}
  taken = {platform: attention.paths(config, stage(enc), LENGTH).split(', ') for platform, (config, enc, _) in of.items()}
  groups = [('tpu', 'cuda')] if taken['tpu'] == taken['cuda'] else [('tpu',), ('cuda',)]
  found = {}
  for group in groups:
    found |= check(group, make(*of[group[0]]), taken[group[0]])
  return found


def stage(enc):
  """A record of a schedule, which are all alike in what they do."""
  return enc.schedule[0][1] if enc.schedule else enc


def test_a_training_step_can_be_made_for_accelerators(spec):
  def program(config, enc, params):
    tx = optax.adamw(1e-3)
    row = {'tokens': jnp.int32, 'targets': jnp.int32, 'weight': jnp.float32, 'pos': jnp.int32, 'doc': jnp.int32}
    batch = {name: jax.ShapeDtypeStruct((2, LENGTH), dtype) for name, dtype in row.items()} | {'row': jax.ShapeDtypeStruct((2,), jnp.int32)}
    return step.make(config, enc, tx), (jax.eval_shape(lambda p: step.init(config, enc, tx, p), params), batch)

  for called in check_both(program, spec).values():
    assert all(not names or len(names) == 3 for names in called.values())  # forward, and backward for queries and for keys


def test_training_on_rows_of_one_document_is_cudnns_on_nvidia(spec, monkeypatch):
  """JAX asks for cuDNN's version before it makes the call, and there is none on this machine."""
  monkeypatch.setattr(fused_attention_stablehlo, 'check_cudnn_version', lambda: 91_000)
  config, enc, params = tiny.made(spec, platform='cuda', dtype='bfloat16', attention_chunk=24)
  expected = attention.paths(config, enc, LENGTH, single=True).split(', ')
  if 'cudnn' not in expected:
    return  # what it takes instead is made in the test above
  tokens = jax.ShapeDtypeStruct((2, LENGTH), jnp.int32)

  def total(params, tokens, pos, doc):
    where = enc.placed(Where.forward(pos, doc, single=True))
    return jnp.sum(loss.each(model.hidden(config, enc, params, tokens, where)[0], *model.head(config, params), tokens))

  called = check(('cuda',), (jax.grad(total), (params, tokens, tokens, tokens)), expected)
  assert len(called['cuda']['cudnn']) == 2


def test_evaluation_and_decoding_can_be_made_for_accelerators(spec):
  tokens = jax.ShapeDtypeStruct((2, LENGTH), jnp.int32)

  def evaluation(config, enc, params):
    def evaluate(params, tokens, pos, doc):
      x, _ = model.hidden(config, enc, params, tokens, enc.placed(Where.forward(pos, doc)))
      return loss.each(x, *model.head(config, params), tokens)

    return evaluate, (params, tokens, tokens, tokens)

  check_both(evaluation, spec, dtype='bfloat16')
  config, enc, params = tiny.made(spec, dtype='bfloat16', platform='tpu', attention_chunk=24)
  cache = kv.create(config.model, enc, 2, LENGTH, LENGTH)
  one = jax.ShapeDtypeStruct((2, 1), jnp.int32)
  decode = (lambda params, cache, t, p, d: model.apply(config, enc, params, t, (p, d), cache=cache)), (params, cache, one, one, one)
  for platform in ('tpu', 'cuda'):  # the same program for both: a step of decoding is dense
    assert {attention.choose(enc.at_layer(n), 1, LENGTH, 'auto', platform) for n in range(2)} == {'dense'}
  check(('tpu', 'cuda'), decode, ())


def test_a_prompt_can_be_read_into_a_cache_on_accelerators(spec):
  """The queries of a prompt look at keys in slots: of the kernels only our own serves that, where nothing but distance counts."""

  def prefill(config, enc, params):
    cache = kv.create(config.model, enc, 2, LENGTH, LENGTH)
    two = jax.ShapeDtypeStruct((2, LENGTH), jnp.int32)
    return (lambda params, cache, t, p, d: model.hidden(config, enc, params, t, (p, d), cache=cache)), (params, cache, two, two, two)

  config, enc, params = tiny.made(spec, dtype='bfloat16', platform='tpu', attention_chunk=24)
  expected = attention.paths(config, stage(enc), LENGTH, same=False).split(', ')
  assert not {'splash', 'cudnn'} & {*expected}
  check(('tpu',), prefill(config, enc, params), expected)
