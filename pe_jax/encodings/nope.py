"""NoPE: no position anywhere but in the causal mask.

A causal decoder can still count: its first layer sees one more key at each step. Haviv et al., 2022, arXiv:2203.16634; Kazemnejad et al.,
2023, arXiv:2305.19466. Without a mask such a model is blind to order.
"""

from pe_jax.encodings.base import Encoding, Traits


def encoding(dims):
  """The record."""
  del dims
  return Encoding(traits=Traits(relative=True))
