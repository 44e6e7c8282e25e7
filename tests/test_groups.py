"""Tests that share what takes long to make are in one group, and a group stays in one process."""

import pytest

pytestmark = pytest.mark.xdist_group('groups')


def test_the_runner_knows_the_group_of_a_test(request):
  """pytest-xdist writes it behind the name, which some versions of pytest forget; then all of this would be made once in each process."""
  if not hasattr(request.config, 'workerinput'):
    pytest.skip('one process')
  assert request.node.nodeid.endswith('@groups')
