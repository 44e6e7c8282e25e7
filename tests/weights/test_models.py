"""Tiny models of transformers, imported: the logits that transformers computes, alone, packed, padded and through a cache; and out again.

Stored by tests/parity/models.py; each trap of a checkpoint (how queries, keys and values are laid, tied heads, epsilon, norms …) is one of
the models there, and shows in its logits.
"""

import json

import jax
import numpy as np
import pytest
import tiny_imports
import tiny_runs as runs
import tiny_weights as made
from tiny_imports import imported, small

from pe_jax import config as config_lib
from pe_jax import encodings, hf_config, hf_rope
from pe_jax.errors import ConfigError
from pe_jax.weights import exporting, families, hf_folder, importing

pytest.importorskip('safetensors')
PLAIN = sorted(set(families.names()) & set(made.stored()))  # one of each family
OTHERS = sorted(set(made.stored()) - set(PLAIN))
ROPES = sorted(made.ropes())  # each family that turns under each rope type


@pytest.fixture(autouse=True, scope='module')
def quick():
  with runs.quick_compiles():
    yield


@pytest.fixture(scope='module')
def read(tmp_path_factory):
  """name -> (config, encoding, params) of a stored model."""
  found = {}

  def one(name):
    if name not in found and name in made.ropes():
      found[name] = tiny_imports.of_rope(name, one(made.ropes()[name]['family']))
    elif name not in found:
      found[name] = imported(made.folder(tmp_path_factory.mktemp(name), name))
    return found[name]

  return one


@pytest.fixture(scope='module')
def programs():
  """What is compiled, shared by models that differ in nothing but frequencies."""
  return {}


@pytest.mark.parametrize('name', PLAIN + OTHERS + ROPES)
def test_a_model_gives_the_logits_of_transformers_alone_packed_and_padded(name, read, programs):
  found = tiny_imports.differences(read(name), name, programs)
  assert max(found.values()) < 1e-4, found


@pytest.mark.parametrize('name', PLAIN + OTHERS + ROPES)
def test_a_cache_gives_the_logits_of_transformers(name, read, programs):
  assert tiny_imports.of_cache(read(name), name, programs) < 1e-4


def test_every_family_that_turns_is_tried_under_every_rope_type():
  turning = {name for name in PLAIN if 'rope_parameters' in made.stored()[name]['config']}
  kinds = {name: {one['kind'] for one in made.ropes().values() if one['family'] == name} for name in turning}
  whole = set(hf_rope.KEYS) - {'default'}
  assert kinds == {name: whole - ({'proportional'} if name == 'gpt_neox' else set()) for name in turning}
  assert all(one['changes']['rope_parameters']['rope_type'] == one['kind'] for one in made.ropes().values())


@pytest.mark.parametrize('name', PLAIN + OTHERS)
def test_import_export_import_keeps_every_bit(name, read, tmp_path):
  config, _, params = read(name)
  family, keys = exporting.chosen(config)
  tensors = exporting.tensors_of(family, config, params)
  again, _, params_again = imported(made.written(tmp_path, keys, tensors))
  assert jax.tree.all(jax.tree.map(np.array_equal, params, params_again))
  assert config_lib.diff(config.model, again.model) == []
  assert encodings.parse(config.encoding) == encodings.parse(again.encoding)
  assert config.train_length == again.train_length


@pytest.mark.parametrize('name', PLAIN)
def test_a_family_writes_the_tensors_it_reads(name, read):
  """In its own names and shapes, whatever model type export would take first."""
  config, _, params = read(name)
  tensors = exporting.tensors_of(families.get(name), config, params)
  for tensor, array in tensors.items():
    assert np.array_equal(array, made.tensor(tensor, array.shape)), tensor
  assert set(tensors) <= set(made.stored()[name]['tensors'])


def changed(name, **settings):
  return {**made.stored()[name]['config'], **settings}


@pytest.mark.parametrize(
  ('name', 'settings', 'field', 'value'),
  [
    ('llama', {'rms_norm_eps': 1e-3}, 'norm_epsilon', 1e-3),
    ('llama', {'rms_norm_eps': None}, 'norm_epsilon', 1e-6),
    ('llama', {'tie_word_embeddings': None}, 'tie_head', False),
    ('gpt2', {'tie_word_embeddings': None}, 'tie_head', True),
    ('olmo2', {'rms_norm_eps': None}, 'norm_epsilon', 1e-5),
    ('gpt2', {'activation_function': 'gelu'}, 'mlp', 'gelu_exact'),
    ('gpt2', {'activation_function': 'gelu_new'}, 'mlp', 'gelu'),
    ('gpt_neox', {'hidden_act': None}, 'mlp', 'gelu_exact'),
    ('falcon', {'parallel_attn': False}, 'parallel_block', False),
    ('falcon', {'multi_query': False}, 'num_kv_heads', 4),
    ('bloom', {}, 'embed_norm', True),
  ],
)
def test_what_config_json_says_and_leaves_out(name, settings, field, value):
  given = {key: x for key, x in changed(name, **settings).items() if x is not None}
  assert small(given)[0].model[field] == value


@pytest.mark.parametrize(
  ('settings', 'match'),
  [
    ({'model_type': 'phi3'}, r"model_type='phi3' cannot be imported \(these can: arcee, bloom, falcon"),
    (
      {'model_type': 'gpt_oss'},
      r"model_type='gpt_oss' cannot be imported: its layers choose among several MLPs .* learned_sinks \(these can",
    ),
    ({'model_type': None}, 'model_type=None cannot be imported'),
    ({'hidden_act': 'quick_gelu'}, "hidden_act='quick_gelu' is not known"),
    ({'rope_parameters': {'rope_type': 'spiral', 'rope_theta': 1e4}}, "rope_type='spiral' is not known"),
    ({'rope_parameters': {'rope_type': 'linear', 'rope_theta': 1e4, 'factor': 2.0, 'twist': 1}}, "the key 'twist' is not known"),
    ({'intermediate_size': None}, 'intermediate_size is missing'),
    ({'vocab_size': 0}, 'vocab_size=0 is not a positive whole number'),
    ({'rms_norm_eps': '1e-05'}, "rms_norm_eps='1e-05' is none of float, int"),
    ({'intermediate_size': 64.0}, 'intermediate_size=64.0 is none of int'),
    ({'tie_word_embeddings': 'true'}, "tie_word_embeddings='true' is none of bool"),
    ({'hidden_act': ['silu']}, r"hidden_act=\['silu'\] is not known"),
    ({'model_type': ['llama']}, r"model_type=\['llama'\] cannot be imported"),
    ({'max_position_embeddings': None}, '--train_length: missing'),
  ],
)
def test_a_config_that_cannot_be_expressed_is_refused_in_a_sentence(settings, match):
  with pytest.raises(ConfigError, match=match):
    importing.config_of(changed('llama', **settings))


@pytest.mark.parametrize(
  ('name', 'settings', 'match'),
  [
    ('gpt2', {'scale_attn_by_inverse_layer_idx': True}, 'scale_attn_by_inverse_layer_idx=True cannot be expressed'),
    ('mpt', {'attn_config': {'alibi': True, 'clip_qkv': 8.0}}, 'attn_config.clip_qkv=8.0 cannot be expressed'),
    ('mpt', {'logit_scale': 0.5}, 'logit_scale=0.5 cannot be expressed'),
    ('mpt', {'attn_config': {'alibi': True, 'alibi_bias_max': 'x'}}, "alibi_bias_max='x' is no number above 0"),
    ('bloom', {'apply_residual_connection_post_layernorm': True}, 'apply_residual_connection_post_layernorm=True cannot be expressed'),
    ('falcon', {'new_decoder_architecture': True, 'parallel_attn': False}, 'is no block of Falcon'),
  ],
)
def test_settings_that_change_the_model_are_not_passed_over(name, settings, match):
  with pytest.raises(ConfigError, match=match):
    importing.config_of(changed(name, **settings))


def test_what_a_run_of_our_own_is_to_transformers():
  config = config_lib.default()
  config.train_length, config.encoding = 64, 'rope'
  config.model.update(num_layers=2, embed_dim=32, num_heads=4, num_kv_heads=4, head_dim=8, mlp_dim=64, vocab_size=257, embed_scale=1.0)

  def as_hf(encoding='rope', **changes):
    c = config.copy_and_resolve_references()
    c.encoding = encoding
    c.model.update(changes)
    return exporting.chosen(c)[0].model_type

  assert as_hf() == 'arcee'  # the demo's runs: norms of mean squares and a plain MLP
  assert as_hf(mlp='swiglu') == as_hf('yarn(factor=4)', mlp='swiglu') == 'llama'
  assert as_hf('layers(rope, nope)', mlp='swiglu') == 'smollm3'
  assert as_hf(mlp='swiglu', qkv_bias=True) == 'qwen2'
  assert as_hf(mlp='swiglu', qk_norm='head') == 'qwen3'
  assert as_hf('alibi', norm='layer', mlp='gelu_exact', mlp_dim=128) == 'mpt'
  # The classes of Llama and Arcee load no other widths of heads than width / heads; Mistral's does.
  assert as_hf(mlp='swiglu', num_heads=3, num_kv_heads=3) == 'mistral'
  for encoding, changes, part in [
    ('alibi', {}, "mpt is nearest, but for model.norm='rms' where it has 'layer'"),
    ('rope', {'dtype': 'bfloat16', 'embed_norm': True}, 'arcee is nearest, but for model.embed_norm=True where it has False'),
    ('t5', {'mlp': 'swiglu'}, "encoding: 't5' is none of its rope types"),
    ("yarn(factor=4, ramp='rotations')", {'mlp': 'swiglu'}, "encoding: layer 0 has 'yarn.*rotations.*' where it has 'yarn"),
  ]:
    with pytest.raises(ConfigError, match=f'no model type of transformers computes what this run does; .*{part}'):
      as_hf(encoding, **changes)


def test_export_reads_back_what_it_writes_with_the_reader_of_imports(read):
  """A key that is written wrongly is a difference, and never a silent change of the model."""
  config, _, _ = read('llama')
  family, keys = exporting.chosen(config)
  assert exporting.differences(config, family, keys) == []
  keys['rope_parameters'] = {**keys['rope_parameters'], 'rope_theta': 501.0}
  assert exporting.differences(config, family, keys | {'rms_norm_eps': 1e-3}) == [
    'model.norm_epsilon=1e-06 where it has 0.001',
    "encoding: layer 0 has 'rope(base=500)' where it has 'rope(base=501)'",
  ]


def test_every_family_has_a_declared_position_mechanism_and_an_order():
  assert set(exporting.ORDER) == set(families.names())
  for name in families.names():
    assert hf_config.declared(made.stored()[name]['config']).model_type == name
    assert json.dumps(families.get(name).written(small(made.stored()[name]['config'])[0]))
  assert hf_folder.SINGLE.endswith('.safetensors')
