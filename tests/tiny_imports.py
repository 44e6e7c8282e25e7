"""The tiny checkpoints of tiny_weights.py as runs of ours, and how far their logits are from those of transformers.

`differences` takes a model through a text alone, packed beside another, behind padding and through a cache. Programs are shared by models
that compute the same but for their frequencies, as evaluation shares them.
"""

import jax
import jax.numpy as jnp
import numpy as np
import tiny_weights as made

from pe_jax import cache as kv
from pe_jax import encodings, model
from pe_jax.encodings.base import Where
from pe_jax.weights import importing

LENGTHS = (made.SHORT, made.LONG)
PADDING = 3


def imported(folder):
  """(config, encoding, params) of a Hugging Face folder."""
  opened = importing.opened_source(folder)
  config, _ = importing.config_of(opened.given, tokenizer='bytes') if opened.given['vocab_size'] > 256 else small(opened.given)
  params, _ = importing.parameters(opened, config)
  return config, encodings.make(config.encoding, model.dims(config)), jax.tree.map(jnp.asarray, params)


def small(given):
  """A vocabulary that no tokenizer here has: the config without asking one."""
  config, declaration = importing.config_of({**given, 'vocab_size': 257})
  config = config.copy_and_resolve_references()
  config.unlock()
  config.model.vocab_size = given['vocab_size']
  return config.lock(), declaration


def of_rope(name, family):
  """(config, encoding, params) of a model of made.ropes(), given its plain relative as `imported` gives it."""
  config, _ = small(made.rope_config(name))
  return config, encodings.make(config.encoding, model.dims(config)), family[2]


def rows(*texts):
  """(tokens, pos, doc) of rows of (padding, text, text …), all of one width; a number is so much padding."""
  width = max(sum(part if isinstance(part, int) else len(part) for part in row) for row in texts)
  out = np.zeros((3, len(texts), width), np.int32)
  for n, row in enumerate(texts):
    at, document = 0, 0
    for part in row:
      size = part if isinstance(part, int) else len(part)
      if not isinstance(part, int):
        document += 1
        out[:, n, at : at + size] = np.stack([part, np.arange(size), np.full(size, document)])
      at += size
  return out


def differences(read, name, programs):
  """{'plain', 'packing', 'padding'}: the worst difference of a logit, as a share of transformers' largest.

  Args:
    read: (config, encoding, params) of the model.
    name: of what is stored of it.
    programs: a dict that keeps what is compiled.
  """
  config, enc, params = _given(read)
  long, short = made.text(made.LONG), made.text(made.SHORT)
  tokens, pos, doc = rows((long, short), (short, PADDING, long), (made.LONG, short), (PADDING, long))
  where = Where.forward(jnp.asarray(pos), jnp.asarray(doc))
  run = _program(programs, config, enc, 'forward', lambda p, t, where: model.apply(config, enc, p, t, where))
  out_BTV = run(params, tokens, where)
  # Where each text begins, by row: what stands first in a row is alone, since nothing before it is seen.
  places = {
    'plain': [(0, made.LONG, 0), (1, made.SHORT, 0)],
    'packing': [(0, made.SHORT, made.LONG), (1, made.LONG, made.SHORT + PADDING)],
    'padding': [(2, made.SHORT, made.LONG), (3, made.LONG, PADDING)],
  }
  return {
    what: max(error(out_BTV[row, start : start + length], name, length) for row, length, start in found) for what, found in places.items()
  }


def of_cache(read, name, programs):
  """As `differences`, of the long text read eight tokens at a time."""
  config, enc, params = _given(read)
  tokens, pos, doc = rows((made.text(made.LONG),))
  step = _program(
    programs, config, enc, enc.traits.cache, lambda p, cache, *text: model.apply(config, enc, p, text[0], text[1:], cache=cache)
  )
  cache, parts = kv.create(config.model, enc, 1, made.LONG, made.LONG), []
  for n in range(0, made.LONG, 8):
    part_BTV, cache = step(params, cache, *(x[:, n : n + 8] for x in (tokens, pos, doc)))
    parts.append(part_BTV)
  return error(jnp.concatenate(parts, axis=1)[0], name, made.LONG)


def error(logits_TV, name, length):
  """The largest difference from what is stored of a text, as a share of the largest logit."""
  stored = made.found(name)
  at, of = np.asarray(made.AT[length]), stored.get('of', slice(None))
  theirs = np.asarray(stored['logits'][str(length)])
  largest = stored['largest'][str(length)] if 'largest' in stored else np.max(np.abs(theirs))
  return float(np.max(np.abs(np.asarray(logits_TV, np.float64)[at][:, of] - theirs)) / largest)


def _given(read):
  """The parameters with the encoding's numbers among them."""
  config, enc, params = read
  return config, enc, model.numbered(enc, params, LENGTHS)


def _program(programs, config, enc, what, function):
  computed = encodings.program(encodings.parse(enc.spec)) if enc.numbers else enc.spec
  return programs.setdefault((config.model.to_json(), computed, what), jax.jit(function))
