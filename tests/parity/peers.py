"""What public implementations compute, as data: run with a Python that has the `parity` extra.

    python tests/parity/peers.py --out tests/parity/peers.json

Only the peers' own functions are called; nothing here repeats their arithmetic. Frequencies are recorded twice: as a peer computes them,
in float32, and from the same lines of the peer in float64, which tells its rounding from its formula. Settings are written in the words of
pe_jax.encodings and translated to the peers' words. Inputs are seeded and have few decimals, so that the file holds them exactly.
"""

import argparse
import contextlib
import importlib.metadata
import itertools
import json
import types
from unittest import mock

import numpy as np
import torch
import transformers
from transformers import modeling_rope_utils
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gpt_neox import modeling_gpt_neox
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.xlnet.modeling_xlnet import XLNetModel, XLNetRelativeAttention
from x_transformers import x_transformers

LONGEST = 100_000  # T5 distances
PACKAGES = ('torch', 'transformers', 'x-transformers', 'numpy')


def product(**choices):
  """Every combination, as dicts."""
  return [dict(zip(choices, values)) for values in itertools.product(*choices.values())]


def rope_settings():
  """{peer's rope type: settings in our words}."""
  pairs = np.arange(1, 33) / 32
  short, long = (1 + 0.5 * pairs).round(4).tolist(), (1 + 60 * pairs**2).round(4).tolist()
  by_length = [{'length': length} for length in (64, 4096, 4097, 131_072)]
  longrope = {'head_dim': 64, 'base': 1e4, 'original_length': 4096, 'short_factor': short, 'long_factor': long}
  small = {'head_dim': 8, 'base': 500.0, 'original_length': 100, 'short_factor': [1.0, 1.5, 2.0, 3.5], 'long_factor': [1.0, 4.0, 9.0, 40.0]}
  deepseek = {'head_dim': 64, 'base': 1e4, 'original_length': 4096, 'factor': 40.0}
  llama2 = {'head_dim': 128, 'base': 1e4, 'original_length': 4096}
  gpt_oss = {'head_dim': 64, 'base': 150_000.0, 'original_length': 4096, 'factor': 32.0, 'truncate': False}
  both = (True, False)
  mscales = [{'mscale': a, 'mscale_all_dim': b} for a, b in ((1.0, 1.0), (0.707, 0.707), (1.0, 0.707), (0.5, 1.5))]
  mscales += [{'mscale': 0.707}, {'mscale_all_dim': 0.707}]
  return {
    'default': product(head_dim=(4, 6, 16, 64, 80, 128), base=(100.0, 1e4, 5e5, 1e7))
    + product(head_dim=(64, 80), base=(1e4, 1e6), fraction=(0.25, 0.5, 0.75)),
    'linear': product(head_dim=(4, 64, 128), base=(1e4, 5e5), factor=(1.0, 2.0, 3.3, 8.0)),
    'dynamic': product(head_dim=(4, 64), base=(1e4, 5e5), factor=(1.0, 2.0, 4.0), original_length=(128,), length=(1, 128, 129, 4096))
    + product(head_dim=(128,), base=(5e5,), factor=(2.0,), original_length=(4096,), length=(4096, 5000, 65_536))
    + product(head_dim=(80,), base=(1e4,), fraction=(0.4,), factor=(2.5,), original_length=(2048,), length=(1024, 2049, 32_768)),
    'yarn': product(head_dim=(4, 16, 64, 128), base=(1e4, 1e6), original_length=(64, 2048, 32_768), factor=(4.0,), truncate=both)
    + product(
      head_dim=(64,), base=(1e4,), original_length=(4, 6), factor=(4.0,), truncate=both
    )  # ramps that end where they start, or before
    + [llama2 | more for more in product(factor=(1.0, 1.5, 2.0, 8.0, 16.0, 32.0, 100.0), truncate=both)]
    + [
      llama2 | {'factor': 8.0, 'beta_fast': fast, 'beta_slow': slow, 'truncate': truncate}
      for (fast, slow), truncate in itertools.product(((64.0, 1.0), (16.0, 2.0), (32.0, 0.5), (4.0, 3.9), (2.0, 1.0)), both)
    ]
    + [deepseek | more for more in ({}, *mscales, {'attention_factor': 1.0}, {'attention_factor': 1.3, **mscales[2]})]
    + [llama2 | {'factor': factor} | more for factor in (1.0, 2.0) for more in mscales]
    + [gpt_oss, gpt_oss | {'fraction': 0.5}, deepseek | {'head_dim': 80, 'fraction': 0.4}],
    'longrope': [
      settings | length | scale
      for settings, length, scale in itertools.product((longrope, small), by_length, ({'factor': 1.0}, {'factor': 32.0}))
    ]
    + [longrope | {'factor': 32.0, 'attention_factor': 1.19} | length for length in by_length[1:3]],
    'llama3': product(head_dim=(16, 64), base=(1e4, 5e5), original_length=(128, 8192), factor=(1.0, 8.0, 32.0))
    + product(head_dim=(128,), base=(5e5,), original_length=(8192,), factor=(8.0,))
    + product(head_dim=(64,), base=(5e5,), original_length=(8192,), factor=(4.0,), low=(1.0, 2.0), high=(4.0, 32.0)),
    'proportional': product(head_dim=(16, 64), base=(1e4, 1e6), p=(0.25, 0.5, 1.0))
    + product(head_dim=(256,), base=(1e6,), p=(0.25,), factor=(8.0,))
    + product(head_dim=(80, 100), base=(1e4,), p=(0.3, 0.33)),
  }


def rope(rope_type, settings):
  """(inverse frequencies, attention factor) of Hugging Face."""
  names = {'low': 'low_freq_factor', 'high': 'high_freq_factor', 'p': 'partial_rotary_factor', 'fraction': 'partial_rotary_factor'}
  names |= {'base': 'rope_theta'}
  parameters = {names.get(k, k): v for k, v in settings.items() if k not in ('head_dim', 'length', 'original_length')}
  parameters['rope_type'] = rope_type
  if rope_type == 'llama3':
    parameters = {'low_freq_factor': 1.0, 'high_freq_factor': 4.0, **parameters}
  length = settings.get('original_length', 2048)
  if rope_type in ('yarn', 'longrope', 'llama3'):
    parameters['original_max_position_embeddings'] = length
  shape = {'head_dim': settings['head_dim'], 'max_position_embeddings': length}
  config = transformers.LlamaConfig(hidden_size=2 * settings['head_dim'], num_attention_heads=2, rope_parameters=parameters, **shape)
  if rope_type != 'default':
    return modeling_rope_utils.ROPE_INIT_FUNCTIONS[rope_type](config, None, seq_len=settings.get('length'))
  peer = modeling_gpt_neox.GPTNeoXRotaryEmbedding if 'fraction' in settings else modeling_llama.LlamaRotaryEmbedding
  return peer.compute_default_rope_parameters(config)


class InDouble:
  """torch with float64 under the names of float32."""

  float = float32 = torch.float64

  def __getattr__(self, name):
    return getattr(torch, name)


@contextlib.contextmanager
def in_double():
  """The peers' functions of frequencies compute in float64."""
  with contextlib.ExitStack() as stack:
    for module in (modeling_rope_utils, modeling_gpt_neox, modeling_llama):
      stack.enter_context(mock.patch.object(module, 'torch', InDouble()))
    stack.enter_context(mock.patch.object(torch.Tensor, 'float', torch.Tensor.double))
    yield


def maps():
  """A row for each setting."""
  rows = []
  for rope_type, many in rope_settings().items():
    for settings in many:
      frequency, attention_factor = rope(rope_type, settings)
      with in_double():
        double, _ = rope(rope_type, settings)
      row = {'map': rope_type, 'settings': settings, 'attention_factor': float(attention_factor)}
      rows.append(row | {'frequency': numbers(frequency), 'frequency_in_double': numbers(double, digits=11)})
  return rows


def alibi():
  """{peer: slopes for 1 .. 64 heads}: by how much the biases of two neighbouring keys differ."""

  def bloom(heads):
    return build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]

  def mpt(heads):
    return -build_mpt_alibi_tensor(heads, 2)[:, 0, 0]

  peers = {'bloom': bloom, 'mpt': mpt}
  return {name: [numbers(peer(heads)) for heads in range(1, 65)] for name, peer in peers.items()}


def t5():
  """The first distance of each run of equal buckets, up to LONGEST."""
  distance = torch.arange(LONGEST + 1)
  rows = []
  for num_buckets, max_distance in ((32, 128), (32, 256), (32, 2048), (16, 64), (8, 20), (64, 1024), (2, 128), (48, 333), (128, 8192)):
    sizes = {'num_buckets': num_buckets, 'max_distance': max_distance}
    for name, bucket in (
      ('t5', T5Attention._relative_position_bucket(-distance, bidirectional=False, **sizes)),
      ('x-transformers', x_transformers.RelativePositionBias._relative_position_bucket(-distance, causal=True, **sizes)),
    ):
      start = [0, *(np.flatnonzero(np.diff(bucket.numpy())) + 1).tolist()]
      rows.append({'peer': name, **sizes, 'start': start, 'bucket': bucket[start].tolist()})
  return rows


class Draws:
  """Seeded normal numbers with three decimals."""

  def __init__(self, seed):
    self.rng = np.random.default_rng(seed)

  def __call__(self, *shape):
    return torch.tensor(self.rng.normal(size=shape).round(3).astype(np.float32))


def heads_second(x_BTHK):
  """The peers' order of axes (B, H, T, K)."""
  return x_BTHK.transpose(1, 2)


def causal(size):
  """True where a key is not in the query's future."""
  return torch.ones(size, size, dtype=torch.bool).tril()


def cope(seed, size, heads, width, rows):
  """Contextual positions: what x-transformers adds to masked scaled scores."""
  draw = Draws(seed)
  q_BTHK, s_BHTS, table_PK = draw(2, size, heads, width), draw(2, heads, size, size), draw(rows, width)
  module = x_transformers.CoPE(width, heads, rows)
  module.pos_emb.copy_(table_PK)
  added = module(heads_second(q_BTHK), s_BHTS.masked_fill(~causal(size), -torch.finfo(torch.float32).max))
  return {'q_BTHK': q_BTHK, 's_BHTS': s_BHTS, 'table_PK': table_PK, 'added_BHTS': added.masked_fill(~causal(size), 0)}


def pope(seed, size, heads, width):
  """Polar positions: x-transformers' scaled scores."""
  draw = Draws(seed)
  q_BTHK, k_BSHK = draw(2, size, heads, width), draw(2, size, heads, width)
  delta_HK = -draw(heads, width).abs()
  module = x_transformers.PolarEmbedding(width, heads)
  module.learned_bias.copy_(delta_HK[:, None])
  frequency, bias = module(torch.arange(size))
  q = x_transformers.apply_polar_pos_emb(heads_second(q_BTHK), frequency)
  k = x_transformers.apply_polar_pos_emb(heads_second(k_BSHK), frequency + bias)
  return {'q_BTHK': q_BTHK, 'k_BSHK': k_BSHK, 'delta_HK': delta_HK, 's_BHTS': q @ k.mT * width**-0.5}


def fox(seed, size, heads, width):
  """Forget gates: the bias of x-transformers' data-dependent ALiBi, 0 in the future."""
  draw = Draws(seed)
  x_BTD, w_HD, b_H = draw(2, size, width), draw(heads, width), draw(heads)
  module = x_transformers.DataDependentAlibi(width, heads)
  linear = module.to_forget_gates[0]
  linear.weight.copy_(w_HD)
  linear.bias.copy_(b_H)
  return {'x_BTD': x_BTD, 'w_HD': w_HD, 'b_H': b_H, 'log_forget_BHT': module.to_forget_gates(x_BTD), 'bias_BHTS': module(x_BTD).tril()}


def t5_bias(seed, size, heads):
  """Relative bias: x-transformers' with scale 1."""
  table_NH = Draws(seed)(32, heads)
  module = x_transformers.RelativePositionBias(1.0, causal=True, heads=heads)
  module.relative_attention_bias.weight.copy_(table_NH)
  return {'table_NH': table_NH, 'bias_HTS': module(size, size).tril()}


def yarn(seed, position_T, heads, width):
  """Vectors turned by Llama with pairs (i, i + K/2); cos and sin carry the attention factor."""
  x_BTHK = Draws(seed)(1, len(position_T), heads, width)
  scaling = {'rope_type': 'yarn', 'rope_theta': 1e4, 'factor': 8.0, 'original_max_position_embeddings': 64}
  config = transformers.LlamaConfig(head_dim=width, max_position_embeddings=512, rope_parameters=scaling)
  cos, sin = modeling_llama.LlamaRotaryEmbedding(config)(x_BTHK, torch.tensor([position_T]))
  turned, _ = modeling_llama.apply_rotary_pos_emb(heads_second(x_BTHK), heads_second(x_BTHK), cos, sin)
  return {'position_T': position_T, 'x_BTHK': x_BTHK, 'turned_BTHK': heads_second(turned)}


def interleaved_rope(seed, position_T, heads, width):
  """Vectors turned by GPT-J with pairs (2i, 2i + 1)."""
  x_BTHK = Draws(seed)(1, len(position_T), heads, width)
  sin, cos = modeling_gptj.create_sinusoidal_positions(512, width)[torch.tensor([position_T])].chunk(2, dim=-1)
  turned = modeling_gptj.apply_rotary_pos_emb(x_BTHK, sin, cos)
  return {'position_T': position_T, 'x_BTHK': x_BTHK, 'turned_BTHK': turned}


def xpos(seed, position_T, heads, width):
  """xPos with pairs (2i, 2i + 1): x-transformers' scores before their scaling, 0 in the future."""
  draw, size = Draws(seed), len(position_T)
  q_BTHK, k_BSHK = draw(1, size, heads, width), draw(1, size, heads, width)
  module = x_transformers.RotaryEmbedding(width, use_xpos=True, scale_base=512)
  frequency, scale = module(torch.tensor(position_T))
  q = x_transformers.apply_rotary_pos_emb(heads_second(q_BTHK), frequency, scale)
  k = x_transformers.apply_rotary_pos_emb(heads_second(k_BSHK), frequency, scale**-1.0)
  return {'position_T': position_T, 'q_BTHK': q_BTHK, 'k_BSHK': k_BSHK, 's_BHTS': (q @ k.mT).tril()}


def transformer_xl(seed, size, heads, width):
  """Relative attention of XLNet, one direction: probabilities and output, heads already split."""
  draw = Draws(seed)
  embed = heads * width
  q_BTHK, k_BSGK, v_BSGK = (draw(2, size, heads, width) for _ in range(3))
  w_DHK, u_HK, v_HK = draw(embed, heads, width), draw(heads, width), draw(heads, width)
  config = transformers.XLNetConfig(d_model=embed, n_head=heads, d_inner=8, n_layer=1, vocab_size=8, attn_type='uni', dropout=0.0)
  module = XLNetRelativeAttention(config).eval()
  module.r_w_bias.copy_(u_HK)
  module.r_r_bias.copy_(v_HK)
  r_RBD = XLNetModel(config).relative_positional_encoding(size, size, 2)
  r_RBHK = torch.einsum('rbd,dhk->rbhk', r_RBD, w_DHK)
  masked = (~causal(size)).float()[:, :, None, None].expand(-1, -1, 2, heads)
  time_first = (x.transpose(0, 1) for x in (q_BTHK, k_BSGK, v_BSGK))
  out, weights = module.rel_attn_core(*time_first, r_RBHK, attn_mask=masked, output_attentions=True)
  given = {'q_BTHK': q_BTHK, 'k_BSGK': k_BSGK, 'v_BSGK': v_BSGK, 'w_DHK': w_DHK, 'u_HK': u_HK, 'v_HK': v_HK}
  return given | {'weights_BHTS': weights.permute(2, 3, 0, 1), 'out_BTHK': out.transpose(0, 1)}


def learned_sinks(seed, size, heads, kv_heads, width):
  """One learned logit a head in the softmax's denominator: gpt-oss."""
  draw = Draws(seed)
  q_BTHK, k_BSGK, v_BSGK, sink_H = draw(2, size, heads, width), draw(2, size, kv_heads, width), draw(2, size, kv_heads, width), draw(heads)
  module = types.SimpleNamespace(num_key_value_groups=heads // kv_heads, sinks=sink_H, training=False)
  mask = torch.zeros(size, size).masked_fill(~causal(size), torch.finfo(torch.float32).min)
  out, weights = eager_attention_forward(module, *map(heads_second, (q_BTHK, k_BSGK, v_BSGK)), mask, width**-0.5)
  given = {'q_BTHK': q_BTHK, 'k_BSGK': k_BSGK, 'v_BSGK': v_BSGK, 'sink_H': sink_H}
  return given | {'weights_BHTS': weights, 'out_BTHK': out}


def witnesses():
  """{encoding: cases of inputs and outputs}; an array's name ends in its axes, in our order."""
  far = (0, 1, 5, 40, 300)
  cases = {
    'rope': [interleaved_rope(13, far, heads=2, width=8)],
    'yarn': [yarn(12, far, heads=2, width=8)],
    'cope': [cope(0, size=7, heads=2, width=4, rows=3), cope(1, size=5, heads=1, width=6, rows=16)],
    'pope': [pope(2, size=7, heads=2, width=4), pope(3, size=5, heads=3, width=6)],
    'fox': [fox(4, size=7, heads=2, width=6)],
    't5': [t5_bias(5, size=24, heads=2)],
    'xpos': [xpos(6, range(9), heads=2, width=8), xpos(7, far, heads=1, width=4)],
    'transformer_xl': [transformer_xl(8, size=6, heads=2, width=4), transformer_xl(9, size=5, heads=3, width=2)],
    'learned_sinks': [learned_sinks(10, size=6, heads=2, kv_heads=2, width=4), learned_sinks(11, size=5, heads=4, kv_heads=2, width=4)],
  }
  return {name: [{k: numbers(v) for k, v in case.items()} for case in many] for name, many in cases.items()}


def numbers(array, digits=9):
  """Nested lists of finite numbers; nine digits tell every float32 from its neighbours."""
  array = np.asarray(array, np.float64)
  assert np.isfinite(array).all()
  return np.vectorize(lambda x: float(f'{x:.{digits}g}'), otypes=[object])(array).tolist()


def lines(value, depth):
  """JSON with one line for each entry of the outer levels, so that a change shows where it is."""
  if depth == 0 or not isinstance(value, dict | list):
    return json.dumps(value, separators=(',', ':'))
  if isinstance(value, dict):
    inner, ends = [f'{json.dumps(k)}:{lines(v, depth - 1)}' for k, v in value.items()], '{}'
  else:
    inner, ends = [lines(v, depth - 1) for v in value], '[]'
  return f'{ends[0]}\n' + ',\n'.join(inner) + f'\n{ends[1]}'


@torch.no_grad()
def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--out', required=True, help='the JSON file to write')
  out = parser.parse_args().out
  transformers.logging.set_verbosity_error()
  versions = {name: importlib.metadata.version(name) for name in PACKAGES}
  about = {'versions': versions, 'rope_types': sorted(modeling_rope_utils.ROPE_INIT_FUNCTIONS)}
  values = about | {'maps': maps(), 'alibi': alibi(), 't5': t5(), 'witnesses': witnesses()}
  with open(out, 'w', encoding='utf-8') as file:
    file.write(lines(values, 2) + '\n')


if __name__ == '__main__':
  main()
