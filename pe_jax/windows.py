"""How windows and spans are laid where nobody says: what measures, what counts its cost and what reads its rows agree on it."""


def stride(length):
  """Targets that a sliding window of a length goes on by: a quarter of it."""
  return max(1, length // 4)


def span(train_length):
  """Targets of a span that `context` scores at every length: half of the training length, 64 at most."""
  return min(64, max(1, train_length // 2))
