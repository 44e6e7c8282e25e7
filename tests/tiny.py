"""The tiny model of the self-check under the name that tests use, and a subject for evaluation made of it."""

import numpy as np

from pe_jax import evaluate
from pe_jax.data import tokenizer
from pe_jax.selfcheck.tiny import TRAIN_LENGTH, config, error, forward, made, row, tokens

__all__ = ['TRAIN_LENGTH', 'config', 'error', 'forward', 'made', 'row', 'subject', 'tokens']


def subject(spec, documents=6, size=64, **changes):
  """An `evaluate.Subject` of the model on random tokens; 49 is BOS."""
  c, _, params = made(spec, **changes)
  texts = list(np.random.default_rng(5).integers(0, 49, size=(documents, size)).astype(np.int32))
  words = tokenizer.Tokenizer('tiny', 50, 49, np.ones(50, np.int32), None, None)
  return evaluate.Subject(c, params, words, texts, {'targets': documents * size, 'documents': documents})
