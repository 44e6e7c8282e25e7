"""Position read out of hidden states: how well a linear map tells where a token stands, layer by layer, whatever the encoding.

Ridge regression from the residual stream x to the position p and to ln(1 + p), fitted on half of the documents and tested on the other
half, with R^2 = 1 - sum (y - y')^2 / sum (y - mean y)^2 over the test half:

    inside        fitted and tested at positions below the training length L
    beyond        fitted and tested at positions from L on: is it there at all?
    extrapolated  fitted below L, tested from L on: does what training knew go on? Far below 0 where it does not

Layer 0 is what enters the first block, the last is after the final norm. That a causal model without any encoding tells positions is known:
Haviv and others, 2022, arXiv:2203.16634; Chi and others, 2023, arXiv:2305.13571.
"""

import numpy as np

from pe_jax import model
from pe_jax.errors import DataError
from pe_jax.probes import forward, text

RIDGE = 1e-3  # of the mean variance of a feature
# What is summed over tokens is z z^T of z = (1, position, ln(1 + position), x): all that fits and tests need, of texts of any length.
POSITION, LOG_POSITION, FEATURES = 1, 2, slice(3, None)


def measure(subject, spec, lengths, options):
  """Yields one dict for each length."""
  train = subject.config.train_length
  for length in lengths:
    enc, name = forward.at(subject, spec, length)
    text_of, document_B = text.ends(subject, [length], max(2, options.segments), options.seed)
    fitted_B = halves(document_B)
    row_B, layer_N = iter(fitted_B), None
    for x_BNTD in forward.batches(subject, enc, residual(enc))(text_of[length]):
      layer_N = layer_N or [sums(length, train, x_BNTD.shape[3]) for _ in range(x_BNTD.shape[1])]
      for x_NTD, fitted in zip(x_BNTD, row_B):
        for layer, x_TD in zip(layer_N, x_NTD):
          add(layer, x_TD, fitted)
    layers = [
      {'layer': n, 'position': read_out(layer, POSITION), 'log_position': read_out(layer, LOG_POSITION)} for n, layer in enumerate(layer_N)
    ]
    documents = int(document_B.max()) + 1
    yield {'length': length, 'encoding': name, 'texts': len(document_B), 'documents': documents, 'ridge': RIDGE, 'layers': layers}


def residual(enc):
  """A reader for `forward.reader`: the residual stream, (B, N, T, D)."""
  return lambda config, params, tokens, where: model.watched(config, enc, params, tokens, where)[0].swapaxes(0, 1)


def halves(document_B):
  """True for the texts to fit on: every other document; where there is one document, every other text."""
  if len(document_B) < 2:
    raise DataError('position: one text cannot be fitted and tested (give more text, or shorter lengths)')
  return (document_B if document_B.max() else np.arange(len(document_B))) % 2 == 0


def sums(length, train, width):
  """{(whether fitted or tested, first position, end): sums of z z^T, all 0}; beyond the training length only where texts are longer."""
  parts = [(0, min(train, length)), *([(train, length)] if length > train + 1 else [])]
  return {(fitted, *part): np.zeros((width + 3, width + 3)) for fitted in (True, False) for part in parts}


def add(layer, x_TD, fitted):
  """Adds a text's tokens to the sums of a layer."""
  position_T = np.arange(len(x_TD), dtype=np.float64)
  z_TZ = np.concatenate([np.stack([np.ones_like(position_T), position_T, np.log1p(position_T)], axis=1), x_TD.astype(np.float64)], axis=1)
  for (of_fitted, start, end), sum_ZZ in layer.items():
    if of_fitted == fitted:
      sum_ZZ += z_TZ[start:end].T @ z_TZ[start:end]


def read_out(layer, target):
  """{'inside', 'beyond', 'extrapolated'} R^2 of POSITION or LOG_POSITION; the last two where the sums go beyond the training length."""
  fitted, tested = ([sum_ZZ for (of_fitted, *_), sum_ZZ in layer.items() if of_fitted == wanted] for wanted in (True, False))
  pairs = {'inside': (0, 0), 'beyond': (-1, -1), 'extrapolated': (0, -1)} if len(fitted) > 1 else {'inside': (0, 0)}
  return {name: r_squared(tested[test], ridge(fitted[fit], target), target) for name, (fit, test) in pairs.items()}


def ridge(sum_ZZ, target):
  """w with w z for the guess of y: argmin |y - x w - c|^2 / N + RIDGE mean(var x) |w|^2, the constant c free."""
  mean_Z = sum_ZZ[0] / sum_ZZ[0, 0]
  cov_ZZ = sum_ZZ / sum_ZZ[0, 0] - np.outer(mean_Z, mean_Z)
  cov_DD, w_Z = cov_ZZ[FEATURES, FEATURES], np.zeros_like(mean_Z)
  small = RIDGE * np.trace(cov_DD) / len(cov_DD) + 1e-30
  w_Z[FEATURES] = np.linalg.solve(cov_DD + small * np.eye(len(cov_DD)), cov_ZZ[FEATURES, target])
  w_Z[0] = mean_Z[target] - mean_Z[FEATURES] @ w_Z[FEATURES]
  return w_Z


def r_squared(sum_ZZ, w_Z, target):
  """1 - residual sum of squares / total sum of squares."""
  error_Z = w_Z.copy()
  error_Z[target] -= 1
  return float(1 - error_Z @ sum_ZZ @ error_Z / (sum_ZZ[target, target] - sum_ZZ[0, target] ** 2 / sum_ZZ[0, 0]))
