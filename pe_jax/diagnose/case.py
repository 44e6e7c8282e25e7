"""What is diagnosed: a checkpoint's parameters read under an encoding at a length, and the ways a text goes through them.

Checks see the code from outside: what they compare are states and losses of the same forward, the same decoding and the same packing that
a user's run goes through, so that a fault anywhere below shows.
"""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from pe_jax import attention, data, decode, encodings, evaluate, loss, metrics, model, prompts
from pe_jax.encodings.base import Where
from pe_jax.errors import ConfigError
from pe_jax.sampling import GREEDY

NEW_TOKENS = 4  # that decoding adds: enough for an id to go wrong
SHORTEST = 16
TOLERANCE = {'float32': 1e-3, 'bfloat16': 6e-2}  # of the largest entry: what another order of sums may cost


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
  """Attributes:
  subject: the run with its documents.
  spec: the encoding that is read; a map without a factor takes it from the length.
  length: tokens.
  source: the documents as text, bytes each.
  recorded: validation loss that training wrote for this checkpoint, where it did and the trained encoding is read.
  """

  subject: evaluate.Subject
  spec: encodings.Spec
  length: int
  source: Sequence
  recorded: float | None = None
  made: dict = dataclasses.field(default_factory=dict, repr=False)

  @functools.cached_property
  def config(self):
    """The config, hashable, with the attention path chosen anew."""
    return ml_collections.FrozenConfigDict(attention.reading(self.subject.config))

  @property
  def train_length(self):
    return self.subject.config.train_length

  @property
  def params(self):
    return self.subject.params

  @property
  def tolerance(self):
    return TOLERANCE[self.config.model.dtype]

  def encoding(self, length=0):
    """The record at a length; 0: the longest that can be served."""
    spec = self.subject.at_length(self.spec, length or self.served)
    if spec not in self.made:
      self.made[spec] = encodings.make(spec, model.dims(self.subject.config))
    return self.made[spec]

  @functools.cached_property
  def served(self):
    """The length, or as many tokens as the encoding has positions for."""
    return min(self.length, self.encoding(self.length).traits.max_length or self.length)

  def layers(self):
    """The records of layers, those of one name once."""
    records = map(self.encoding().at_layer, range(self.config.model.num_layers))
    return list({record.spec: record for record in records}.values())

  @functools.cached_property
  def stream(self):
    """All documents as one run of tokens, repeated where it is shorter than the length."""
    tokens = np.concatenate(self.subject.documents)
    return np.resize(tokens, max(len(tokens), 4 * self.length))

  def text(self, length, number=0):
    """Input ids of a text: BOS, if the model has one, and tokens of the stream; another number begins at another place."""
    bos = self.subject.tokenizer.bos
    start = number * (len(self.stream) // 7) % (len(self.stream) - length)
    tokens = self.stream[start : start + length - (bos is not None)]
    return (tokens if bos is None else np.append(bos, tokens)).astype(np.int32)

  def states(self, tokens_BT, pos_BT=None, doc_BT=None, drawn=False):
    """Last hidden states of one forward, float32 (B, T, D) on the host. `drawn`: positions have been drawn already."""
    doc_BT = np.ones_like(tokens_BT) if doc_BT is None else doc_BT
    pos_BT = np.broadcast_to(np.arange(tokens_BT.shape[1], dtype=np.int32), tokens_BT.shape) if pos_BT is None else pos_BT
    return np.asarray(_states(self.config, self.encoding(tokens_BT.shape[1]), self.params, tokens_BT, pos_BT, doc_BT, drawn=drawn))

  def nll(self, x_BTD, targets_BT):
    """-log p(target) after each state, float64 (B, T)."""
    return np.asarray(_nll(x_BTD, *model.head(self.config, self.params), targets_BT), np.float64)

  def decoded(self, texts):
    """The Decoded of prompts that are continued greedily."""
    enc = self.encoding(max(map(len, texts)) + NEW_TOKENS)
    job = prompts.job(self.config, enc, *prompts.padded(texts), NEW_TOKENS, None, (), None)
    cache, given = decode.begun(job, enc, self.params)
    position_BL = np.asarray(given[2])
    cache, (new_BN, logp_BN, _) = decode.sample_loop(
      job.config, enc, self.params, cache, given, NEW_TOKENS, GREEDY, None, job.row_B, new_tokens=NEW_TOKENS
    )
    whole = [np.append(text, new).astype(np.int32) for text, new in zip(texts, np.asarray(new_BN))]
    ids = [pos[doc > 0] for pos, doc in zip(np.asarray(cache.pos_BS), np.asarray(cache.doc_BS))]
    return Decoded(whole, np.asarray(logp_BN, np.float64), ids, position_BL, cache.capacity)

  def at_once(self, decoded, row):
    """Log-probabilities of the new tokens of a row from one forward of its whole text, float64 (N,)."""
    text, longest = decoded.texts[row], max(map(len, decoded.texts))
    rest = longest - len(text)  # padding, so that rows of all lengths share a program
    tokens_BT, doc_BT = np.pad(text, (0, rest))[None], np.pad(np.ones_like(text), (0, rest))[None]
    if self.encoding(longest).positions:
      x_BTD = self.states(tokens_BT, np.pad(decoded.position_BL[row, : len(text)], (0, rest))[None], doc_BT, drawn=True)
    else:
      x_BTD = self.states(tokens_BT, None, doc_BT)
    return -self.nll(x_BTD, np.roll(tokens_BT, -1, axis=1))[0, len(text) - 1 - NEW_TOKENS : len(text) - 1]

  @functools.cached_property
  def batch(self):
    """The Decoded of three prompts of different lengths, the first of which fills the length; None where nothing can be decoded."""
    if not self.config.model.causal:
      return None
    longest = self.served - NEW_TOKENS
    return self.decoded([self.text(n, k) for k, n in enumerate((longest, max(2, longest // 2), 3))])

  @functools.cached_property
  def batch_error(self):
    """The largest error of log-probabilities of the new tokens in each row of `batch`, against one forward."""
    return [float(np.abs(self.batch.logp_BN[row] - self.at_once(self.batch, row)).max()) for row in range(len(self.batch.texts))]

  @property
  def logp_tolerance(self):
    """How far log-probabilities may lie apart: nats."""
    return 5 * self.tolerance


@dataclasses.dataclass(frozen=True, eq=False)
class Decoded:
  """Attributes:
  texts: prompts with their new tokens.
  logp_BN: of the new tokens.
  ids: position ids of each row's tokens in the cache, in the order of slots.
  position_BL: positions that were made for the texts.
  capacity: slots of the cache.
  """

  texts: list
  logp_BN: np.ndarray
  ids: list
  position_BL: np.ndarray
  capacity: int


def of_run(run, length, spec=None, split='test', max_targets=20_000, text=''):
  """The Case of a `run.Run` on a split, or on a text of one's own; refuses what cannot be diagnosed."""
  config = run.config
  if config.data.source == 'task':
    raise ConfigError(f'workdir: trained on the task {config.data.name}, and a diagnosis reads text (eval.py tests tasks at any length)')
  if length < SHORTEST:
    raise ConfigError(f'length: {length} tokens are too few to tell anything (ask for {SHORTEST} at least)')
  trained = encodings.parse(config.encoding)
  read = encodings.inherit(encodings.check_name(spec), trained) if spec else trained
  subject = evaluate.subject(config, run.params, split, max_targets, text=text)
  source = evaluate.own_text(config.data, text) if text else data.open_documents(config.data, split)
  model.check_parameters(encodings.make(read, model.dims(config), length), run.params)
  recorded = _recorded(run) if read == trained else None
  return Case(subject, read, length, source, recorded)


def _recorded(run):
  """The validation loss that training wrote last, up to the checkpoint's step."""
  rows = metrics.read(f'{run.workdir}/metrics.jsonl')
  losses = [row['validation_loss'] for row in rows if 'validation_loss' in row and row['step'] <= run.step]
  return losses[-1] if losses else None


def distance(a, b):
  """The largest difference as a share of the largest entry."""
  a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
  return float(np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1e-30))


@functools.partial(jax.jit, static_argnames=('config', 'enc', 'drawn'))
def _states(config, enc, params, tokens_BT, pos_BT, doc_BT, *, drawn):
  where = Where.forward(jnp.asarray(pos_BT), doc_BT, config.model.causal, contiguous=not drawn)
  return model.hidden(config, enc, params, tokens_BT, where if drawn else enc.placed(where))[0]


_nll = jax.jit(loss.each)
