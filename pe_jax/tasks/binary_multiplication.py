"""Binary multiplication, the bit of least weight first.

    0 0 1 * 0 1 1 0 1 > 0 0 0 1 1 0 1 .             4 x 22 = 88

`length` counts both numbers and the sign between them; where it stands is uniform, and the numbers are uniform over what is positive and
fits, zeros at their ends included. The answer has none of those, and '.' ends it; the paper pads it to a fixed size and leaves the padding
out of the count. Delétang and others, 2022, arXiv:2207.02098 (context-sensitive).
"""

import operator

from pe_jax.tasks import bits


def task():
  """Chance of a token 1/3."""
  return bits.of_two('*', operator.mul)
