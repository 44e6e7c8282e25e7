"""What holds for every encoding in the registry: each name through every property. A new file is tested from the moment it exists.

The truths are the functions of pe_jax/selfcheck/properties.py: `a_packed_document_is_as_if_alone` there is
`test_a_packed_document_is_as_if_alone[rope]`, `[alibi]` … here. matrix.py prints the same as a table.
"""

import pytest

from pe_jax.selfcheck.properties import PROPERTIES, SPECS, failure, holds

# One worker takes all properties of an encoding: compiled forwards are shared.
pytestmark = pytest.mark.parametrize('spec', [pytest.param(s, marks=pytest.mark.xdist_group(s)) for s in SPECS])


def asserted(function, tolerance):
  """The test of one property."""

  def test(spec):
    value = function(spec)
    assert holds(value, tolerance), failure(function, value, tolerance)

  return test


globals().update({f'test_{function.__name__}': asserted(function, tolerance) for function, tolerance in PROPERTIES.values()})
