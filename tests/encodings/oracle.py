"""Positional encodings from their formulas alone, in float64 plain loops: slow, obvious, and sharing nothing with pe_jax.

Sources, checked against released code: 1706.03762 (sinusoidal), 2104.09864 (rotary), 2306.15595 (linear), 2309.00071 and
Hugging Face's modeling_rope_utils (yarn, dynamic NTK, llama3), 2108.12409 and its authors' listing (ALiBi), 1910.10683,
Hugging Face and flaxformer (T5 buckets).
"""

import math

import numpy as np


def sinusoidal(positions, width, base=10000.0, layout='interleaved'):
  """(P, width): sin and cos of position·base^(−2i/width); 'tensor2tensor' divides by width/2 − 1 in place of width/2."""
  pairs = width // 2
  table = np.zeros((len(positions), width), np.float64)
  for row, position in enumerate(positions):
    for i in range(pairs):
      if layout == 'tensor2tensor':
        angle = int(position) * float(base) ** (-i / (pairs - 1))
      else:
        angle = int(position) * float(base) ** (-2 * i / width)
      if layout == 'interleaved':
        at_sin, at_cos = 2 * i, 2 * i + 1
      elif layout in ('concat', 'tensor2tensor'):
        at_sin, at_cos = i, pairs + i
      else:
        raise ValueError(f'unknown layout {layout!r}')
      table[row, at_sin] = math.sin(angle)
      table[row, at_cos] = math.cos(angle)
  return table


def frequencies(d, base=10000.0):
  """θ_i = base^(−2i/d) for i = 0..d/2 − 1, the fastest first."""
  return [float(base) ** (-2 * i / d) for i in range(d // 2)]


def linear(freq, factor):
  """Position interpolation: every pair turns `factor` times more slowly."""
  return [theta / factor for theta in freq], 1.0


def ntk(freq, factor, base):
  """The frequencies of another base, base·s^(d/(d − 2)). `freq` tells only how many there are."""
  d = 2 * len(freq)
  return frequencies(d, base * factor ** (d / (d - 2))), 1.0


def dynamic_ntk(freq, factor, base, original_length, length):
  """NTK whose base grows with the length, from the trained length on."""
  d = 2 * len(freq)
  length = max(length, original_length)
  growth = factor * length / original_length - (factor - 1)
  return frequencies(d, base * growth ** (d / (d - 2))), 1.0


def yarn_range(d, base, original_length, beta_fast=32.0, beta_slow=1.0, truncate=True):
  """(low, high): the pair indices between which the released code's ramp rises."""
  low = d * math.log(original_length / (beta_fast * 2 * math.pi)) / (2 * math.log(base))
  high = d * math.log(original_length / (beta_slow * 2 * math.pi)) / (2 * math.log(base))
  if truncate:
    low, high = math.floor(low), math.ceil(high)
  low, high = max(low, 0), min(high, d - 1)
  if low == high:
    high += 0.001
  return low, high


def yarn(
  freq,
  factor,
  base,
  original_length,
  beta_fast=32.0,
  beta_slow=1.0,
  attention_factor=0.0,
  mscale=0.0,
  mscale_all_dim=0.0,
  truncate=True,
  ramp='index',
):
  """Fast pairs stay, slow ones are divided by `factor`, between them a ramp: over indices, or over rotations (the paper)."""
  low, high = yarn_range(2 * len(freq), base, original_length, beta_fast, beta_slow, truncate)
  mapped = []
  for i, theta in enumerate(freq):
    if ramp == 'index':
      slow = (i - low) / (high - low)
    elif ramp == 'rotations':
      rotations = original_length * theta / (2 * math.pi)
      slow = 1 - (rotations - beta_slow) / (beta_fast - beta_slow)
    else:
      raise ValueError(f'unknown ramp {ramp!r}')
    slow = min(max(slow, 0.0), 1.0)
    mapped.append(theta * (1 - slow) + theta / factor * slow)

  def scale(a):
    return 1.0 if factor <= 1 else 0.1 * a * math.log(factor) + 1.0

  if not attention_factor:
    if mscale and mscale_all_dim:
      attention_factor = scale(mscale) / scale(mscale_all_dim)
    else:
      attention_factor = scale(1.0)
  return mapped, attention_factor


def llama3(freq, original_length, factor=8.0, low=1.0, high=4.0):
  """Wavelengths under L/high stay, over L/low are divided by `factor`, between them a mixture."""
  mapped = []
  for theta in freq:
    wavelength = 2 * math.pi / theta
    if wavelength < original_length / high:
      mapped.append(theta)
    elif wavelength > original_length / low:
      mapped.append(theta / factor)
    else:
      g = (original_length / wavelength - low) / (high - low)
      mapped.append((1 - g) * theta / factor + g * theta)
  return mapped, 1.0


def rotate(x, positions, freq, layout='half', attention_factor=1.0):
  """x (T, K): the first 2·len(freq) dims turned pair by pair (and scaled), the rest left exactly as they are."""
  x = np.asarray(x, np.float64)
  out = x.copy()
  for t, position in enumerate(positions):
    for i, theta in enumerate(freq):
      if layout == 'half':
        a, b = i, i + len(freq)
      elif layout == 'interleaved':
        a, b = 2 * i, 2 * i + 1
      else:
        raise ValueError(f'unknown layout {layout!r}')
      cos = attention_factor * math.cos(int(position) * float(theta))
      sin = attention_factor * math.sin(int(position) * float(theta))
      out[t, a] = x[t, a] * cos - x[t, b] * sin
      out[t, b] = x[t, a] * sin + x[t, b] * cos
  return out


def alibi_slopes(num_heads):
  """2^(−8h/H), h = 1..H, for a power of two; else those of the one below, then every second one of the one above."""
  power = 1
  while 2 * power <= num_heads:
    power *= 2
  slopes = [2.0 ** (-8 * h / power) for h in range(1, power + 1)]
  h = 1
  while len(slopes) < num_heads:
    slopes.append(2.0 ** (-8 * h / (2 * power)))
    h += 2
  return slopes


def alibi_bias(slopes, distance):
  """(H, *distance.shape): −slope·distance."""
  distance = np.asarray(distance)
  bias = np.zeros((len(slopes), *distance.shape), np.float64)
  for h, slope in enumerate(slopes):
    for at in np.ndindex(distance.shape):
      bias[(h, *at)] = -float(slope) * int(distance[at])
  return bias


def t5_bucket(distance, num_buckets=32, max_distance=128):
  """Causal bucket of one distance. The logarithm's floor is taken in exact integers, so no boundary depends on rounding.

  ⌊wide·ln(Δ/exact)/ln(max/exact)⌋ is the largest n with (max/exact)^n ≤ (Δ/exact)^wide.
  """
  exact = num_buckets // 2
  wide = num_buckets - exact
  if distance < 0:
    return 0
  if distance < exact:
    return distance
  if distance >= max_distance:
    return num_buckets - 1
  n = 0
  while max_distance ** (n + 1) * exact**wide <= distance**wide * exact ** (n + 1):
    n += 1
  return min(exact + n, num_buckets - 1)


def attention(q, k, v, bias, visible):
  """One head: softmax(q·k/√K + bias) over the visible keys, times v; a row that sees no key is 0."""
  q, k, v = np.asarray(q, np.float64), np.asarray(k, np.float64), np.asarray(v, np.float64)
  out = np.zeros((len(q), v.shape[1]), np.float64)
  for t in range(len(q)):
    scores = {}
    for s in range(len(k)):
      if visible[t][s]:
        dot = sum(float(q[t, c]) * float(k[s, c]) for c in range(q.shape[1]))
        scores[s] = dot / math.sqrt(q.shape[1]) + float(bias[t][s])
    if not scores:
      continue
    top = max(scores.values())
    total = sum(math.exp(score - top) for score in scores.values())
    for s, score in scores.items():
      out[t] += math.exp(score - top) / total * v[s]
  return out
