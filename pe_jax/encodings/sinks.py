"""Attention sinks (StreamingLLM): the first few tokens and a window stay visible, with positions counted within what is kept.

    visible: j < first or i - j < window;   a first token is read at distance min(i, first + window - 1) - j

Xiao et al., 2023, arXiv:2309.17453. The rolling cache holds the first tokens at positions 0 .. first - 1 and the window after them, so no
position in it exceeds first + window - 1. Nothing is trained. What lies between is not used at all. Learned sinks, a number in the
denominator of the softmax, are another thing.
"""

import dataclasses

import jax.numpy as jnp

from pe_jax.encodings import phases, rope
from pe_jax.encodings.lm_infinite import check, first_and_window
from pe_jax.encodings.rerope import two_readings

INHERITED = rope.INHERITED


def encoding(dims, *, first=4, window=0, base=10_000.0, fraction=1.0, layout='half'):
  """The record. `window`: 0 fills up the training length, train_length - first."""
  window = window or max(dims.train_length - first, 1)
  check(first, window)

  def far(position, is_query, frequency_F):
    return phases.cos_sin(jnp.minimum(position, first + window - 1) if is_query else position, frequency_F)

  enc = two_readings(dims, base, fraction, layout, window, far)
  traits = dataclasses.replace(enc.traits, relative=False)
  return dataclasses.replace(enc, visible=first_and_window(first, window), traits=traits)
