"""card.json of an imported run: what its source says of itself, and which tokens end a text."""

import json

from pe_jax import remote

NAME = 'card.json'


def read(workdir):
  """The card as a dict; {} where the run was not imported."""
  card = remote.path(workdir) / NAME
  return json.loads(card.read_text()) if card.is_file() else {}


def ends(workdir):
  """Token ids after which a text is over, by the source's settings for generation or else its config; () where it names none."""
  card = read(workdir)
  told = (card.get('generation') or {}).get('eos_token_id', card.get('eos_token_id'))
  return () if told is None else tuple(told) if isinstance(told, list) else (told,)
