"""ReRoPE, Leaky ReRoPE, Self-Extend, LM-Infinite, sinks: each score is RoPE's at the distance of the papers' formulas, in float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from pe_jax import encodings
from pe_jax.encodings.base import Dims, Where
from pe_jax.errors import ConfigError

DIMS = Dims(2, 1, 8, 16, 16)
DISTANCES = {
  'rerope(window=5)': lambda i, j: min(i - j, 5),
  'leaky_rerope(window=5, slow=4)': lambda i, j: i - j if i - j < 5 else 5 + (i - j - 5) / 4,
  'self_extend(group=3, window=5)': lambda i, j: i - j if i - j < 5 else i // 3 - j // 3 + 5 - 5 // 3,
  'rerope': lambda i, j: min(i - j, 8),  # half the training length
  'lm_infinite(first=2, window=5)': lambda i, j: min(i - j, 5) if j < 2 or i - j < 5 else None,
  'sinks(first=2, window=5)': lambda i, j: i - j if i - j < 5 else min(i, 6) - j if j < 2 else None,
  'leaky_rerope(window=5, slow=1)': lambda i, j: i - j,
  'self_extend(group=1, window=5)': lambda i, j: i - j,
}


@pytest.mark.parametrize('spec', DISTANCES)
def test_every_score_is_ropes_at_the_distance_of_the_formula(spec):
  rng = np.random.default_rng(0)
  q, k = rng.normal(size=(1, 14, 2, 8)), rng.normal(size=(1, 14, 1, 8))
  enc = encodings.make(spec, DIMS)
  pos = jnp.arange(14, dtype=jnp.int32)[None]
  where = Where.forward(pos, jnp.ones_like(pos))
  tables = enc.tables({}, where)
  score = enc.score(tables, *enc.rotate(tables, jnp.asarray(q, jnp.float32), jnp.asarray(k, jnp.float32)), where)
  seen = where.visible_BTS() & (enc.visible(tables, where)[:, 0] if enc.visible else True)
  frequency = 10_000.0 ** (-np.arange(4) / 4)
  for h in range(2):
    a, b = q[0, :, h, :4] + 1j * q[0, :, h, 4:], k[0, :, 0, :4] + 1j * k[0, :, 0, 4:]
    for i in range(14):
      for j in range(i + 1):
        distance = DISTANCES[spec](i, j)
        assert bool(seen[0, i, j]) == (distance is not None)
        if distance is None:
          continue
        expected = np.sum((a[i] * np.conj(b[j]) * np.exp(1j * distance * frequency)).real) / np.sqrt(8)
        assert float(score[0, h, i, j]) == pytest.approx(expected, abs=2e-5)


def test_they_read_a_rope_checkpoint_with_the_base_it_was_trained_with():
  trained = encodings.parse('rope(base=500, fraction=0.5)')
  assert str(encodings.inherit(encodings.parse('self_extend(group=2)'), trained)) == 'self_extend(group=2, base=500, fraction=0.5)'
  assert str(encodings.inherit(encodings.parse('rerope'), trained)) == 'rerope(base=500, fraction=0.5)'


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('rerope(window=-1)', 'window=-1 must be at least 1'),
    ('leaky_rerope(slow=0.5)', 'slow=0.5 must be at least 1'),
    ('self_extend(group=0)', 'group=0 must be at least 1'),
    ('lm_infinite(first=-1)', 'first=-1 must be at least 0'),
    ('sinks(window=-2)', 'window=-2 at least 1'),
    ('self_extend(fraction=2.0)', r'must be in \(0, 1\]'),
  ],
)
def test_a_wrong_setting_gets_a_sentence(text, message):
  with pytest.raises(ConfigError, match=message):
    encodings.make(text, DIMS)
