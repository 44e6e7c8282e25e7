"""SmolLM2-135M-Instruct, imported from its GGUF file: what transformers computes on 1024 tokens of prose, raw and under maps.

Skipped unless PE_JAX_SMOLLM2 names the file; `make real-weights` fetches it, which a test may not.
tests/parity/smollm2.py made the stored numbers.
"""

import json
import os
import pathlib
import sysconfig

import jax
import numpy as np
import pytest

import pe_jax
from pe_jax import evaluate
from pe_jax.data import tokenizer
from pe_jax.weights import gguf_file, importing

ROOT = pathlib.Path(__file__).resolve().parents[2]
GGUF = os.environ.get('PE_JAX_SMOLLM2', '')
pytestmark = pytest.mark.skipif(not GGUF, reason='PE_JAX_SMOLLM2 names no GGUF file (make real-weights fetches it)')
STORED = json.loads((ROOT / 'tests' / 'parity' / 'smollm2.json').read_text())
PROSE = ROOT / 'tests' / 'parity' / 'prose.txt'
READINGS = {'raw': None, 'linear': 'linear(factor=2)', 'yarn': 'yarn(factor=4)'}


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  path = tmp_path_factory.mktemp('smollm2')
  importing.run(GGUF, path)
  return pe_jax.load(path)


def nll(logits_TV, ids):
  """Mean loss of each next token, in nats."""
  logp_TV = np.asarray(jax.nn.log_softmax(logits_TV), np.float64)
  return -np.mean(logp_TV[np.arange(len(ids) - 1), ids[1:]])


def test_what_is_read_of_the_file(run):
  m = run.config.model
  assert (m.num_layers, m.embed_dim, m.num_heads, m.num_kv_heads, m.head_dim, m.vocab_size, m.tie_head) == (30, 576, 9, 3, 64, 49_152, True)
  assert (run.config.encoding, run.config.train_length) == ('rope(base=100000)', 8192)


def test_the_vocabulary_of_the_file_keeps_every_byte(run):
  made = tokenizer.make(run.config.data.tokenizer)
  text = PROSE.read_bytes()
  ids = made.encode(text)
  assert made.decode(ids).encode() == text
  assert made.byte_length_V[ids].sum() == len(text)
  assert text.startswith(made.decode(STORED['ids']).encode())
  # Digits are split off first, as in llama.cpp, so that white space before one is a piece; transformers' reading of GGUF files leaves that
  # out and has two tokens here.
  assert len(made.encode(b'\n\n   1')) == 2


@pytest.mark.parametrize('name', READINGS)
def test_losses_and_logits_are_those_of_transformers(name, run):
  ids = np.asarray(STORED['ids'])
  assert len(ids) == 1024
  logits, stored = np.asarray(run.logits(ids, READINGS[name])[0]), STORED[name]
  of_top = np.max(np.abs(logits[np.arange(1024), stored['token']] - stored['logit']))
  of_sums = np.max(np.abs(np.asarray(jax.nn.logsumexp(logits, axis=-1)) - np.asarray(stored['sum'])))
  loss = nll(logits[:-1], ids)
  print(f'{name}: {loss:.5f} nats, {stored["nll"]:.5f} in transformers; top logits {of_top:.1e} apart, sums {of_sums:.1e}')
  assert loss == pytest.approx(stored['nll'], abs=1e-4)
  assert max(of_top, of_sums) < 1e-3


def test_rows_left_permuted_cost_more_than_a_nat(run):
  """The trap: nothing fails, and the text is only predicted worse."""
  params = jax.tree.map(lambda x: x, run.params)
  for n in range(run.config.model.num_layers):
    attention = params['decoder'][f'block_{n}']['attention']
    for part, heads in (('query', 9), ('key', 3)):
      # Its own inverse taken back: rows i and i + 32 of a head next to each other again.
      rows = np.asarray(attention[part]['kernel']).T.reshape(heads, 2, 32, 576).swapaxes(1, 2).reshape(heads * 64, 576)
      assert np.array_equal(gguf_file.halves(rows, heads), np.asarray(attention[part]['kernel']).T)
      attention[part] = {'kernel': rows.T}
  ids = np.asarray(STORED['ids'])
  wrong = type(run)(run.workdir, run.config, params, run.step)
  assert nll(np.asarray(wrong.logits(ids)[0])[:-1], ids) > STORED['raw']['nll'] + 1


def test_a_cache_continues_as_a_forward_would(run):
  prompt = STORED['ids'][:64]
  found = run.generate(prompt, 8, temperature=0)
  whole = np.append(prompt, found.tokens[0])
  assert np.argmax(np.asarray(run.logits(whole)[0]), axis=-1)[63:71].tolist() == found.tokens[0].tolist()


def test_a_key_is_found_in_4096_tokens_and_yarn_holds_where_raw_fails(run):
  """Python source, the same last targets: at twice its context the model as it is loses nats, under YaRN next to none."""
  text, options = pathlib.Path(sysconfig.get_paths()['stdlib']) / '_pydecimal.py', evaluate.Options(span=256, spans=1, arms=False, needle=5)
  rows = run.evaluate([2048, 4096, 16_384], ['rope', 'yarn(factor=2)'], ['context'], max_targets=17_000, options=options, text=str(text))
  by = {(row['asked_encoding'].partition('(')[0], row['length']): row for row in rows}
  print({key: (round(row['against_crop']['mean'], 3), round(row['needle']['nats'], 2)) for key, row in by.items()})
  for length in (2048, 4096):  # five digits, 11.5 nats for a guesser
    assert by['rope', length]['needle']['nats'] < 3
    assert by['yarn', length]['needle']['nats'] < 3
  assert by['rope', 16_384]['needle']['nats'] > 10
  assert by['rope', 16_384]['against_crop']['mean'] > 1
  assert abs(by['yarn', 2048]['against_crop']['mean']) < 0.2  # what it costs inside the context
  assert abs(by['yarn', 4096]['against_crop']['mean']) < 0.2
  assert by['yarn', 16_384]['against_crop']['mean'] < 0.2
