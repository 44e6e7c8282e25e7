"""Another encoding in each layer, cycled over depth: layers(rope, rope, rope, nope) leaves every fourth layer without positions.

As in RNoPE-SWA (Yang et al., 2025, arXiv:2501.18795) and the iRoPE of Llama 4. Equal encodings are one encoding, whose parameters serve
all of its layers, unless it has parameters for each layer by itself (FoX, CoPE …).
"""

import dataclasses

from pe_jax.encodings.base import Encoding
from pe_jax.encodings.combine import focus, joint_traits, refuse, together
from pe_jax.errors import ConfigError


def encoding(dims, *inner):
  """The record. The encodings are those of layers 0, 1, …, then again from the first."""
  if len(inner) > dims.num_layers:
    raise ConfigError(f'encoding: layers(…) lists {len(inner)} encodings and the model has {dims.num_layers} layers (give it fewer)')
  names = [part(dims).spec for part in inner]
  cycle = [names[n % len(names)] for n in range(dims.num_layers)]
  unique = list(dict.fromkeys(names))
  records = [inner[names.index(u)](dataclasses.replace(dims, num_layers=cycle.count(u))) for u in unique]
  for record in records:
    refuse(record, 'layers', 'embed', 'positions', 'schedule')

  def layer(n):
    part = unique.index(cycle[n])
    return focus(records[part].at_layer(cycle[:n].count(cycle[n])), lambda tables: tables[part])

  return Encoding(**together(records), layer=layer, traits=joint_traits(records))
