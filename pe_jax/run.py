"""A finished or running experiment, for notebooks:

run = pe_jax.load('runs/a')
run.logits(tokens, encoding='yarn(factor=4)')
run.evaluate(lengths=[512, 4096])
print(run.generate('def ').text[0])
"""

import dataclasses
import functools
import os
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from ml_collections import ConfigDict

from pe_jax import attention, decode, encodings, evaluate, model, prompts, sampling, workdir
from pe_jax import probes as probes_lib
from pe_jax.checkpoint import Checkpoints
from pe_jax.data import tokenizer as tokenizer_lib
from pe_jax.encodings.base import Encoding, Where, run_start
from pe_jax.errors import ConfigError, DataError
from pe_jax.weights import card


@dataclasses.dataclass(frozen=True)
class Run:
  """Parameters with the config they were trained under.

  Attributes:
    workdir: its folder.
    config: the resolved config, locked.
    params: the parameter tree.
    step: the training step of the checkpoint.
    records: those that were asked for, so that what is compiled for an encoding is found again.
  """

  workdir: str
  config: ConfigDict
  params: dict
  step: int
  records: dict = dataclasses.field(default_factory=dict, repr=False, compare=False)

  def encoding(self, spec: str | None = None, length: int = 0) -> Encoding:
    """The record of the trained encoding, or of another one with what it leaves open taken from the trained one."""
    trained = encodings.parse(self.config.encoding)
    spec = encodings.inherit(encodings.check_name(spec), trained) if spec else trained
    length = length or self.config.train_length
    spec = encodings.at_length(spec, length, self.config.train_length)
    if spec not in self.records:
      enc = encodings.make(spec, model.dims(self.config))
      model.check_parameters(enc, self.params)
      self.records[spec] = enc
    return self.records[spec]

  def logits(self, tokens: ArrayLike, encoding: str | None = None, pos: ArrayLike | None = None, doc: ArrayLike | None = None) -> jax.Array:
    """Next-token logits, float32 (B, T, V).

    Args:
      tokens: int (B, T) or (T,) token ids, BOS included if the model has one.
      encoding: another encoding than the trained one.
      pos, doc: positions, which rise within a document, and documents (0 is padding); by default each row is one document, and each
        document begins at position 0. A document is one run of a row.
    """
    given = np.atleast_2d(np.asarray(tokens))
    if given.ndim != 2 or not given.size or not np.issubdtype(given.dtype, np.integer):
      raise ConfigError(f'tokens: whole numbers (B, T) are wanted, and these are {given.dtype} {given.shape}')
    tokens_BT = jnp.asarray(given, jnp.int32)
    if int(tokens_BT.min()) < 0 or int(tokens_BT.max()) >= self.config.model.vocab_size:
      raise ConfigError(f'tokens: ids must be in 0 .. {self.config.model.vocab_size - 1}')
    enc = self.encoding(encoding, tokens_BT.shape[1])
    pos_BT, doc_BT, contiguous = _placed(tokens_BT.shape, pos, doc)
    model.check_length(enc, int(pos_BT[doc_BT > 0].max(initial=0)) + 1)
    return _logits(attention.reading(self.config), enc, self.params, tokens_BT, pos_BT, doc_BT, contiguous)

  def evaluate(
    self,
    lengths: Sequence[int],
    encodings: Sequence[str] | None = None,
    protocols: Sequence[str] = (),
    split: str = 'test',
    max_targets: int = 0,
    options: evaluate.Options | None = None,
    samples: int = 500,
    task: str = '',
    text: str = '',
  ) -> list[dict]:
    """Result rows, as eval.py writes them; `samples` and `task` are for a run that was trained on a task, `text` is scored for a split."""
    subject = evaluate.subject(self.config, self.params, split, max_targets, samples, task, text)
    extra = {'step': self.step, 'split': evaluate.split_name(split, text)}
    return evaluate.evaluate(subject, lengths, encodings, list(protocols), extra, options)

  def probe(
    self,
    lengths: Sequence[int],
    probes: Sequence[str] = (),
    encodings: Sequence[str] | None = None,
    split: str = 'test',
    max_targets: int = 0,
    options: probes_lib.Options | None = None,
  ) -> list[dict]:
    """Rows of probes (by default all that fit the run), as eval.py writes them; lengths are tokens that the model is fed."""
    subject = evaluate.subject(self.config, self.params, split, max_targets)
    return probes_lib.probe(subject, lengths, encodings, probes, {'step': self.step, 'split': split}, options)

  def generate(
    self,
    prompt: str | bytes | Sequence,
    new_tokens: int = 100,
    encoding: str | None = None,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    beams: int = 0,
    seed: int = 0,
    length: int | None = None,
    stop: int | Sequence[int] | None = None,
  ) -> decode.Generation:
    """Continues a text, or several at once.

    Args:
      prompt: text, or token ids with BOS, or a list of such prompts. Text begins with BOS if the model has one.
      new_tokens: tokens to add.
      encoding: another encoding than the trained one. A map without a factor takes it from the longest declared length.
      temperature, top_k, top_p: how tokens are drawn; temperature=0 takes the likeliest, top_k=0 and top_p=1 cut nothing.
      beams: beams of a beam search instead; 0: none.
      seed: of the draws.
      length: the declared final length in tokens; by default each prompt's with its new tokens.
      stop: token ids that end a text; None: those of the card of an imported run, else none.

    Returns a `decode.Generation` with `text`: the whole texts, of a beam search a list for each.
    """
    tokenizer = tokenizer_lib.make(self.config.data.tokenizer)
    texts = [_ids(tokenizer, one) for one in _prompts(prompt)]
    enc = self.encoding(encoding, length or max(map(len, texts), default=0) + new_tokens)
    given = (attention.reading(self.config), enc, self.params, *prompts.padded(texts))
    more = {'new_tokens': new_tokens, 'declared_length': length, 'stop': card.ends(self.workdir) if stop is None else stop}
    if beams:
      if (temperature, top_k, top_p, seed) != (1.0, 0, 1.0, 0):
        raise ConfigError(f'beams: {beams}, and a beam search draws nothing (leave out temperature, top_k, top_p and seed)')
      found = decode.beam(*given, beams=beams, **more)
    else:
      sampler = sampling.sampler(temperature, top_k, top_p)
      found = decode.generate(*given, sampler=sampler, key=jax.random.PRNGKey(seed), **more)

    def text(ids, tokens, count):
      return [text(ids, *one) for one in zip(tokens, count)] if count.ndim else tokenizer.decode([*ids, *tokens[:count]])

    return dataclasses.replace(found, text=[text(*row) for row in zip(texts, found.tokens, found.count)])


def load(path: str | os.PathLike[str], step: int | str | None = None) -> Run:
  """The Run in a workdir.

  Args:
    path: the workdir.
    step: a checkpoint's step, 'best' (by validation loss) or None for the newest.
  """
  config = workdir.read_config(path)
  checkpoints = Checkpoints(path, read_only=True)
  step = checkpoints.best() if step == 'best' else checkpoints.latest() if step is None else int(step)
  params = checkpoints.restore_params(step)
  checkpoints.close()
  return Run(str(path), config, {'decoder': params['decoder'], 'encoding': params.get('encoding') or {}}, step)


def _prompts(prompt):
  """A list of prompts, of one or of several."""
  if isinstance(prompt, (str, bytes)):
    return [prompt]
  prompt = prompt if isinstance(prompt, (list, tuple)) else np.asarray(prompt)
  several = len(prompt) and (isinstance(prompt[0], (str, bytes)) or np.ndim(prompt[0]))
  return list(prompt) if several else [prompt]


def _ids(tokenizer, prompt):
  """Token ids of a prompt; of text with BOS."""
  if not isinstance(prompt, (str, bytes)):
    return np.asarray(prompt, None if len(prompt) else np.int32)
  try:
    ids = tokenizer.encode(prompt if isinstance(prompt, bytes) else prompt.encode('utf-8', 'surrogateescape'))
  except UnicodeError as error:
    raise DataError(f'prompt: not UTF-8, and the tokenizer {tokenizer.name} takes no other: {error}') from error
  return ids if tokenizer.bos is None else np.append(np.int32(tokenizer.bos), ids)


def _placed(shape, pos, doc):
  """(positions, documents, whether positions rise by one within each document)."""
  doc_BT = np.ones(shape, np.int32) if doc is None else np.atleast_2d(np.asarray(doc, np.int32))
  if doc_BT.shape != shape:
    raise ConfigError(f'doc: a document for each token is wanted, and tokens have shape {shape}, documents {doc_BT.shape}')
  index_BT = np.broadcast_to(np.arange(shape[1], dtype=np.int32)[None], shape)
  pos_BT = index_BT - np.asarray(run_start(doc_BT)) if pos is None else np.atleast_2d(np.asarray(pos, np.int32))
  if pos_BT.shape != shape:
    raise ConfigError(f'pos: a position for each token is wanted, and tokens have shape {shape}, positions {pos_BT.shape}')
  if (pos_BT[doc_BT > 0] < 0).any():
    raise ConfigError(f'pos: {pos_BT[doc_BT > 0].min()} is below 0, where positions begin')
  begins_BT = np.diff(doc_BT, axis=1, prepend=0) != 0
  for row, doc_X in enumerate(doc[begins] for doc, begins in zip(doc_BT, begins_BT)):
    again = [n for n in doc_X if n > 0 and (doc_X == n).sum() > 1]
    if again:
      raise ConfigError(f'doc: document {again[0]} comes twice in row {row}, which would see itself across another (number each run anew)')
  step_BT = np.diff(pos_BT, axis=1)[(doc_BT[:, 1:] == doc_BT[:, :-1]) & (doc_BT[:, 1:] > 0)]
  if (step_BT < 1).any():
    raise ConfigError('pos: positions must rise within a document, and there are two that do not')
  return pos_BT, doc_BT, bool((step_BT == 1).all())


def _logits(config, enc, params, tokens_BT, pos_BT, doc_BT, contiguous):
  where = enc.placed(Where.forward(jnp.asarray(pos_BT), jnp.asarray(doc_BT), config.model.causal, contiguous))
  return jax.jit(functools.partial(model.apply, config, enc))(params, tokens_BT, where)
