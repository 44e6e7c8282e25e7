"""Tiny models of transformers and what they compute, as data: run with a Python that has the `parity` extra.

    python tests/parity/models.py --out tests/parity/models.json            of all CASES
    python tests/parity/models.py --out logits.json --folders=a,b           of folders that something else wrote

The weights are not stored: tests/tiny_weights.py makes them from the names of the tensors.
"""

import argparse
import importlib.metadata
import json
import pathlib
import sys
import tempfile

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tiny_weights

SIZE = {
  'hidden_size': 32, 'num_hidden_layers': 2, 'num_attention_heads': 4, 'num_key_value_heads': 2, 'intermediate_size': 64,
  'max_position_embeddings': 48,
}  # fmt: skip
OLD = {'n_embd': 32, 'n_layer': 2, 'n_head': 4, 'n_positions': 64}
WIDE = {'hidden_size': 32, 'num_hidden_layers': 2, 'num_attention_heads': 4, 'max_position_embeddings': 48}
ORIGINAL = {'original_max_position_embeddings': 16}
NEOX = WIDE | {'intermediate_size': 64}
TYPES = {
  'linear': {'factor': 3.0},
  'dynamic': {'factor': 2.0},
  'yarn': {'factor': 3.0, **ORIGINAL},
  'yarn_more': {
    'rope_type': 'yarn', 'factor': 3.0, 'beta_fast': 8.0, 'beta_slow': 0.5, 'truncate': False, 'mscale': 0.7, 'mscale_all_dim': 1.2,
    **ORIGINAL,
  },
  'llama3': {'factor': 3.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0, **ORIGINAL},
  'longrope': {'factor': 3.0, 'short_factor': [1.0, 1.2, 1.5, 2.0], 'long_factor': [1.0, 2.0, 3.0, 6.0], **ORIGINAL},
}  # fmt: skip


def turned(kind, **more):
  """`rope_parameters` of a rope type."""
  return {'rope_parameters': {'rope_type': kind, 'rope_theta': 500.0, **TYPES.get(kind, {}), **more}}


PLAIN = turned('default')
# {name: (model type, settings)}; the first of a model type is plain.
CASES = {
  'llama': ('llama', SIZE | PLAIN),
  'llama_biases': ('llama', SIZE | PLAIN | {'attention_bias': True, 'mlp_bias': True, 'tie_word_embeddings': True, 'head_dim': 12}),
  'llama_epsilon': ('llama', SIZE | PLAIN | {'rms_norm_eps': 0.3, 'hidden_act': 'gelu'}),
  'mistral': ('mistral', SIZE | PLAIN | {'sliding_window': None}),
  'mistral_window': ('mistral', SIZE | PLAIN | {'sliding_window': 7}),
  'qwen2': ('qwen2', SIZE | PLAIN | {'tie_word_embeddings': True}),
  'qwen3': ('qwen3', SIZE | PLAIN | {'head_dim': 8}),
  'qwen3_wide': ('qwen3', SIZE | PLAIN | {'head_dim': 16, 'attention_bias': True}),
  'smollm3': ('smollm3', SIZE | PLAIN | {'num_hidden_layers': 4, 'pad_token_id': 0}),
  'smollm3_named': ('smollm3', SIZE | PLAIN | {'no_rope_layers': [0, 1], 'pad_token_id': 0}),
  'olmo2': ('olmo2', SIZE | PLAIN),
  'arcee': ('arcee', SIZE | PLAIN),
  'gpt_neox': ('gpt_neox', NEOX | turned('default', partial_rotary_factor=0.5)),
  'gpt_neox_after': (
    'gpt_neox',
    NEOX | {'use_parallel_residual': False, 'attention_bias': False} | turned('default', partial_rotary_factor=1.0),
  ),
  'gptj': ('gptj', OLD | {'rotary_dim': 4}),
  'gpt2': ('gpt2', OLD),
  'gpt2_inner': ('gpt2', OLD | {'n_inner': 48, 'activation_function': 'relu', 'layer_norm_epsilon': 0.1}),
  'bloom': ('bloom', {'hidden_size': 32, 'n_layer': 2, 'n_head': 4, 'seq_length': 48}),
  'bloom_six_heads': ('bloom', {'hidden_size': 48, 'n_layer': 1, 'n_head': 6, 'seq_length': 48}),
  'mpt': ('mpt', {'d_model': 32, 'n_layers': 2, 'n_heads': 4, 'max_seq_len': 48}),
  'mpt_six_heads': ('mpt', {'d_model': 48, 'n_layers': 1, 'n_heads': 6, 'max_seq_len': 48}),
  'falcon': ('falcon', WIDE | PLAIN),
  'falcon_40b': ('falcon', WIDE | PLAIN | {'new_decoder_architecture': True, 'num_kv_heads': 2}),
  'falcon_rw': ('falcon', WIDE | {'alibi': True, 'multi_query': False, 'parallel_attn': False, 'bias': True}),
  **{f'llama_{kind}': ('llama', SIZE | turned(kind)) for kind in TYPES if kind not in ('dynamic', 'yarn_more')},
  'llama_dynamic': ('llama', SIZE | turned('dynamic') | {'max_position_embeddings': 16}),
  'llama_yarn_more': ('llama', SIZE | {'rope_parameters': {'rope_theta': 500.0, **TYPES['yarn_more']}}),
  **{f'{name}_yarn': (name, SIZE | turned('yarn')) for name in ('qwen2', 'qwen3', 'olmo2', 'arcee')},
  'mistral_yarn': ('mistral', SIZE | turned('yarn') | {'sliding_window': None}),
  'smollm3_yarn': ('smollm3', SIZE | turned('yarn') | {'num_hidden_layers': 4, 'pad_token_id': 0}),
  'gpt_neox_yarn': ('gpt_neox', NEOX | turned('yarn', partial_rotary_factor=0.5)),
  'gpt_neox_dynamic': ('gpt_neox', NEOX | {'max_position_embeddings': 16} | turned('dynamic', partial_rotary_factor=0.5)),
  'falcon_linear': ('falcon', WIDE | turned('linear')),
}  # fmt: skip


# The families that turn queries and keys, and every rope type of transformers: each is tried under each.
FAMILIES = ('llama', 'mistral', 'qwen2', 'qwen3', 'smollm3', 'olmo2', 'arcee', 'gpt_neox', 'falcon')
KINDS = ('linear', 'dynamic', 'yarn', 'llama3', 'longrope', 'proportional')
# In GPT-NeoX the share that turns is how wide the turning part is, and frequencies of the whole head do not fit it.
IMPOSSIBLE = {('gpt_neox', 'proportional')}


def roped(family, kind):
  """Settings of a family's plain model under a rope type."""
  settings = dict(CASES[family][1])
  own = {**TYPES.get(kind, {'partial_rotary_factor': 0.5})}
  if family == 'gpt_neox' and kind == 'longrope':  # half of its pairs turn
    own |= {name: own[name][:2] for name in ('short_factor', 'long_factor')}
  settings['rope_parameters'] = {**settings['rope_parameters'], 'rope_type': kind, **own}
  return settings | ({'max_position_embeddings': 16} if kind == 'dynamic' else {})


def under(family, kind, plain, folder):
  """{family, kind, changes, logits, largest}: what a rope type changes in the config and the logits of a family's plain model."""
  made = case(family, roped(family, kind), folder)
  assert made['tensors'] == plain['tensors'], (family, kind)
  changes = {key: x for key, x in made['config'].items() if plain['config'].get(key) != x}
  kept = {length: [[row[of] for of in tiny_weights.OF] for row in rows] for length, rows in made['logits'].items()}
  largest = {length: max(abs(x) for row in rows for x in row) for length, rows in made['logits'].items()}
  return {'family': family, 'kind': kind, 'changes': changes, 'logits': kept, 'largest': largest}


def case(model_type, settings, folder):
  """{config, tensors, logits} of a model made in the folder."""
  if model_type == 'qwen3':
    settings = {'head_dim': 8, **settings}
  config = transformers.AutoConfig.for_model(model_type, vocab_size=tiny_weights.VOCABULARY, bos_token_id=0, eos_token_id=1, **settings)
  transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
  file = folder / 'model.safetensors'
  with safe_open(file, framework='pt') as opened:
    shapes = {name: list(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
  save_file({name: torch.from_numpy(tiny_weights.tensor(name, shape)) for name, shape in shapes.items()}, file, metadata={'format': 'pt'})
  given = json.loads((folder / 'config.json').read_text())
  return {'config': given, 'tensors': shapes, 'logits': logits(folder)}


def logits(folder):
  """Logits of the two texts, each alone, at the positions that are kept."""
  # Falcon's eager attention of transformers 5.24 adds ALiBi twice: once in the mask and once to the scores.
  falcon = json.loads((folder / 'config.json').read_text())['model_type'] == 'falcon'
  model, loading = transformers.AutoModelForCausalLM.from_pretrained(
    folder, attn_implementation='sdpa' if falcon else 'eager', dtype=torch.float32, output_loading_info=True
  )
  for what in ('missing_keys', 'unexpected_keys', 'mismatched_keys'):
    assert not loading[what], (folder, what, loading[what])
  found = {}
  for length, positions in tiny_weights.AT.items():
    with torch.no_grad():
      whole = model.eval()(torch.from_numpy(tiny_weights.text(length))[None]).logits[0]
    found[str(length)] = [[float(f'{x:.7g}') for x in whole[at].tolist()] for at in positions]
  return found


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument('--out', required=True)
  parser.add_argument('--folders', default='')
  arguments = parser.parse_args()
  transformers.logging.set_verbosity_error()
  if arguments.folders:
    found = {folder: logits(pathlib.Path(folder)) for folder in arguments.folders.split(',')}
  else:
    versions = {name: importlib.metadata.version(name) for name in ('torch', 'transformers')}
    found = {'versions': versions, 'models': {}}
    for name, (model_type, settings) in CASES.items():
      with tempfile.TemporaryDirectory() as folder:
        found['models'][name] = case(model_type, settings, pathlib.Path(folder))
    found['ropes'] = {}
    for family in FAMILIES:
      for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
          if (family, kind) not in IMPOSSIBLE:
            found['ropes'][f'{family} {kind}'] = under(family, kind, found['models'][family], pathlib.Path(folder))
  lines = json.dumps(found, separators=(',', ':')).replace('},"', '},\n"')
  pathlib.Path(arguments.out).write_text(lines + '\n', encoding='utf-8')


if __name__ == '__main__':
  main()
