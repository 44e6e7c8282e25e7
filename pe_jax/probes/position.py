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


def measure(subject, spec, lengths, options):
  """Yields one dict for each length."""
  train = subject.config.train_length
  for length in lengths:
    enc, name = forward.at(subject, spec, length)
    text_of, document_B = text.ends(subject, [length], max(2, options.segments), options.seed)
    fitted_B = halves(document_B)
    x_BNTD = forward.reader(subject, enc, residual(enc))(text_of[length])
    position = np.arange(length, dtype=np.float64)
    layers = []
    for n in range(x_BNTD.shape[1]):
      x_BTD, row = x_BNTD[:, n].astype(np.float64), {'layer': n}
      for what, y_T in (('position', position), ('log_position', np.log1p(position))):
        row[what] = read_out(x_BTD, y_T, fitted_B, train)
      layers.append(row)
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


def read_out(x_BTD, y_T, fitted_B, train):
  """{'inside', 'beyond', 'extrapolated'} R^2; the last two only for texts that are longer than the training length."""
  parts = {'inside': (slice(0, train), slice(0, train))}
  if len(y_T) > train + 1:
    parts |= {'beyond': (slice(train, None), slice(train, None)), 'extrapolated': (slice(0, train), slice(train, None))}
  width, out = x_BTD.shape[2], {}
  for name, (fit, test) in parts.items():
    known = x_BTD[fitted_B][:, fit].reshape(-1, width), np.tile(y_T[fit], fitted_B.sum())
    asked = x_BTD[~fitted_B][:, test].reshape(-1, width), np.tile(y_T[test], (~fitted_B).sum())
    out[name] = r_squared(asked[1], ridge(*known)(asked[0]))
  return out


def ridge(x_ND, y_N):
  """A function x -> y: argmin |y - x w - c|^2 / N + RIDGE mean(var x) |w|^2, the constant c free."""
  mean_D, mean = x_ND.mean(0), y_N.mean()
  x_ND = x_ND - mean_D
  cov_DD = x_ND.T @ x_ND / len(x_ND)
  small = RIDGE * np.trace(cov_DD) / len(cov_DD) + 1e-30
  w_D = np.linalg.solve(cov_DD + small * np.eye(len(cov_DD)), x_ND.T @ (y_N - mean) / len(x_ND))
  return lambda x: (x - mean_D) @ w_D + mean


def r_squared(y_N, guess_N):
  """1 - residual sum of squares / total sum of squares."""
  return float(1 - ((y_N - guess_N) ** 2).sum() / ((y_N - y_N.mean()) ** 2).sum())
