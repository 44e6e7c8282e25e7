"""What a Hugging Face config.json declares: the encoding, in both spellings, and a refusal where it cannot be read with certainty."""

import inspect

import numpy as np
import pytest

from pe_jax import encodings, hf_config
from pe_jax.encodings import alibi, frequency_maps, rope
from pe_jax.errors import ConfigError

SHAPE = {'hidden_size': 64, 'num_hidden_layers': 6, 'num_attention_heads': 4, 'max_position_embeddings': 512}
YARN = {'rope_type': 'yarn', 'factor': 4.0, 'original_max_position_embeddings': 128}
MORE = {'beta_fast': 16.0, 'beta_slow': 2.0, 'truncate': False, 'mscale': 0.7, 'mscale_all_dim': 1.2}
LLAMA3 = {'factor': 8.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0, 'original_max_position_embeddings': 128, 'rope_type': 'llama3'}
SHORT, LONG = [1 + 0.1 * n for n in range(8)], [1 + 0.3 * n for n in range(8)]
SU = {'type': 'su', 'short_factor': SHORT, 'long_factor': LONG}
GPTJ = {'model_type': 'gptj', 'n_embd': 64, 'n_layer': 2, 'n_head': 4, 'n_positions': 512}
MPT = {'model_type': 'mpt', 'd_model': 64, 'n_layers': 2, 'n_heads': 4, 'max_seq_len': 2048}
T5 = {'model_type': 't5', 'd_model': 64, 'num_layers': 2, 'num_heads': 4}


def config(model_type, **more):
  return {'model_type': model_type, **SHAPE, **more}


def declared(model_type, **more):
  return hf_config.declared(config(model_type, **more))


# (config, what it declares)
READ = [
  (config('llama'), 'rope'),
  (config('llama', rope_theta=500000.0, rope_scaling=None), 'rope(base=500000)'),
  (config('llama', rope_parameters={'rope_type': 'default', 'rope_theta': 5e5}), 'rope(base=500000)'),
  (config('llama', rope_scaling={'type': 'linear', 'factor': 2}), 'linear(factor=2)'),
  (config('llama', rope_scaling={'type': 'dynamic', 'factor': 2.0}), 'dynamic_ntk(factor=2, original_length=512)'),
  (config('llama', rope_theta=5e5, rope_scaling=LLAMA3), 'llama3(base=500000, original_length=128)'),
  (config('llama', rope_scaling=LLAMA3 | {'factor': 32.0}), 'llama3(factor=32, original_length=128)'),
  (config('qwen2', rope_theta=1e6, rope_scaling=YARN), 'yarn(factor=4, base=1000000, original_length=128)'),
  (config('qwen2', rope_parameters=YARN | {'rope_theta': 1e6}), 'yarn(factor=4, base=1000000, original_length=128)'),
  (
    config('qwen3', rope_scaling=YARN | {'attention_factor': 1.5}),
    'yarn(factor=4, attention_factor=1.5, original_length=128)',
  ),
  (config('mistral', rope_theta=1e6), 'rope(base=1000000)'),
  (config('mixtral'), 'rope(base=1000000)'),
  (config('phi'), 'rope(fraction=0.5)'),
  (config('phi', partial_rotary_factor=0.25), 'rope(fraction=0.25)'),
  (config('gpt_neox', rotary_pct=0.5, rotary_emb_base=20000), 'rope(base=20000, fraction=0.5)'),
  (config('gpt_neox', rope_parameters={'rope_type': 'default', 'rope_theta': 1e4, 'partial_rotary_factor': 0.25}), 'rope(fraction=0.25)'),
  (
    GPTJ | {'rotary_dim': 8},
    "rope(fraction=0.5, layout='interleaved')",
  ),
  (config('gpt_oss'), 'yarn(factor=32, truncate=False, base=150000, original_length=4096)'),
  (config('llama', rope_scaling={'rope_type': 'proportional', 'partial_rotary_factor': 0.25}), 'p_rope(p=0.25)'),
  (config('gemma2'), 'rope'),
  ({'model_type': 'gpt2', 'n_embd': 64, 'n_layer': 2, 'n_head': 4, 'n_positions': 1024}, 'learned(max_length=1024)'),
  (config('opt'), 'learned(max_length=512)'),
  ({'model_type': 'bloom', 'hidden_size': 64, 'n_layer': 2, 'n_head': 8}, 'alibi'),
  (MPT, 'alibi'),
  (config('falcon'), 'rope'),
  (T5, 't5'),
  (T5 | {'relative_attention_num_buckets': 16}, 't5(num_buckets=16)'),
]


@pytest.mark.parametrize(('given', 'spec'), READ)
def test_a_config_declares_an_encoding_in_canonical_form(given, spec):
  assert hf_config.declared(given).spec == spec
  assert str(encodings.parse(spec)) == spec


def test_both_spellings_say_the_same():
  old = declared('llama', rope_theta=1e6, rope_scaling={**YARN, 'type': 'yarn'})
  assert old == declared('llama', rope_parameters={**YARN, 'rope_theta': 1e6})
  assert old == declared('llama', rope_theta=1e6, rope_scaling=YARN, rope_parameters={**YARN, 'rope_theta': 1e6})
  assert (old.max_length, old.train_length, old.head_dim, old.num_kv_heads, old.num_layers) == (512, 128, 16, 4, 6)


# Frequencies and attention factor that transformers 5.24 computes from the same config: {pair: frequency}.
TRANSFORMERS = [
  (config('llama', rope_theta=5e5, rope_scaling=LLAMA3), {0: 1, 2: 0.004700754, 4: 0.0001767767, 6: 6.64787e-06, 7: 1.289173e-06}, 1.0),
  (
    config(
      'llama',
      rope_theta=1e6,
      rope_scaling=YARN | MORE,
    ),
    {2: 0.007905695, 4: 0.00025, 6: 7.905694e-06, 7: 1.405853e-06},
    0.9405715251,
  ),
  (config('qwen3', head_dim=128, rope_theta=1e6, rope_scaling=YARN), {16: 0.007905695, 32: 0.00025, 63: 3.102344e-07}, 1.138629436),
  (config('gpt_oss', head_dim=64), {8: 0.05081327, 16: 0.0004564839, 24: 4.099978e-06, 31: 3.023511e-07}, 1.3465735903),
  (
    config('phi3', original_max_position_embeddings=128, rope_scaling=SU),
    {0: 1, 2: 0.08333334, 4: 0.007142857, 6: 0.000625, 7: 0.0001860163},
    1.1338934190,
  ),
]


@pytest.mark.parametrize(('given', 'frequency', 'factor'), TRANSFORMERS)
def test_the_encoding_has_the_frequencies_of_transformers(given, frequency, factor):
  declaration = hf_config.declared(given)
  spec = encodings.parse(declaration.spec)
  fields = {**encodings.fields(spec.name), **dict(spec.fields), 'length': 128}
  function = getattr(frequency_maps, spec.name)
  plain = rope.frequencies(int(fields['fraction'] * declaration.head_dim), fields['base'])
  got, got_factor = function(plain, **{k: v for k, v in fields.items() if k in inspect.signature(function).parameters})
  np.testing.assert_allclose([got[n] for n in frequency], list(frequency.values()), rtol=2e-6)
  np.testing.assert_allclose(got_factor, factor, rtol=1e-9)


def test_longrope_keeps_its_lists_and_takes_the_factor_from_the_lengths():
  scaling = {'type': 'longrope', 'short_factor': SHORT, 'long_factor': LONG}
  d = declared('phi3', original_max_position_embeddings=128, rope_scaling=scaling)
  spec = encodings.parse(d.spec)
  assert (spec.get('factor'), spec.get('short_factor'), spec.get('long_factor'), d.train_length) == (4.0, tuple(SHORT), tuple(LONG), 128)
  assert 'factor 4 is 512 / 128' in d.notes
  d = declared('phi3', original_max_position_embeddings=128, rope_scaling=scaling | {'attention_factor': 2.0})
  assert encodings.parse(d.spec).get('attention_factor') == 2.0


def test_gemma_3_has_a_base_and_a_window_for_each_kind_of_layer():
  linear = {'rope_type': 'linear', 'factor': 8.0}
  old = declared('gemma3_text', sliding_window=64, rope_theta=1e6, rope_local_base_freq=1e4, rope_scaling=linear)
  assert old.layers == ('rope',) * 5 + ('linear(factor=8, base=1000000)',)
  assert old.spec == 'layers(rope, rope, rope, rope, rope, linear(factor=8, base=1000000))'
  assert old.windows == (64,) * 5 + (None,)
  assert old.parts == {'rope': [0, 1, 2, 3, 4], 'linear(factor=8, base=1000000)': [5]}
  nested = {'full_attention': {**linear, 'rope_theta': 1e6}, 'sliding_attention': {'rope_type': 'default', 'rope_theta': 1e4}}
  assert declared('gemma3_text', sliding_window=64, rope_parameters=nested) == old
  text = config('gemma3_text', sliding_window=64, rope_scaling=linear)
  assert hf_config.declared({'model_type': 'gemma3', 'text_config': text}) == old


def test_windows_are_those_of_the_layers_that_have_them():
  assert declared('gemma2').windows == (4096, None) * 3
  assert declared('gpt_oss', sliding_window=128).windows == (128, None) * 3
  assert declared('mistral', sliding_window=32).windows == (32,) * 6
  assert declared('mistral', sliding_window=None).windows == (None,) * 6
  assert declared('qwen2', use_sliding_window=False, sliding_window=32, max_window_layers=2).windows == (None,) * 6
  assert declared('qwen2', use_sliding_window=True, sliding_window=32, max_window_layers=4).windows == (None,) * 4 + (32,) * 2
  for kind in ('qwen2', 'qwen3'):
    assert declared(kind, use_sliding_window=True, max_window_layers=4).windows == (None,) * 4 + (4096,) * 2
  kinds = ['full_attention', 'sliding_attention'] * 3
  assert declared('qwen3', use_sliding_window=True, sliding_window=32, layer_types=kinds).windows == (None, 32) * 3


def test_every_fourth_layer_of_smollm3_has_no_position():
  d = declared('smollm3', num_hidden_layers=8)
  assert d.spec == 'layers(rope(base=2000000), rope(base=2000000), rope(base=2000000), nope)'
  assert declared('smollm3', no_rope_layers=[1, 0, 1, 0, 1, 0]).spec == 'layers(rope(base=2000000), nope)'


def test_falcons_slopes_are_smaller_by_the_root_of_the_head_width():
  assert declared('falcon', alibi=True, num_attention_heads=4).num_kv_heads == 1
  spec = encodings.parse(declared('falcon', alibi=True, multi_query=False).spec)
  np.testing.assert_allclose(spec.get('slopes'), alibi.slopes(4) / 16**0.5, rtol=1e-7)
  spec = encodings.parse(hf_config.declared(MPT | {'attn_config': {'alibi_bias_max': 16}}).spec)
  np.testing.assert_allclose(spec.get('slopes'), alibi.slopes(4).astype(float) ** 2, rtol=1e-7)


def test_the_shape_is_read_under_every_name():
  d = hf_config.declared({'model_type': 'gpt2', 'n_embd': 64, 'n_layer': 2, 'n_head': 4, 'n_positions': 1024})
  assert (d.embed_dim, d.num_layers, d.num_heads, d.head_dim, d.max_length) == (64, 2, 4, 16, 1024)
  assert declared('gemma').head_dim == 256
  assert declared('llama', head_dim=None).head_dim == 16
  assert declared('llama', head_dim=32, num_key_value_heads=2).num_kv_heads == 2
  assert declared('opt').notes == ('position p reads row p + 2 of the stored table, which has two rows more',)


def test_a_factor_that_the_lengths_contradict_is_told():
  assert declared('llama', rope_scaling=YARN).notes == ()
  assert declared('llama', rope_scaling=YARN | {'factor': 2.0}).notes == ('factor=2 is what counts, though 512 / 128 is 4',)
  said = declared('llama', rope_scaling={'type': 'yarn', 'factor': 4.0}).notes
  assert said == ('factor=4 is meant for 2048 tokens, more than the positions declared',)


REFUSED = [
  ([], 'an object is wanted, not list'),
  ({}, r'model_type=None: its position mechanism is not known \(known: .*llama'),
  (config('bert'), "model_type='bert': its position mechanism is not known .*gpt_neox"),
  ({'model_type': 'gemma3'}, 'without text_config'),
  ({'model_type': 'llama'}, 'num_hidden_layers is missing'),
  (config('llama', num_attention_heads='4'), "num_attention_heads='4' is not a positive whole number"),
  (config('llama', num_attention_heads=5), '5 heads do not divide a width of 64'),
  (
    config('llama', rope_scaling=YARN | {'beta_quick': 1}),
    r"the key 'beta_quick' is not known with .*'yarn' \(known: .*beta_fast",
  ),
  (config('llama', rope_scaling={'type': 'linear', 'factor': 2.0, 'beta_fast': 32}), "'beta_fast' is not known with rope_type='linear'"),
  (config('llama', rope_scaling={'type': 'default', 'mrope_section': [1, 1]}), "the key 'mrope_section' is not known"),
  (config('llama', rope_scaling={'type': 'su'}), r"rope_type='su' is not known \(known: default, linear, dynamic, yarn"),
  (config('llama', rope_scaling={'type': 'linear'}), "factor is missing with rope_type='linear'"),
  (config('llama', rope_scaling={'type': 'linear', 'factor': '2'}), "factor='2' cannot be read"),
  (config('llama', rope_scaling={'type': 'linear', 'factor': float('nan')}), 'factor=nan cannot be read'),
  (config('llama', rope_scaling=LLAMA3 | {'low_freq_factor': None}), 'low_freq_factor is missing'),
  (config('llama', rope_scaling=[4]), r'rope_scaling: an object is wanted, not \[4\]'),
  (
    config('llama', rope_scaling={'type': 'linear', 'rope_type': 'dynamic', 'factor': 2.0}),
    "rope_scaling.type='linear' and rope_scaling.rope_type='dynamic' contradict each other",
  ),
  (
    config('llama', rope_theta=1e4, rope_parameters={'rope_type': 'default', 'rope_theta': 5e5}),
    'rope_parameters.rope_theta=500000.0 and rope_theta=10000.0 contradict each other',
  ),
  (
    config('llama', rope_scaling=YARN, rope_parameters=YARN | {'factor': 8.0}),
    'rope_parameters.factor=8.0 and rope_scaling.factor=4.0 contradict each other',
  ),
  (config('gpt_neox', rope_theta=5e5), 'rotary_emb_base=10000.0 and rope_theta=500000.0 contradict each other'),
  (config('gpt_neox', rotary_pct=0.25, partial_rotary_factor=0.5), 'rotary_pct=0.25 and partial_rotary_factor=0.5 contradict each other'),
  (config('gpt2', n_embd=32), 'hidden_size=64 and n_embd=32 contradict each other'),
  (
    config('phi3', original_max_position_embeddings=128, rope_scaling=SU | {'short_factor': 1}),
    'short_factor=1 cannot be read',
  ),
  (config('llama', partial_rotary_factor=0.5), "has no effect with model_type='llama', which turns whole heads"),
  (config('llama', sliding_window=32), 'sliding_window=32 without layer_types'),
  (config('gemma2', layer_types=['chunked_attention'] * 6), "layer_types: 'chunked_attention' is not known"),
  (config('gemma2', layer_types=['full_attention'] * 5), '5 entries for 6 layers'),
  (config('gemma3_text', rope_parameters={'rope_type': 'default'}), "rope_parameters: the key 'rope_type' is not known"),
  (config('gemma2', rope_parameters={'full_attention': {'rope_type': 'default'}}), 'rope_parameters: sliding_attention is missing'),
  (config('mpt', attn_config={'alibi': False}), 'without alibi'),
  (GPTJ | {'rotary_dim': None}, 'rotary_dim=None must be in 1..16'),
]


@pytest.mark.parametrize(('given', 'says'), REFUSED)
def test_what_cannot_be_read_with_certainty_is_refused(given, says):
  with pytest.raises(ConfigError, match=says):
    hf_config.declared(given)
