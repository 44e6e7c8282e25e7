"""Frequency maps: what to do with rotary frequencies when the text is longer than in training.

Each is a pure function on the host, float64 in and out,

    (frequency_F, *, ...) -> (frequency_F, attention_factor),

where frequency_F[i] = base^(-2i/d), fastest first, s = `factor` is how many times longer the text may be, and attention_factor multiplies
cos and sin (so scores grow by its square). What has a factor is the identity bit for bit at s = 1 (LongRoPE, whose divisors are given, is
not): ramps are written as frequency x (1 - ramp (1 - 1/s)), since a blend of the frequency and frequency / s is not exact.
"""

import math

import numpy as np

from pe_jax.errors import ConfigError


def linear(frequency_F, *, factor=0.0):
  """Position interpolation: frequency / s, so position 402 at s = 4 turns as 100.5 would. Chen et al., 2023, arXiv:2306.15595."""
  _check_factor(factor)
  return frequency_F / factor, 1.0


def ntk(frequency_F, *, factor=0.0):
  """NTK-aware: base x s^(d/(d-2)), i.e. pair i by s^(-i/(d/2-1)): the fastest stays, the slowest becomes exactly frequency / s.

  Described by bloc97 (2023); see arXiv:2309.00071, section 3.1.
  """
  _check_factor(factor)
  return frequency_F * _powers(factor, len(frequency_F)), 1.0


def dynamic_ntk(frequency_F, *, factor=1.0, original_length, length):
  """NTK-aware with a base that grows with the document: s L''/L - (s - 1) in place of s, L'' = max(length, L).

  The variant of Hugging Face transformers (see arXiv:2309.00071); plain RoPE bit for bit up to L. An array of lengths gives one row of
  frequencies each.
  """
  _check_factor(factor)
  length = np.maximum(np.asarray(length, np.float64), original_length)[..., None]
  ratio = 1 + factor * (length / original_length - 1)  # in this order exactly 1 at L
  return frequency_F * _powers(ratio, len(frequency_F)), 1.0


def yarn(
  frequency_F,
  *,
  factor=0.0,
  beta_fast=32.0,
  beta_slow=1.0,
  attention_factor=0.0,
  mscale=0.0,
  mscale_all_dim=0.0,
  truncate=True,
  ramp='index',
  base,
  original_length,
):
  """YaRN: fast pairs stay, slow pairs are divided by s, a ramp between. Peng et al., 2023, arXiv:2309.00071.

  A pair that makes more than beta_fast rotations within the original length is fast, fewer than beta_slow is slow.

  Args:
    ramp: 'index' is linear in the pair's index (the released code and Hugging Face), 'rotations' linear in its number of rotations
      (the paper's equations 17 to 20). These are two different functions.
    truncate: round the ramp's ends to whole indices ('index' only).
    attention_factor: replaces .1 ln s + 1; 0 computes it.
    mscale, mscale_all_dim: if both are given, the factor is get(s, mscale) / get(s, mscale_all_dim), get(s, a) = .1 a ln s + 1.
  """
  _check_factor(factor)
  ramp_F = _ramp(frequency_F, beta_fast, beta_slow, truncate, ramp, base, original_length)
  attention_factor = attention_factor or float(_yarn_scale(factor, mscale, mscale_all_dim))
  return frequency_F * (1 - ramp_F * (1 - 1 / factor)), attention_factor


def dynamic_yarn(frequency_F, *, beta_fast=32.0, beta_slow=1.0, truncate=True, ramp='index', base, original_length, length):
  """YaRN with s = max(1, length / L), decided by each document's own length; as in the code of arXiv:2309.00071.

  An array of lengths gives one row of frequencies and one attention factor each.
  """
  factor = np.maximum(np.asarray(length, np.float64) / original_length, 1.0)
  ramp_F = _ramp(frequency_F, beta_fast, beta_slow, truncate, ramp, base, original_length)
  return frequency_F * (1 - ramp_F * (1 - 1 / factor[..., None])), _yarn_scale(factor)


def ntk_by_parts(frequency_F, *, factor=0.0, beta_fast=32.0, beta_slow=1.0, truncate=True, ramp='index', base, original_length):
  """YaRN's map without its attention factor. arXiv:2309.00071, section 3.2."""
  _check_factor(factor)
  ramp_F = _ramp(frequency_F, beta_fast, beta_slow, truncate, ramp, base, original_length)
  return frequency_F * (1 - ramp_F * (1 - 1 / factor)), 1.0


def reversed_by_parts(frequency_F, *, factor=0.0, beta_fast=32.0, beta_slow=1.0, truncate=True, ramp='index', base, original_length):
  """The wrong way round on purpose: fast pairs divided by s, slow ones kept. A negative control, and what some tellings of YaRN say."""
  _check_factor(factor)
  ramp_F = _ramp(frequency_F, beta_fast, beta_slow, truncate, ramp, base, original_length)
  return frequency_F * (1 - (1 - ramp_F) * (1 - 1 / factor)), 1.0


def longrope(frequency_F, *, factor=0.0, short_factor=(), long_factor=(), attention_factor=0.0, original_length, length):
  """LongRoPE: each pair divided by a number of its own, found by search; `short_factor` up to L, `long_factor` for longer documents.

  Ding et al., 2024, arXiv:2402.13753. The attention factor, unless given, is sqrt(1 + ln s / ln L) at every length, as in released models.
  An array of lengths gives one row of frequencies each.
  """
  _check_factor(factor)
  pairs = len(frequency_F)
  for name, divisors in (('short_factor', short_factor), ('long_factor', long_factor)):
    if len(divisors) != pairs or not all(isinstance(x, (int, float)) and x > 0 and math.isfinite(x) for x in divisors):
      raise ConfigError(f'encoding: longrope needs {pairs} positive numbers in {name}, one a pair, and got {divisors}')
  long = (np.asarray(length) > original_length)[..., None]
  divisor = np.where(long, np.asarray(long_factor, np.float64), np.asarray(short_factor, np.float64))
  computed = math.sqrt(1 + math.log(factor) / math.log(original_length)) if factor > 1 else 1.0
  return frequency_F / divisor, attention_factor or computed


def p_rope(frequency_F, *, p=0.75):
  """Only the fastest p d/2 pairs turn, rounded down as in Hugging Face's 'proportional'. Barbero et al., 2024, arXiv:2410.06205."""
  if not 0 <= p <= 1:
    raise ConfigError(f'encoding: p={p} must be in [0, 1] (the share of pairs that turn)')
  pairs = len(frequency_F)
  return np.where(np.arange(pairs) < int(p * pairs + 1e-9), frequency_F, 0.0), 1.0


def abf(frequency_F, *, target=500_000.0, base):
  """Adjusted base frequency: the frequencies of another base, as in Xiong et al., 2023, arXiv:2309.16039."""
  if not target > 1:
    raise ConfigError(f'encoding: target={target} must be above 1 (the base to turn with)')
  return frequency_F ** (math.log(target) / math.log(base)), 1.0


def _ramp(frequency_F, beta_fast, beta_slow, truncate, ramp, base, original_length):
  """0 on pairs that make beta_fast rotations or more within the original length, 1 on those with beta_slow or fewer."""
  if beta_fast <= beta_slow:
    raise ConfigError(f'encoding: beta_fast={beta_fast} must exceed beta_slow={beta_slow} (rotations within the original length)')
  if ramp == 'index':
    return _index_ramp(len(frequency_F), beta_fast, beta_slow, truncate, base, original_length)
  if ramp == 'rotations':
    rotations_F = original_length * frequency_F / (2 * np.pi)
    return 1 - np.clip((rotations_F - beta_slow) / (beta_fast - beta_slow), 0, 1)
  raise ConfigError(f"encoding: ramp is 'index' or 'rotations', not {ramp!r}")


def _yarn_scale(factor, mscale=0.0, mscale_all_dim=0.0):
  """YaRN's attention factor for one s or an array of them, exactly 1 at s = 1."""

  def get(scale):
    return 0.1 * scale * np.log(np.maximum(factor, 1.0)) + 1.0

  return get(mscale) / get(mscale_all_dim) if mscale and mscale_all_dim else get(1.0)


def _index_ramp(pairs, beta_fast, beta_slow, truncate, base, original_length):
  """Linear in the index between the pairs that make beta_fast and beta_slow rotations."""

  def index(rotations):
    return 2 * pairs * math.log(original_length / (2 * math.pi * rotations)) / (2 * math.log(base))

  low, high = index(beta_fast), index(beta_slow)
  if truncate:
    low, high = math.floor(low), math.ceil(high)
  low, high = max(low, 0), min(high, 2 * pairs - 1)
  if low == high:
    high += 0.001  # as in the released code: a step, not 0/0
  return np.clip((np.arange(pairs) - low) / (high - low), 0, 1)


def llama3(frequency_F, *, factor=8.0, low=1.0, high=4.0, original_length):
  """Llama 3.1 (arXiv:2407.21783): wavelengths above L/low are divided by s, below L/high stay, between them a blend in L/wavelength."""
  _check_factor(factor)
  if high <= low:
    raise ConfigError(f'encoding: llama3 needs high > low, got {high} and {low}')
  rotations_F = original_length * frequency_F / (2 * np.pi)
  keep_F = np.clip((rotations_F - low) / (high - low), 0, 1)
  return frequency_F * (1 - (1 - keep_F) * (1 - 1 / factor)), 1.0


def _powers(ratio, pairs):
  """ratio^(-i/(pairs - 1)): 1 for the fastest pair, 1/ratio for the slowest."""
  return ratio ** (-np.arange(pairs) / max(pairs - 1, 1))


def _check_factor(factor):
  if not factor >= 1 or not math.isfinite(factor):
    raise ConfigError(f'encoding: factor={factor} must be at least 1 (how many times longer than in training the text may be)')
