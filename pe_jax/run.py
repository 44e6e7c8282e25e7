"""A finished or running experiment, for notebooks:

run = pe_jax.load('runs/a')
run.logits(tokens, encoding='yarn(factor=4)')
run.evaluate(lengths=[512, 4096])
"""

import dataclasses
import functools
import os
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from ml_collections import ConfigDict

from pe_jax import encodings, evaluate, model, workdir
from pe_jax.checkpoint import Checkpoints
from pe_jax.encodings.base import Encoding, Where
from pe_jax.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Run:
  """Parameters with the config they were trained under.

  Attributes:
    workdir: its folder.
    config: the resolved config, locked.
    params: the parameter tree.
    step: the training step of the checkpoint.
  """

  workdir: str
  config: ConfigDict
  params: dict
  step: int

  def encoding(self, spec: str | None = None, length: int = 0) -> Encoding:
    """The record of the trained encoding, or of another one with what it leaves open taken from the trained one."""
    trained = encodings.parse(self.config.encoding)
    spec = encodings.inherit(encodings.check_name(spec), trained) if spec else trained
    return encodings.make(spec, model.dims(self.config), length)

  def logits(self, tokens: ArrayLike, encoding: str | None = None, pos: ArrayLike | None = None, doc: ArrayLike | None = None) -> jax.Array:
    """Next-token logits, float32 (B, T, V).

    Args:
      tokens: int (B, T) or (T,) token ids, BOS included if the model has one.
      encoding: another encoding than the trained one.
      pos, doc: positions and documents (0 is padding); by default each row is one document from position 0.
    """
    tokens_BT = jnp.atleast_2d(jnp.asarray(tokens, jnp.int32))
    if int(tokens_BT.min()) < 0 or int(tokens_BT.max()) >= self.config.model.vocab_size:
      raise ConfigError(f'tokens: ids must be in 0 .. {self.config.model.vocab_size - 1}')
    pos_BT = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1], dtype=jnp.int32)[None], tokens_BT.shape) if pos is None else jnp.asarray(pos)
    doc_BT = jnp.ones_like(tokens_BT) if doc is None else jnp.asarray(doc)
    enc = self.encoding(encoding, tokens_BT.shape[1])
    return _logits(self.config, enc, self.params, tokens_BT, pos_BT, doc_BT)

  def evaluate(
    self,
    lengths: Sequence[int],
    encodings: Sequence[str] | None = None,
    protocols: Sequence[str] = ('nonoverlapping',),
    split: str = 'test',
    max_targets: int = 0,
  ) -> list[dict]:
    """Result rows, as eval.py writes them."""
    subject = evaluate.subject(self.config, self.params, split, max_targets)
    return evaluate.evaluate(subject, lengths, encodings, list(protocols), {'step': self.step, 'split': split})


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


def _logits(config, enc, params, tokens_BT, pos_BT, doc_BT):
  where = enc.placed(Where.forward(pos_BT, doc_BT, config.model.causal))
  return jax.jit(functools.partial(model.apply, config, enc))(params, tokens_BT, where)
