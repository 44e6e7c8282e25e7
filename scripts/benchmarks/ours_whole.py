"""Cases that take whole parts of this repository: evaluation at many lengths, decoding, the input pipeline, train.py from its start."""

import dataclasses
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import jax
import numpy as np

from benchmarks.worker import Case, NotThere
from pe_jax import config, data, encodings, evaluate, model

ROOT = pathlib.Path(__file__).resolve().parents[2]


def lengths(settings, lengths, encoding, protocol, windows, longest, **sizes):
  """`evaluate.evaluate` of one model, tracing and programs read from the warm cache included: what a user waits for.

  The documents are `windows` texts of as many targets as the longest length has, the same whatever lengths are asked for.
  """
  c = settings(length=512, **sizes)
  params = model.init(c, encodings.make(encoding, model.dims(c)), jax.random.PRNGKey(0))
  tokenizer = data.make_tokenizer('bytes')
  random = np.random.default_rng(0)
  documents = [random.integers(1, tokenizer.vocab_size - 1, longest).astype(np.int32) for _ in range(windows)]
  info = {'bytes': windows * longest, 'targets': windows * longest, 'documents': windows, 'documents_sha256': ''}
  subject = evaluate.Subject(c, params, tokenizer, documents, info)
  return Case(lambda: evaluate.evaluate(dataclasses.replace(subject, programs={}), lengths, None, [protocol]))


def decode(c, context, new, rows):
  """Seconds a new token of `rows` rows after a prompt of `context`: the loop alone, prompt and compilation left out."""
  if not importlib.util.find_spec('pe_jax.decode'):
    raise NotThere('pe_jax.decode')
  from pe_jax import decode as decoding

  enc = encodings.make(c.encoding, model.dims(c))
  params = model.init(c, enc, jax.random.PRNGKey(0))
  tokens = np.random.default_rng(0).integers(1, c.model.vocab_size, (rows, context)).astype(np.int32)
  return Case(lambda: decoding.generate(c, enc, params, tokens, new_tokens=new).seconds / new)


def pipeline(length, rows):
  """As many batches as an epoch of the default corpus has: read, made into tokens, packed, shuffled, cut."""
  c = config.default().data
  documents = data.open_documents(c, 'train')
  batches = data.Batches(documents, data.make_tokenizer(c.tokenizer), length=length, batch_size=rows, seed=0, packing=c.packing)
  count = 1
  while next(batches) and batches.state()['epoch'] == 0:
    count += 1

  def run():
    for _ in range(count):
      next(batches)

  return Case(run, {'units': count * rows * length})


def start(steps=3):
  """From starting train.py to the numbers of its first step, with what an earlier start has compiled. That one is part of the building."""
  folder = tempfile.TemporaryDirectory()
  home = pathlib.Path(folder.name)
  env = os.environ | {'JAX_COMPILATION_CACHE_DIR': str(home / 'compiled')}
  fields = {'num_train_steps': steps, 'log_every_steps': 1, 'eval_targets': 4096}
  command = [sys.executable, str(ROOT / 'train.py'), f'--config={ROOT / "configs" / "quickstart.py"}:rope']
  command += [f'--config.{name}={value}' for name, value in fields.items()]
  count = [0]

  def run(folder=folder):  # held, so that it lives as long as the case
    count[0] += 1
    workdir = home / str(count[0])
    begun = time.time()
    subprocess.run([*command, f'--workdir={workdir}'], env=env, check=True, stdout=sys.stderr)
    first = json.loads((workdir / 'timing.jsonl').read_text().splitlines()[0])
    return first['time'] - begun

  return Case(run)
