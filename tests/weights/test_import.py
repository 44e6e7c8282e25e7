"""An imported checkpoint is a run: every command works on it; what cannot be read is refused in a sentence, with nothing written."""

import json
import os
import pathlib
import shutil

import jax
import numpy as np
import pytest
import tiny_runs as runs
import tiny_weights as made

import pe_jax
from pe_jax import config as config_lib
from pe_jax import diagnose, fingerprint, train, workdir
from pe_jax.errors import ConfigDiffers, ConfigError, DataError, WriteError
from pe_jax.weights import exporting, importing, vocabulary

pytest.importorskip('safetensors')
pytest.importorskip('tokenizers')
BYTES = {'vocab_size': 257}
OF_WORDS = ('embed_tokens.weight', 'wte.weight', 'embed_in.weight', 'lm_head.weight', 'embed_out.weight')  # a row for each token


def weights(name):
  """Tensors of the stored model with a vocabulary of bytes."""
  rows = {key: made.tensor(key, (257, x.shape[1])) for key, x in made.tensors(name).items() if key.endswith(OF_WORDS)}
  return {**made.tensors(name), **rows}


def folder(path, name='llama', **settings):
  return made.folder(path, name, {**BYTES, **settings}, weights(name))


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """(workdir, card) of an imported model that reads bytes, at a training length of 16."""
  home = tmp_path_factory.mktemp('imported')
  source = folder(home / 'hf', max_position_embeddings=16)
  vocabulary.of_bytes(source)
  with runs.quick_compiles():
    card = importing.run(source, home / 'run')
  return home / 'run', card


@pytest.fixture(scope='module')
def text(tmp_path_factory):
  path = tmp_path_factory.mktemp('text') / 'some.py'
  path.write_text('def stands(near):\n  return [tree for tree in near if tree.planted and not tree.old]\n' * 12)
  return path


def test_the_folder_of_an_import_is_that_of_a_run(run):
  path, card = run
  config = workdir.read_config(path)
  assert (config.encoding, config.train_length, config.model.mlp, config.model.vocab_size) == ('rope(base=500)', 16, 'swiglu', 257)
  assert config.data.tokenizer == str(path / 'tokenizer' / 'tokenizer.json')
  assert workdir.finished(path) == {'step': 0, 'validation_loss': None, 'params_sha256': card['params_sha256']}
  assert json.loads((path / 'card.json').read_text()) == card
  assert (card['model_type'], card['tensor_types'], card['parameters']) == (
    'llama',
    {'F32': 21},
    sum(x.size for x in weights('llama').values()),
  )
  assert json.loads((path / 'env.json').read_text())['backend'] == 'cpu'
  loaded = pe_jax.load(path)
  assert fingerprint.digest(loaded.params) == card['params_sha256']
  assert loaded.step == 0


def test_the_same_import_again_changes_nothing_and_another_is_refused(run, tmp_path):
  path, _ = run
  before = {name: data for name, data in runs.contents(path).items() if name != 'LOCK'}
  importing.run(path.parent / 'hf', path)
  assert {name: data for name, data in runs.contents(path).items() if name != 'LOCK'} == before
  with pytest.raises(ConfigDiffers, match='another configuration'):
    importing.run(folder(tmp_path / 'hf', 'llama', rms_norm_eps=0.1), path, tokenizer='bytes')


def test_other_weights_under_the_same_config_are_another_run(run, tmp_path):
  path, _ = run
  other = folder(tmp_path / 'hf', max_position_embeddings=16)
  vocabulary.of_bytes(other)
  importing.run(other, path)  # the same numbers from another place
  from safetensors.numpy import load_file, save_file

  arrays = load_file(other / 'model.safetensors')
  save_file({name: x + (name == 'model.norm.weight') for name, x in arrays.items()}, other / 'model.safetensors')
  with pytest.raises(ConfigDiffers, match=r'holds what was imported from .*/hf, and .* has other parameters \(choose another --workdir\)'):
    importing.run(other, path)
  shutil.copyfile(path.parent / 'hf' / 'model.safetensors', other / 'model.safetensors')
  words = json.loads((other / 'tokenizer.json').read_text())
  (other / 'tokenizer.json').write_text(json.dumps(words | {'pre_tokenizer': None}))
  with pytest.raises(ConfigDiffers, match='has another tokenizer'):
    importing.run(other, path)


def test_a_single_file_counts_more_than_an_index_that_was_left_behind(tmp_path):
  shards(tmp_path)
  gone(tmp_path)
  folder(tmp_path)
  assert jax.tree.all(jax.tree.map(np.array_equal, read(tmp_path), read(folder(tmp_path / 'whole'))))
  (tmp_path / 'model.safetensors').unlink()
  (tmp_path / 'model.safetensors.index.json').write_text('{"weight_map": [1]}')
  with pytest.raises(DataError, match='weight_map: an object with a file for each tensor is wanted'):
    read(tmp_path)


def test_the_length_and_the_bos_that_a_source_declares_come_out_of_an_export(tmp_path):
  rope = {'rope_type': 'llama3', 'rope_theta': 500.0, 'factor': 8.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0}
  rope |= {'original_max_position_embeddings': 16}
  source = folder(tmp_path / 'hf', max_position_embeddings=512, rope_parameters=rope, bos_token_id=3)
  (source / 'tokenizer.json').write_text(json.dumps(no_bos(vocabulary.of_bytes(tmp_path / 'bytes'))))
  with runs.quick_compiles():
    card = importing.run(source, tmp_path / 'run')
  assert (card['train_length'], card['max_length'], card['bos_token_id']) == (16, 512, 3)
  exporting.run(pe_jax.load(tmp_path / 'run'), tmp_path / 'out')
  said = json.loads((tmp_path / 'out' / 'config.json').read_text())
  assert (said['max_position_embeddings'], said['bos_token_id']) == (512, 3)


def no_bos(path):
  return json.loads(pathlib.Path(path).read_text(encoding='utf-8')) | {'post_processor': None}


def test_an_imported_run_is_evaluated_probed_diagnosed_and_continued(run, text):
  path, _ = run
  with runs.quick_compiles():
    loaded = pe_jax.load(path)
    rows = loaded.evaluate([16, 64], ['rope', 'yarn'], text=str(text), max_targets=200, protocols=['context'])
    assert {row['encoding'] for row in rows} == {'rope(base=500)', 'yarn(factor=1, base=500)', 'yarn(factor=4, base=500)'}
    assert {row['split'] for row in rows} == {f'text:{text}'}
    assert rows[0]['bos']
    assert all(np.isfinite(row['nll']) and row['bits_per_byte'] > 0 for row in rows)
    assert len({row['targets_sha256'] for row in rows}) == 1
    found = loaded.generate('def ', 5, temperature=0)
    again = loaded.logits(np.append(256, list(b'def ')))
    assert found.tokens[0][0] == int(np.argmax(again[0, -1]))
    assert diagnose.of_run(loaded, 32, text=str(text)).subject.info['documents'] == 1


def test_own_text_is_a_file_of_any_kind_or_a_folder(run, text, tmp_path):
  loaded = pe_jax.load(run[0])
  from pe_jax import evaluate

  whole = evaluate.subject(loaded.config, loaded.params, text=str(text))
  assert whole.info['documents'] == 1
  assert whole.info['bytes'] == text.stat().st_size == whole.info['targets']
  (tmp_path / 'a.txt').write_text('one')
  (tmp_path / 'b.jsonl').write_text('{"text": "two"}\n{"text": "three"}\n')
  assert evaluate.subject(loaded.config, loaded.params, text=str(tmp_path)).info['documents'] == 3
  with pytest.raises(DataError, match='there is no such file or folder'):
    evaluate.subject(loaded.config, loaded.params, text=str(tmp_path / 'gone.txt'))


def test_a_bucket_is_refused_and_no_folder_of_its_name_is_made(run, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(ConfigError, match='--workdir: gs://mine/run is in a bucket, and this is read and written on local disks only'):
    importing.run(folder(tmp_path / 'hf'), 'gs://mine/run')
  with pytest.raises(ConfigError, match='--folder: gs://mine/run/hf is in a bucket'):
    exporting.run(pe_jax.load(run[0]), 'gs://mine/run/hf')
  assert [path.name for path in tmp_path.iterdir()] == ['hf']


def test_a_run_that_was_moved_brings_its_tokenizer_along(run, tmp_path):
  shutil.copytree(run[0], tmp_path / 'moved')
  config = json.loads((tmp_path / 'moved' / 'config.json').read_text())
  config['data']['tokenizer'] = '/nowhere/tokenizer.json'
  (tmp_path / 'moved' / 'config.json').write_text(json.dumps(config))
  assert workdir.read_config(tmp_path / 'moved').data.tokenizer == str(tmp_path / 'moved' / 'tokenizer' / 'tokenizer.json')


def test_training_goes_on_from_an_imported_checkpoint(run, tmp_path):
  path, _ = run
  config = runs.config(init_from=str(path), num_train_steps=1, optim__learning_rate=1e-9, optim__weight_decay=0.0)
  config.model.update(workdir.read_config(path).model.to_dict())
  config.encoding, config.data.tokenizer = 'rope(base=500)', workdir.read_config(path).data.tokenizer
  with runs.quick_compiles():
    train.run(config, tmp_path)
    after, before = pe_jax.load(tmp_path).params, pe_jax.load(path).params
  for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(before), strict=True):
    np.testing.assert_allclose(a, b, atol=1e-6)
  config.model.norm_epsilon = 0.1
  with pytest.raises(ConfigError, match=r'model\.norm_epsilon=1e-06, this run 0\.1'):
    train.run(config, tmp_path / 'other')


def test_an_exported_run_is_imported_as_it_was(run, tmp_path):
  path, card = run
  assert exporting.run(pe_jax.load(path), tmp_path / 'hf') == 'llama'
  with runs.quick_compiles():
    again = importing.run(tmp_path / 'hf', tmp_path / 'run')
  assert again['params_sha256'] == card['params_sha256']
  one, other = (workdir.read_config(p).to_dict() for p in (path, tmp_path / 'run'))
  assert [line for line in config_lib.diff(one, other) if 'tokenizer' not in line] == []
  with pytest.raises(WriteError, match='is not an empty folder'):
    exporting.run(pe_jax.load(path), tmp_path / 'hf')


def test_what_a_source_says_of_its_tokens_comes_out_of_an_export(tmp_path):
  source = folder(tmp_path / 'hf', eos_token_id=[1, 7], pad_token_id=3)
  vocabulary.of_bytes(source)
  told = {'bos_token': '<s>', 'eos_token': '<s>', 'pad_token': '!', 'chat_template': '{{ messages }}', 'model_max_length': 48}
  (source / 'tokenizer_config.json').write_text(json.dumps({**told, 'tokenizer_class': 'LlamaTokenizer', 'legacy': False}))
  (source / 'generation_config.json').write_text(json.dumps({'eos_token_id': [1, 7], 'temperature': 0.6}))
  with runs.quick_compiles():
    importing.run(source, tmp_path / 'run')
  exporting.run(pe_jax.load(tmp_path / 'run'), tmp_path / 'out')

  def said(name):
    return json.loads((tmp_path / 'out' / name).read_text())

  assert said('tokenizer_config.json') == {'tokenizer_class': 'PreTrainedTokenizerFast', **told}
  assert (said('config.json')['eos_token_id'], said('config.json')['pad_token_id']) == ([1, 7], 3)
  assert said('generation_config.json') == {'eos_token_id': [1, 7], 'temperature': 0.6}
  assert (tmp_path / 'out' / 'tokenizer.json').read_bytes() == (source / 'tokenizer.json').read_bytes()


def shards(path, name='llama'):
  """The folder with its tensors in two files and an index."""
  from safetensors.numpy import save_file

  folder(path, name)
  (path / 'model.safetensors').unlink()
  arrays, where = weights(name), {}
  for n, names in enumerate((sorted(arrays)[::2], sorted(arrays)[1::2])):
    file = f'model-0000{n + 1}-of-00002.safetensors'
    save_file({key: arrays[key] for key in names}, path / file)
    where |= dict.fromkeys(names, file)
  (path / 'model.safetensors.index.json').write_text(json.dumps({'weight_map': where}))
  return path


def read(path):
  opened = importing.opened_source(path)
  return importing.parameters(opened, importing.config_of(opened.given)[0])[0]


def test_shards_are_one_model(tmp_path):
  whole, parts = read(folder(tmp_path / 'whole')), read(shards(tmp_path / 'parts'))
  assert jax.tree.all(jax.tree.map(np.array_equal, whole, parts))


def test_half_precision_is_read_exactly_as_float32(tmp_path):
  import ml_dtypes

  for dtype in (np.float16, ml_dtypes.bfloat16):
    narrow = {key: x.astype(dtype) for key, x in weights('llama').items()}
    params = read(made.folder(tmp_path / np.dtype(dtype).name, 'llama', BYTES, narrow))
    kernel = params['decoder']['block_0']['mlp']['up']['kernel']
    assert kernel.dtype == np.float32
    assert np.array_equal(kernel.T, narrow['model.layers.0.mlp.up_proj.weight'].astype(np.float32))


def test_names_of_a_bare_model_and_masks_of_older_files_are_known(tmp_path):
  arrays = {key.removeprefix('transformer.'): x for key, x in weights('gpt2').items()}
  arrays['h.0.attn.bias'] = np.ones((1, 1, 8, 8), np.float32)
  bare = read(made.written(tmp_path / 'bare', {**made.stored()['gpt2']['config'], **BYTES}, arrays))
  assert jax.tree.all(jax.tree.map(np.array_equal, bare, read(folder(tmp_path / 'whole', 'gpt2'))))


def gone(path):
  next(path.glob('*-of-*')).unlink()


def torn(path):
  file = path / 'model.safetensors'
  os.truncate(file, file.stat().st_size - 100)


def pickled(path):
  (path / 'model.safetensors').rename(path / 'pytorch_model.bin')


def lost(path):
  (path / 'config.json').unlink()


BAD = {
  'a missing shard': (shards, gone, DataError, '1 of 2 shards are missing: model-0000'),
  'a torn file': (folder, torn, DataError, r'cannot be read: .* \(was it copied whole\?\)'),
  'a pickle': (folder, pickled, ConfigError, 'pytorch_model.bin, a pickle, which can run any code'),
  'no config': (folder, lost, DataError, 'no config.json there'),
}


@pytest.mark.parametrize('case', BAD)
def test_a_folder_that_cannot_be_read_is_said_why(case, tmp_path):
  make, spoil, error, match = BAD[case]
  spoil(make(tmp_path))
  with pytest.raises(error, match=match):
    read(tmp_path)


@pytest.mark.parametrize(
  ('config', 'arrays', 'error', 'match'),
  [
    ({'intermediate_size': 48}, {}, DataError, r'mlp.gate_proj.weight of shape \(64, 32\) makes block_0/mlp/gate/kernel \(32, 64\)'),
    ({'vocab_size': 300}, {}, DataError, r'embed_tokens.weight of shape \(257, 32\)'),
    ({'num_hidden_layers': 3}, {}, DataError, r'9 of the 30 tensors of a llama are missing, model.layers.2'),
    ({'num_hidden_layers': 1}, {}, DataError, r'9 tensors are none of a llama as config.json has it, model.layers.1'),
    ({'attention_bias': True}, {}, DataError, r'tensors of a llama are missing, model.layers.0.self_attn.q_proj.bias'),
    ({'quantization_config': {'bits': 4}}, {}, ConfigError, 'quantization_config: packed weights cannot be read'),
    ({'tie_word_embeddings': True}, {}, DataError, 'ties the output layer to the embedding, and lm_head.weight is another'),
    ({}, {'lm_head.weight': None}, DataError, 'missing, lm_head.weight first'),
    ({'num_key_value_heads': 4}, {}, DataError, r'k_proj.weight of shape \(16, 32\)'),
  ],
)
def test_tensors_that_contradict_config_json_are_named(config, arrays, error, match, tmp_path):
  made.folder(tmp_path, 'llama', {**BYTES, **config}, {**weights('llama'), **arrays})
  with pytest.raises(error, match=match):
    read(tmp_path)


def test_fused_rows_that_contradict_the_heads_are_named(tmp_path):
  arrays = {**weights('gpt_neox'), 'gpt_neox.layers.1.attention.query_key_value.weight': np.ones((64, 32), np.float32)}
  made.folder(tmp_path, 'gpt_neox', BYTES, arrays)
  with pytest.raises(DataError, match=r'query_key_value: has 64 rows, and config.json says 4 heads of queries and 4 of keys and values'):
    read(tmp_path)


def test_a_tied_head_that_is_stored_all_the_same_is_no_error(tmp_path):
  embedding = weights('llama')['model.embed_tokens.weight']
  made.folder(tmp_path, 'llama', {**BYTES, 'tie_word_embeddings': True}, {**weights('llama'), 'lm_head.weight': embedding})
  assert 'head' not in read(tmp_path)['decoder']


def test_a_vocabulary_smaller_than_the_tokenizers_is_refused_and_nothing_is_written(tmp_path):
  source = made.folder(tmp_path / 'hf', 'llama')  # 64 tokens
  with pytest.raises(DataError, match=r'no tokenizer there .* --tokenizer=PATH'):
    importing.run(source, tmp_path / 'run')
  vocabulary.of_bytes(source)
  with pytest.raises(ConfigError, match=r"model\.vocab_size: 64 is smaller than the tokenizer's 257"):
    importing.run(source, tmp_path / 'run')
  with pytest.raises(ConfigError, match=r"'gone\.json' is no tokenizer\.json"):
    importing.run(source, tmp_path / 'run', tokenizer='gone.json')
  assert not (tmp_path / 'run').exists()


def test_more_parameters_than_memory_are_refused_before_anything_is_read(tmp_path, monkeypatch):
  source = folder(tmp_path)
  monkeypatch.setattr(os, 'sysconf', lambda name: 100)
  with pytest.raises(ConfigError, match=r'its parameters take 0\.0 GB as float32, and this machine has 0\.0 GB'):
    read(source)


def test_the_commands_import_evaluate_and_export(text, tmp_path):
  """As processes: what they print, their exit codes and their sentences."""
  source = folder(tmp_path / 'hf', max_position_embeddings=16)
  vocabulary.of_bytes(source)
  run = tmp_path / 'run'
  script = 'scripts/import_checkpoint.py'
  cases = [
    [script, f'--source={source}', f'--workdir={run}'],
    [script, f'--source={tmp_path / "gone"}', f'--workdir={run}'],
    [script, f'--source={source}'],
    [
      'eval.py',
      f'--workdir={run}',
      f'--text={text}',
      '--lengths=16,32',
      '--encodings=rope, yarn',
      '--max_targets=100',
      '--protocols=context',
    ],
    ['scripts/export_checkpoint.py', f'--workdir={run}'],
    ['scripts/generate.py', f'--workdir={run}', '--prompt=def ', '--new_tokens=3'],
  ]
  found = runs.served([{'argv': argv} for argv in cases])
  assert [code for code, *_ in found] == [0, 3, 2, 0, 0, 0], found
  assert 'encoding       rope(base=500)' in found[0][1]
  assert 'there is no such folder or .gguf file' in found[1][2]
  assert found[2][2] == 'ERROR: --workdir: missing (for instance --workdir=runs/smollm2)\n'
  assert 'yarn(base=500)' in found[3][1]
  assert found[4][1] == f'{run}/hf: a llama of transformers\n'
  rows = [json.loads(line) for line in (run / 'eval' / 'context.jsonl').read_text().splitlines()]
  assert {row['split'] for row in rows} == {f'text:{text}'}
