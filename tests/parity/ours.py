"""The peers' settings and inputs put to pe_jax, for the tests and for the summary."""

import dataclasses
import inspect
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from pe_jax import attention, encodings
from pe_jax.encodings import alibi, cope, frequency_maps, rope, t5
from pe_jax.encodings.base import Dims, Where, scores

PEERS = json.loads(pathlib.Path(__file__).with_name('peers.json').read_text(encoding='utf-8'))
LONGEST = 100_000  # T5 distances
NAMES = {'dynamic': 'dynamic_ntk'}  # Hugging Face's rope types that have another name here


def rows(rope_type):
  """The settings of one rope type and what the peer makes of them."""
  return [row for row in PEERS['maps'] if row['map'] == rope_type]


def mapped(rope_type, settings):
  """(frequencies, attention factor) of pe_jax."""
  frequency_F = rope.checked_frequencies(settings['head_dim'], settings['base'], settings.get('fraction', 1.0), 'half')
  if rope_type == 'default':
    return frequency_F, 1.0
  if rope_type == 'proportional':
    return proportional(frequency_F, settings['p'], settings.get('factor', 1.0))
  function = getattr(frequency_maps, NAMES.get(rope_type, rope_type))
  known = inspect.signature(function).parameters
  return function(frequency_F, **{k: v for k, v in settings.items() if k in known})


def proportional(frequency_F, p, factor):
  """p-RoPE, then position interpolation."""
  turning_F, _ = frequency_maps.p_rope(frequency_F, p=p)
  return frequency_maps.linear(turning_F, factor=factor)


def relative(ours, theirs):
  """The largest relative difference; 0 and 0 do not differ."""
  ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
  assert ours.shape == theirs.shape
  size = np.maximum(np.abs(ours), np.abs(theirs))
  return float(np.max(np.abs(ours - theirs) / np.where(size > 0, size, 1)))


def slopes(peer):
  """Pairs (ours, theirs) for 1 .. 64 heads, float32."""
  return [(alibi.slopes(n), np.asarray(row, np.float32)) for n, row in enumerate(PEERS['alibi'][peer], 1)]


def buckets(row):
  """(ours, theirs) at every distance from 0 to LONGEST."""
  distance = np.arange(LONGEST + 1)
  theirs = np.repeat(row['bucket'], np.diff([*row['start'], LONGEST + 1]))
  return np.asarray(t5.bucket(distance, row['num_buckets'], row['max_distance'])), theirs


def witness(name):
  """Pairs (ours, theirs), one a case."""
  for case in PEERS['witnesses'][name]:
    yield jax.jit(WITNESSES[name][1])({k: np.asarray(v, np.float32) for k, v in case.items()})


def one_layer(spec, params, where, q_BTHK, k_BSGK):
  """(record, tables) of a layer of an encoding with these learned parameters, for heads of these shapes."""
  heads, width = q_BTHK.shape[2:]
  enc = encodings.make(spec, Dims(heads, k_BSGK.shape[2], width, heads * width, 16))
  return enc.at_layer(0), enc.tables({'layer_0': params}, where)


def one_document(batch, size):
  """Positions 0 .. size - 1 of one document a row."""
  pos_BT = jnp.tile(jnp.arange(size, dtype=jnp.int32), (batch, 1))
  return Where.forward(pos_BT, jnp.ones_like(pos_BT))


def at(position_T):
  """One document at these positions."""
  pos_BT = jnp.asarray(position_T, jnp.int32)[None]
  return Where.forward(pos_BT, jnp.ones_like(pos_BT), contiguous=False)


def turning_witness(spec):
  """Turned vectors."""

  def function(case):
    x_BTHK = case['x_BTHK']
    record, tables = one_layer(spec, {}, at(case['position_T']), x_BTHK, x_BTHK)
    return record.rotate(tables, x_BTHK, x_BTHK)[0], case['turned_BTHK']

  return function


def xpos_witness(case):
  """q . k of turned vectors, 0 in the future."""
  q_BTHK, k_BSHK = case['q_BTHK'], case['k_BSHK']
  record, tables = one_layer("xpos(layout='interleaved')", {}, at(case['position_T']), q_BTHK, k_BSHK)
  q_BTHK, k_BSHK = record.rotate(tables, q_BTHK, k_BSHK)
  return jnp.tril(jnp.einsum('bthk,bshk->bhts', q_BTHK, k_BSHK)), case['s_BHTS']


def t5_witness(case):
  """The bias, 0 in the future."""
  heads, size, _ = case['bias_HTS'].shape
  enc = encodings.make('t5', Dims(heads, heads, 8, 8 * heads, 16))
  where = one_document(1, size)
  return jnp.tril(enc.added(enc.tables({'table': case['table_NH']}, where), where)[0]), case['bias_HTS']


def cope_witness(case):
  """What is added to the scores, 0 in the future."""
  batch, size = case['q_BTHK'].shape[:2]
  visible = one_document(batch, size).visible_BTS()[:, None]
  return jnp.tril(cope.added(case['q_BTHK'], case['s_BHTS'], visible, case['table_PK'])), case['added_BHTS']


def pope_witness(case):
  """Scaled scores."""
  q_BTHK, k_BSHK = case['q_BTHK'], case['k_BSHK']
  batch, size, _, width = q_BTHK.shape
  record, tables = one_layer('pope', {'delta': case['delta_HK']}, one_document(batch, size), q_BTHK, k_BSHK)
  return scores(*record.rotate(tables, q_BTHK, k_BSHK), width), case['s_BHTS']


def fox_witness(case):
  """The bias, 0 in the future."""
  (batch, size, embed), heads = case['x_BTD'].shape, len(case['b_H'])
  enc, where = encodings.make('fox', Dims(heads, heads, 8, embed, 16)), one_document(batch, size)
  tables, record = enc.tables({'layer_0': {'weight': case['w_HD'].T, 'bias': case['b_H']}}, where), enc.at_layer(0)
  where = dataclasses.replace(where, side=record.token(tables, case['x_BTD']))
  where = record.sides(tables, where)
  return jnp.tril(record.added(tables, where)), case['bias_BHTS']


def attention_witness(spec, **names):
  """What attention gives out; `names`: {our parameter: the case's array}."""

  def function(case):
    q_BTHK, k_BSGK = case['q_BTHK'], case['k_BSGK']
    where = one_document(*q_BTHK.shape[:2])
    record, tables = one_layer(spec, {ours: case[theirs] for ours, theirs in names.items()}, where, q_BTHK, k_BSGK)
    if record.rotate:
      q_BTHK, k_BSGK = record.rotate(tables, q_BTHK, k_BSGK)
    return attention.attend(record, tables, q_BTHK, k_BSGK, jnp.asarray(case['v_BSGK']), where), case['out_BTHK']

  return function


# {encoding: (peer, function of a case that gives (ours, theirs))}
WITNESSES = {
  'rope': ('transformers GPT-J', turning_witness("rope(layout='interleaved')")),
  'yarn': ('transformers Llama', turning_witness('yarn(factor=8, original_length=64)')),
  'xpos': ('x-transformers', xpos_witness),
  't5': ('x-transformers', t5_witness),
  'cope': ('x-transformers', cope_witness),
  'pope': ('x-transformers', pope_witness),
  'fox': ('x-transformers', fox_witness),
  'transformer_xl': ('transformers XLNet', attention_witness('transformer_xl', w='w_DHK', u='u_HK', v='v_HK')),
  'learned_sinks': ('transformers gpt-oss', attention_witness('learned_sinks', sink='sink_H')),
}
