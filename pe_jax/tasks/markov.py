"""In-context Markov chains: every sequence has a transition matrix of its own, which the model can only learn from the sequence.

Rows of the matrix are drawn from Dirichlet(1, …, 1), the first symbol uniformly; every symbol after the first is a target. `length` is the
number of symbols. The best predictor knows the prior and has counted: with n_a earlier transitions out of a and n_ab of them to b,

    p(b | a, past) = (n_ab + 1) / (n_a + k)

so losses are reported above this optimum. Longer context helps truly. Edelman, Edelman, Goel, Malach, Tsilivis, 2024, arXiv:2402.11004
(their chains begin in the stationary distribution, which the optimum above would then have to use too).
"""

import numpy as np

from pe_jax.tasks.base import Task, at_least, letters


def sample(rng, length, symbols):
  """(tokens, answer) of a chain of `length` symbols."""
  cumulative = np.cumsum(rng.dirichlet(np.ones(symbols), size=symbols), axis=1)[:, :-1]
  tokens = np.empty(length, np.int32)
  tokens[0] = rng.integers(symbols)
  for t, u in enumerate(rng.random(length - 1), 1):
    tokens[t] = np.searchsorted(cumulative[tokens[t - 1]], u, side='right')
  return tokens, np.arange(length) > 0


def floor(tokens, symbols):
  """Nats of each token under the optimal predictor, float64; ln k for the first."""
  counts, nats = np.ones((symbols, symbols)), np.full(len(tokens), np.log(symbols))
  for t in range(1, len(tokens)):
    a, b = tokens[t - 1], tokens[t]
    nats[t] = -np.log(counts[a, b] / counts[a].sum())
    counts[a, b] += 1
  return nats


def task(*, symbols=8):
  """`symbols`: states of the chain, k."""
  at_least('markov', 'symbols', symbols, 2, 'since a chain of one state says nothing')
  return Task(
    words=letters(symbols),
    sample=lambda rng, length: sample(rng, length, symbols),
    size=lambda length: length,
    alphabet=range(symbols),
    shortest=2,
    floor=lambda tokens: floor(tokens, symbols),
  )
