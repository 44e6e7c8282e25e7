"""transformers computes today what is stored of its models, and loads what is exported with the logits of the run."""

import json
import pathlib
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_runs as runs
import tiny_weights as made
from test_live import python  # noqa: F401  a fixture

import pe_jax
from pe_jax import encodings, hf_config, model, train
from pe_jax.data import tokenizer as tokenizer_lib
from pe_jax.encodings.base import Where
from pe_jax.weights import exporting, families, importing

SCRIPT = pathlib.Path(__file__).with_name('models.py')
# Runs of our own: {name: (encoding, fields of config.model)}
OWN = {
  'plain': ('rope', {}),
  'gated': ('yarn(factor=2.5)', {'mlp': 'swiglu', 'num_kv_heads': 2}),
  'some_layers': ('layers(rope(base=500), nope)', {'mlp': 'swiglu', 'tie_head': False}),
  'linear': ('linear(factor=3)', {'mlp': 'silu'}),
  'llama3': ("llama3(factor=4, original_length=16)", {'mlp': 'swiglu'}),
  'dynamic': ('dynamic_ntk(factor=2)', {'mlp': 'swiglu'}),
  'normed': ('rope', {'mlp': 'swiglu', 'qk_norm': 'head'}),
  'after': ('rope', {'mlp': 'swiglu', 'qk_norm': 'full', 'norm_place': 'after'}),
  'alibi': ('alibi', {'train_length': 48, 'norm': 'layer', 'mlp': 'gelu_exact', 'mlp_dim': 128}),
  'learned': (
    'learned(max_length=64)',
    {'norm': 'layer', 'norm_bias': True, 'qkv_bias': True, 'attention_out_bias': True, 'mlp_bias': True, 'embed_scale': 1.0},
  ),
}  # fmt: skip


def test_transformers_still_computes_the_stored_logits(python, tmp_path):  # noqa: F811
  out = tmp_path / 'models.json'
  done = subprocess.run([python, str(SCRIPT), '--out', str(out)], capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  found = json.loads(out.read_text(encoding='utf-8'))
  fresh, stored = found['models'], made.stored()
  assert fresh.keys() == stored.keys()
  for name, one in fresh.items():
    assert one['tensors'] == stored[name]['tensors'], name
    for length, logits in one['logits'].items():
      assert error(logits, stored[name]['logits'][length]) < 2e-5, name
  assert found['ropes'].keys() == made.ropes().keys()
  for name, one in found['ropes'].items():
    old = made.ropes()[name]
    assert one['changes'] == old['changes'], name
    for length, logits in one['logits'].items():
      assert np.max(np.abs(np.subtract(logits, old['logits'][length]))) < 2e-5 * old['largest'][length], name


def own_run(encoding, fields):
  """(config, params) of a run of ours."""
  given = {**made.stored()['llama']['config'], 'vocab_size': 257, 'max_position_embeddings': fields.get('train_length', 16)}
  config = importing.config_of(given, encoding=encoding)[0].copy_and_resolve_references()
  config.unlock()
  plain = {'mlp': 'gelu', 'num_kv_heads': 4, 'vocab_size': made.VOCABULARY, 'tie_head': True, 'embed_scale': 1.0}
  config.model.update({name: x for name, x in {**plain, **fields}.items() if name != 'train_length'})
  config.encoding = encoding
  enc = encodings.make(encoding, model.dims(config))
  params = model.init(config, enc, jax.random.PRNGKey(0))
  rng = np.random.default_rng(0)
  moved = jax.tree.map(lambda x: jnp.asarray(x + 0.2 * rng.normal(size=x.shape), jnp.float32), params)
  return config, enc, moved


def kept(config, enc, params):
  """Our logits of the two texts at the positions that are kept."""

  @jax.jit
  def apply(tokens_BT):
    where = Where.forward(jnp.arange(tokens_BT.shape[1])[None], jnp.ones_like(tokens_BT))
    return model.apply(config, enc, params, tokens_BT, where)

  found = {}
  for length, at in made.AT.items():
    found[str(length)] = np.asarray(apply(np.asarray(made.text(length)[None], np.int32)))[0, np.asarray(at)]
  return found


def error(mine, theirs):
  mine, theirs = np.asarray(mine, np.float64), np.asarray(theirs, np.float64)
  return np.max(np.abs(mine - theirs)) / np.max(np.abs(theirs))


@pytest.fixture(scope='module')
def exported(tmp_path_factory):
  """{folder: our logits} of runs of our own, and of imported ones written by their own family."""
  home, ours = tmp_path_factory.mktemp('exported'), {}
  for name, (encoding, fields) in OWN.items():
    config, enc, params = own_run(encoding, fields)
    family, keys = exporting.chosen(config)
    folder = made.written(home / name, keys, exporting.tensors_of(family, config, params))
    ours[str(folder)] = kept(config, enc, params)
  for name in families.names():
    stored = made.stored()[name]
    config = importing.config_of({**stored['config'], 'vocab_size': 257})[0].copy_and_resolve_references()
    config.unlock()
    config.model.vocab_size = made.VOCABULARY
    family = families.get(name)
    assert exporting.differences(config, family, family.written(config)) == []
    folder = made.written(home / f'of_{name}', family.written(config), made.tensors(name))
    ours[str(folder)] = stored['logits']
  return ours


def test_transformers_loads_what_is_exported_and_computes_the_same(python, exported, tmp_path):  # noqa: F811
  out = tmp_path / 'logits.json'
  done = subprocess.run([python, str(SCRIPT), '--out', str(out), '--folders', ','.join(exported)], capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  theirs = json.loads(out.read_text(encoding='utf-8'))
  for folder, logits in exported.items():
    for length, mine in logits.items():
      assert error(mine, theirs[folder][length]) < 1e-4, (pathlib.Path(folder).name, length)
  assert hf_config.declared(json.loads((pathlib.Path(folder) / 'config.json').read_text()))


TEXT, NEW = 'def grown(near):\n  return 1984  # Ä 語', 16


def trained_run(path):
  """A run of our own that reads bytes, with RoPE, after a few steps."""
  config = runs.config(encoding='rope', num_train_steps=4)
  with runs.quick_compiles():
    train.run(config, path)
  return pe_jax.load(path)


def imported_run(path):
  """An imported run with a byte-level BPE that has an end, a token to fill up with and a chat template."""
  tokenizers = pytest.importorskip('tokenizers')
  pre = tokenizers.pre_tokenizers
  bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
  bpe.pre_tokenizer = pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)])
  bpe.decoder = tokenizers.decoders.ByteLevel()
  special = ['<|begin|>', '<|end|>', '<|fill|>']
  trainer = tokenizers.trainers.BpeTrainer(
    vocab_size=300, special_tokens=special, initial_alphabet=pre.ByteLevel.alphabet(), show_progress=False
  )
  bpe.train_from_iterator(['def grown(near): return near', 'in 1984 nobody was near'] * 20, trainer)
  bpe.post_processor = tokenizers.processors.TemplateProcessing(single='<|begin|> $A', special_tokens=[('<|begin|>', 0)])
  words = {name: made.tensor(name, (300, 32)) for name in ('model.embed_tokens.weight', 'lm_head.weight')}
  given = {**made.stored()['llama']['config'], 'vocab_size': bpe.get_vocab_size(), 'eos_token_id': 1, 'pad_token_id': 2}
  words = {name: x[: given['vocab_size']] for name, x in words.items()}
  folder = made.written(path / 'hf', given, {**made.tensors('llama'), **words})
  bpe.save(str(folder / 'tokenizer.json'))
  names = dict(zip(('bos_token', 'eos_token', 'pad_token'), special, strict=True))
  (folder / 'tokenizer_config.json').write_text(
    json.dumps({**names, 'chat_template': '{{ messages }}', 'tokenizer_class': 'LlamaTokenizer'})
  )
  importing.run(folder, path / 'run')
  return pe_jax.load(path / 'run')


def test_transformers_reads_exported_tokenizers_and_continues_texts_as_we_do(python, tmp_path):  # noqa: F811
  ours = {'own': trained_run(tmp_path / 'own'), 'imported': imported_run(tmp_path / 'imported')}
  for name, run in ours.items():
    exporting.run(run, tmp_path / f'{name}_hf')
  out, script, folders = tmp_path / 'found.json', SCRIPT.with_name('exported.py'), [str(tmp_path / f'{name}_hf') for name in ours]
  done = subprocess.run(
    [python, str(script), '--out', str(out), '--text', TEXT, '--new', str(NEW), *folders], capture_output=True, text=True
  )
  assert done.returncode == 0, done.stderr
  found = json.loads(out.read_text(encoding='utf-8'))
  special = {'own': {'bos': 256, 'eos': None, 'pad': None}, 'imported': {'bos': 0, 'eos': 1, 'pad': 2}}
  for (name, run), folder in zip(ours.items(), folders, strict=True):
    theirs, tokenizer = found[folder], tokenizer_lib.make(run.config.data.tokenizer)
    ids = tokenizer.encode(TEXT.encode()).tolist()
    assert theirs['plain'] == ids, name
    assert theirs['begun'] == [tokenizer.bos, *ids], name
    assert theirs['special'] == special[name]
    assert theirs['template'] == ('{{ messages }}' if name == 'imported' else None)
    stop = [1] if name == 'imported' else []
    made_here = run.generate(TEXT, NEW, temperature=0, stop=stop)
    assert theirs['new'] == made_here.tokens[0, : made_here.count[0]].tolist(), name
