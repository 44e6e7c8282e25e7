"""card.json of an imported run: what its source says of itself, and which tokens end a text."""

import json

from pe_jax import remote
from pe_jax.errors import DataError

NAME = 'card.json'


def read(workdir):
  """The card as a dict; {} where the run was not imported. DataError if it is no JSON object."""
  card = remote.path(workdir) / NAME
  if not card.is_file():
    return {}
  try:
    found = json.loads(card.read_text())
  except ValueError as error:
    raise DataError(f'{card}: no JSON: {error} (import the checkpoint again)') from error
  if not isinstance(found, dict):
    raise DataError(f'{card}: holds no JSON object (import the checkpoint again)')
  return found


def ends(workdir):
  """Token ids after which a text is over, by the source's settings for generation or else its config; () where it names none."""
  card = read(workdir)
  told = (card.get('generation') or {}).get('eos_token_id', card.get('eos_token_id'))
  return () if told is None else tuple(told) if isinstance(told, list) else (told,)
